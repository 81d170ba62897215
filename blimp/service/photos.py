"""The ship's photographs as its worker reaches them: the camera's process, and its directory."""

from pathlib import Path

import msgspec

from blimp.camera.store import PhotoStore
from blimp.chips import role_of
from blimp.errors import CameraError, LinkError, Refused, TaskError
from blimp.link import camera_control
from blimp.photo import Photo, PhotoRequest, Triple, read_photo
from blimp.service.parameters import FlownFile


class ShipPhotos(PhotoStore):
    """See `blimp.tasks.photo.Photos`. control: the socket of the camera's process."""

    def __init__(self, directory: Path, *, control: Path, flown: FlownFile) -> None:
        super().__init__(directory)
        self._control = control
        self._flown = flown

    def take(self, request: PhotoRequest, *, timeout_s: float) -> Photo | None:
        asked = msgspec.to_builtins(request)
        try:
            taken = camera_control.ask(self._control, "photo", timeout_s=timeout_s, **asked)
        except CameraError as error:
            raise Refused(str(error)) from None
        except LinkError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # none has run, or it has ended
                raise Refused(
                    f"no camera: `blimp camera` does not run on this ship ({self._control})"
                ) from None
            return None
        return read_photo(msgspec.json.encode(taken))

    def place(self, position_ned_m: Triple) -> Triple | None:
        """Return latitude, longitude and altitude, if the ship measures where its pad is."""
        try:
            airframe = self._flown.load()
        except TaskError:
            return None
        if not any(role_of(one.chip) == "gps" for one in airframe.device):
            return None
        north_m, east_m, down_m = position_ned_m
        home = airframe.home
        return (*home.global_deg(north_m, east_m), home.altitude_msl_m - down_m)
