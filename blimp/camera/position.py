"""A step of the camera's process: tags in the newest frame, the ship's place, one datagram."""

import contextlib
import secrets
import socket
from collections.abc import Callable
from math import hypot
from pathlib import Path
from typing import Any

import msgspec

from blimp.ability import camera_of
from blimp.airframe import Airframe, CameraRow, Device, room_file
from blimp.camera import lens as lenses
from blimp.camera import tag_map as tag_maps
from blimp.camera.detect import Detection, TagDetector
from blimp.camera.frame import Frame
from blimp.camera.lens import Lens
from blimp.camera.pose import Mounted, Pose, PoseSolver
from blimp.camera.tag_map import TagMap
from blimp.errors import ConfigError
from blimp.types import CameraPose

_DARK = 12.0  # the mean of a picture that is no darker than its black level


def camera_row(airframe: Airframe) -> tuple[Device, CameraRow] | None:
    """Return the row of a ship's camera and its options, None if it has none.

    Raises ConfigError naming the row and the option.
    """
    row = camera_of(airframe)
    if row is None:
        return None
    try:
        return row, msgspec.convert(row.options, CameraRow)
    except msgspec.ValidationError as error:
        raise ConfigError(f"options of {row.name}: {error}") from error


def lens_of(options: CameraRow) -> Lens:
    """Return the lens of the options' picture. Raises ConfigError."""
    if options.lens:
        return lenses.scaled(lenses.load(options.lens), options.width, options.height)
    return lenses.of_view(options.width, options.height, options.horizontal_fov_deg)


def to_socket(path: Path) -> Callable[[bytes], None]:
    """Return what sends to the flight process, which may be dead or behind: nobody waits."""
    out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    out.setblocking(False)

    def send(data: bytes) -> None:
        with contextlib.suppress(OSError):
            out.sendto(data, str(path))

    return send


class TagPosition:
    """The ship's place by the tags of a map, a frame at a time, from one thread.

    stand_m: of the airframe, from the hull's centre down to the floor. send: takes each datagram.
    budget_s: see `TagDetector`. tag_map: in place of the options'. reason: why there is no position
    at all, as map or lens cannot be read; then each datagram is a sign of life that says so.
    """

    name = "tags"

    def __init__(
        self,
        options: CameraRow,
        *,
        stand_m: float,
        send: Callable[[bytes], object],
        period_s: float = 0.1,
        budget_s: float | None = None,
        tag_map: TagMap | None = None,
    ) -> None:
        self.period_s = period_s
        self._stand_m, self._send = stand_m, send
        self._boot_id, self._sequence = secrets.token_hex(8), 0
        mount = Mounted(options.position_m, options.roll_deg, options.pitch_deg, options.yaw_deg)
        self.reason = ""
        if tag_map is None and not options.tags:
            self.reason = "no map of tags"
            return
        try:
            tags = tag_map or tag_maps.load(room_file(options.tags))
            self._lens = lens_of(options)
        except ConfigError as error:
            self.reason = f"no position: {error}"
            return
        self._detector = TagDetector(tags.families, budget_s=budget_s)
        self._solver = PoseSolver(tags, self._lens, mount)

    def take(self, frame: Frame, /) -> dict[str, Any] | None:
        """Tell the flight process, and return what a page draws over the picture.

        Raises ConfigError for a frame of another size than the lens is for.
        """
        pose, found = self.look(frame)
        self._send(msgspec.msgpack.encode(pose))
        if self.reason:
            return None
        return {
            "shapes": [
                {"label": f"tag {one.id}", "points": one.corners_px.round(1).tolist()}
                for one in found
            ],
            "position_ned_m": pose.position_ned_m,
            "accuracy_m": pose.accuracy_m,
            "reason": pose.reason,
        }

    def look(self, frame: Frame) -> tuple[CameraPose, tuple[Detection, ...]]:
        """Return the pose in this frame, or why there is none, and the tags in it."""
        self._sequence += 1
        made = CameraPose(
            boot_id=self._boot_id, sequence=self._sequence, exposed_s=frame.t_s, reason=self.reason
        )
        if self.reason:
            return made, ()
        height, width = frame.pixels.shape[:2]
        if (width, height) != (self._lens.width, self._lens.height):
            raise ConfigError(
                f"a frame of {width} x {height} pixels, and the lens is for "
                f"{self._lens.width} x {self._lens.height}"
            )
        found = self._detector.detect(frame.pixels)
        pose = self._solver.solve(found)
        made = msgspec.structs.replace(made, tags=len(found))
        if not isinstance(pose, Pose):
            dark = not found and float(frame.pixels[::16, ::16].mean()) < _DARK
            reason = "too dark, or the lens is covered" if dark else pose.reason
            return msgspec.structs.replace(made, reason=reason), found
        north_m, east_m, down_m = pose.position_ned_m
        sigma, bias = pose.covariance, pose.bias
        made = msgspec.structs.replace(
            made,
            # The map's floor is at 0, the ship's NED where the hull's centre is on the pad.
            position_ned_m=(north_m, east_m, down_m + self._stand_m),
            yaw_rad=pose.yaw_rad,
            accuracy_m=hypot(sigma[0, 0] ** 0.5, sigma[1, 1] ** 0.5) / 2.0**0.5,
            bias_m=(0.5 * max(0.0, float(bias[0, 0] + bias[1, 1]))) ** 0.5,
            yaw_accuracy_rad=float(sigma[3, 3]) ** 0.5,
            tags=len(pose.tags),
        )
        return made, found
