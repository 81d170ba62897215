"""Taking a photograph: a still as JPEG with what the ship knew, its preview, and the store.

The camera's process does it when the worker asks on its control socket. Source: Exif 2.32, CIPA
DC-008 (tags and forms).
"""

import io
import threading
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from PIL import Image, TiffImagePlugin

from blimp.camera.store import PhotoStore, record_of
from blimp.errors import PhotoError
from blimp.photo import MAX_ABOUT, MAX_PHOTO_BYTES, Photo, PhotoRequest, name_of

if TYPE_CHECKING:
    from blimp.camera.frame import Frame


class StillSource(Protocol):
    """What takes a still: a Source, or what owns one."""

    def still(self) -> "Frame":
        """Take one picture at full resolution. Raises CameraError."""
        ...


QUALITY, PREVIEW_QUALITY = 90, 70  # of JPEG; chosen: 4 to 8 MB of 12 megapixels, 10 kB of a preview
PREVIEW_SIZE = (320, 320)  # at most
_DATE, _SOFTWARE, _MAKE, _MODEL, _EXIF, _GPS = 0x0132, 0x0131, 0x010F, 0x0110, 0x8769, 0x8825
_EXPOSURE, _TAKEN, _TAKEN_ZONE, _TAKEN_PART, _COMMENT, _UNIQUE = (
    0x829A, 0x9003, 0x9011, 0x9291, 0x9286, 0xA420,
)  # fmt: skip


class Photographer:
    """Takes one photograph a command. Thread-safe: one at a time."""

    def __init__(self, *, source: StillSource, store: PhotoStore) -> None:
        self._source = source
        self._store = store
        self._lock = threading.Lock()

    def answer(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer `photo` of the control socket: a request's fields, a record's."""
        try:
            request = msgspec.convert(arguments, PhotoRequest)
        except msgspec.ValidationError as error:
            raise PhotoError(f"photo: {error}") from None
        found: dict[str, Any] = msgspec.to_builtins(self.take(request))
        return found

    def take(self, request: PhotoRequest) -> Photo:
        """Return the photograph of a command: the first one, if it was asked for before.

        Raises CameraError, PhotoError.
        """
        with self._lock:
            if (known := self._store.find(request.id)) is not None:
                return known
            frame = self._source.still()
            taken_s = request.unix_s + frame.t_s - request.asked_s
            image = Image.fromarray(frame.pixels)
            jpeg = _jpeg(image, QUALITY, exif=_exif(frame, request, taken_s))
            image.thumbnail(PREVIEW_SIZE)
            preview = _jpeg(image, PREVIEW_QUALITY)
            record = record_of(
                id=request.id, taken_s=taken_s, jpeg=jpeg, preview=preview,
                size=(frame.pixels.shape[1], frame.pixels.shape[0]),
            )  # fmt: skip
            found = msgspec.structs.replace(
                record, place=request.place, position_ned_m=request.position_ned_m,
                attitude_rad=request.attitude_rad,
            )  # fmt: skip
            return self._store.add(found, jpeg=jpeg, preview=preview)


def _jpeg(image: Image.Image, quality: int, **more: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality, **more)
    found = data.getvalue()
    if len(found) > MAX_PHOTO_BYTES:
        return _jpeg(image, quality - 20, **more)
    return found


def _exif(frame: "Frame", request: PhotoRequest, taken_s: float) -> Image.Exif:
    """Return the tags; what has no tag of its own is JSON in UserComment."""
    whole = name_of("", taken_s)
    date = f"{whole[:4]}:{whole[4:6]}:{whole[6:8]} {whole[9:11]}:{whole[11:13]}:{whole[13:15]}"
    comment = {
        "ship": request.ship[:MAX_ABOUT], "command": request.id[:MAX_ABOUT],
        "source": request.source[:MAX_ABOUT], "position_ned_m": request.position_ned_m,
        "attitude_rad": request.attitude_rad, "exposure_s": frame.exposure_s, "gain": frame.gain,
    }  # fmt: skip
    exif = Image.Exif()
    exif[_MAKE], exif[_MODEL] = "blimp", request.ship.encode("ascii", "replace").decode()[:200]
    exif[_SOFTWARE], exif[_DATE] = "blimp camera", date
    inner = exif.get_ifd(_EXIF)
    inner[_TAKEN], inner[_TAKEN_ZONE] = date, "+00:00"
    inner[_TAKEN_PART] = f"{int(1000 * (taken_s % 1.0)):03d}"
    inner[_UNIQUE] = whole[:16]
    inner[_COMMENT] = b"ASCII\0\0\0" + msgspec.json.encode(comment)
    if frame.exposure_s > 0.0:
        inner[_EXPOSURE] = TiffImagePlugin.IFDRational(round(1e6 * frame.exposure_s), 1_000_000)
    if request.place is not None:
        latitude, longitude, altitude = request.place
        gps = exif.get_ifd(_GPS)
        gps[0] = b"\x02\x03\x00\x00"
        gps[1], gps[2] = "N" if latitude >= 0.0 else "S", _sexagesimal(latitude)
        gps[3], gps[4] = "E" if longitude >= 0.0 else "W", _sexagesimal(longitude)
        gps[5] = b"\x00" if altitude >= 0.0 else b"\x01"
        gps[6] = TiffImagePlugin.IFDRational(round(1000 * abs(altitude)), 1000)
    return exif


def _sexagesimal(degrees: float) -> tuple[TiffImagePlugin.IFDRational, ...]:
    """Return degrees, minutes and seconds as Exif has them."""
    whole = round(abs(degrees) * 3600e4)
    parts = (whole // 36_000_000, whole // 600_000 % 60)
    seconds = TiffImagePlugin.IFDRational(whole % 600_000, 10_000)
    return (*(TiffImagePlugin.IFDRational(part, 1) for part in parts), seconds)
