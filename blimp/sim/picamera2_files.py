"""Encoders, outputs and image files of the simulated `picamera2`. Needs Pillow."""

import contextlib
import io
import socket
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blimp.distribution import needing

with needing("camera", "the simulated picamera2 needs"):
    from PIL import Image

Array = NDArray[Any]
_DATAGRAM = 65507
_ORDERS = {
    "BGR888": (0, 1, 2), "RGB888": (2, 1, 0), "XBGR8888": (0, 1, 2), "XRGB8888": (2, 1, 0),
}  # fmt: skip


class Quality(Enum):
    VERY_LOW = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3
    VERY_HIGH = 4


_JPEG_QUALITY = {
    Quality.VERY_LOW: 25, Quality.LOW: 35, Quality.MEDIUM: 50, Quality.HIGH: 65,
    Quality.VERY_HIGH: 80,
}  # fmt: skip


def resized(pixels: Array, size: tuple[int, int]) -> Array:
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))


def packed(pixels: Array, format: str) -> Array:
    """Return RGB pixels (height, width, 3) as a stream of this format has them."""
    if format == "YUV420":
        y, u, v = np.moveaxis(np.asarray(Image.fromarray(pixels).convert("YCbCr")), -1, 0)
        width = y.shape[1]
        halves = [plane[::2, ::2].reshape(-1, width) for plane in (u, v)]
        return np.concatenate((y, *halves))
    out = np.full((*pixels.shape[:2], 4 if format.startswith("X") else 3), 255, np.uint8)
    for at, colour in enumerate(_ORDERS[format]):
        out[..., at] = pixels[..., colour]
    return out


def image_of(array: Array, format: str, *, yuv: bool = False) -> Any:
    """Return a picture of a stream's array; of YUV420 only where `yuv`, as the real one does."""
    if format == "YUV420":
        if not yuv:
            raise RuntimeError(f"Stream format {format} not supported for PIL images")
        height, width = array.shape[0] * 2 // 3, array.shape[1]
        u, v = array[height:].reshape(2, height // 2, width // 2)
        planes = [array[:height], *(np.kron(one, np.ones((2, 2), np.uint8)) for one in (u, v))]
        return Image.fromarray(np.stack(planes, -1), "YCbCr")
    return Image.fromarray(np.ascontiguousarray(array[..., list(_ORDERS[format])]))


def exif(model: str, metadata: dict[str, Any], given: Any) -> Any:
    """Return what picamera2 writes of a picture, with what the caller gives as piexif has it."""
    about = Image.Exif()
    now = datetime.now().strftime("%Y:%m:%d %H:%M:%S")
    about.update({271: "Raspberry Pi", 272: model, 305: "Picamera2", 306: now})
    details = about.get_ifd(0x8769)
    details[36867] = now
    details[33434] = (metadata["ExposureTime"], 1_000_000)
    details[34855] = int(100 * metadata["AnalogueGain"] * metadata["DigitalGain"])
    parts = {"0th": about, "Exif": details, "GPS": about.get_ifd(0x8825)}
    for part, tags in (given or {}).items():
        if part in parts and tags:
            parts[part].update(tags)
    return about


def save(image: Any, output: Any, format: str | None, *, quality: int, exif: Any) -> None:
    """Write a picture to a file or a buffer, in the format named or that its suffix says."""
    if format is None:
        if not isinstance(output, str | Path):
            raise RuntimeError("Cannot determine format to save")
        format = str(output).rsplit(".", maxsplit=1)[-1]
    name = {"jpg": "JPEG"}.get(format.lower(), format.upper())
    if name == "JPEG":
        image.save(output, name, quality=quality, exif=exif)
    else:
        image.convert("RGB").save(output, name)


class _Output:
    def __init__(self, pts: Any = None) -> None:
        self.recording = False
        self._is_our_pts = isinstance(pts, str)
        self.ptsoutput = Path(pts).open("w") if isinstance(pts, str) else pts  # noqa: SIM115

    def start(self) -> None:
        self.recording = True

    def stop(self) -> None:
        self.recording = False
        if self._is_our_pts:
            self.ptsoutput.close()

    def outputframe(
        self, frame: bytes, keyframe: bool = True, timestamp: int | None = None, **_: Any
    ) -> None:
        pass

    def outputtimestamp(self, timestamp: int | None) -> None:
        if self.ptsoutput is not None and timestamp is not None:
            print(f"{timestamp // 1000}.{timestamp % 1000:03}", file=self.ptsoutput, flush=True)


class FileOutput(_Output):
    """Writes frames to a file, a buffer or a socket's file."""

    def __init__(self, file: Any = None, pts: Any = None, split: int | None = None) -> None:
        super().__init__(pts=pts)
        self._split = split
        self.fileoutput = file

    @property
    def fileoutput(self) -> Any:
        return self._file

    @fileoutput.setter
    def fileoutput(self, file: Any) -> None:
        self._is_ours = isinstance(file, str | Path)
        if not (self._is_ours or file is None or isinstance(file, io.BufferedIOBase)):
            raise RuntimeError("Must pass io.BufferedIOBase")
        self._file = Path(file).open("wb") if self._is_ours else file  # noqa: SIM115
        raw = getattr(file, "raw", None)
        is_datagram = (
            isinstance(raw, socket.SocketIO)
            and getattr(raw, "_sock").type == socket.SocketKind.SOCK_DGRAM  # noqa: B009
        )
        self._piece = (self._split or _DATAGRAM) if is_datagram else 0

    def outputframe(
        self, frame: bytes, keyframe: bool = True, timestamp: int | None = None, **_: Any  # noqa: ARG002
    ) -> None:  # fmt: skip
        if self._file is None or not self.recording:
            return
        with contextlib.suppress(ConnectionError, ValueError):  # who read it has gone
            for start in range(0, len(frame), self._piece or len(frame) or 1):
                self._file.write(frame[start : start + (self._piece or len(frame))])
                self._file.flush()
            self.outputtimestamp(timestamp)

    def stop(self) -> None:
        super().stop()
        self.close()

    def close(self) -> None:
        if self._is_ours:
            self._file.close()


class _Encoder:
    """Sends the stream's bytes as they are."""

    def __init__(self, framerate: float = 30) -> None:
        self.framerate = framerate
        self.name = "main"
        self.running = False
        self._outputs: list[Any] = []

    @property
    def output(self) -> Any:
        return self._outputs[0] if len(self._outputs) == 1 else self._outputs

    @output.setter
    def output(self, value: Any) -> None:
        outputs = value if isinstance(value, list) else [value]
        if not all(isinstance(one, _Output) for one in outputs):
            raise RuntimeError("Must pass Output")
        self._outputs = outputs

    def start(self, quality: Any = None) -> None:
        if self.running:
            raise RuntimeError("Encoder already running")
        self._setup(quality)
        self.running = True
        for output in self._outputs:
            output.start()

    def stop(self) -> None:
        if not self.running:
            raise RuntimeError("Encoder already stopped")
        self.running = False
        for output in self._outputs:
            output.stop()

    def encode(self, stream: str, request: Any) -> None:
        if not self.running:
            return
        frame = self._encoded(stream, request)
        first_us = request.get_metadata()["SensorTimestamp"] // 1000
        self._first_us = getattr(self, "_first_us", first_us)
        for output in self._outputs:
            output.outputframe(frame, keyframe=True, timestamp=first_us - self._first_us)

    def _setup(self, quality: Any) -> None:
        pass

    def _encoded(self, stream: str, request: Any) -> bytes:
        data: bytes = request.make_buffer(stream).tobytes()
        return data


class JpegEncoder(_Encoder):
    def __init__(
        self, num_threads: int = 4, q: int | None = None, colour_space: Any = None,  # noqa: ARG002
        colour_subsampling: str = "420",  # noqa: ARG002
    ) -> None:  # fmt: skip
        super().__init__()
        self.q = q

    def _setup(self, quality: Any) -> None:
        if quality is not None or self.q is None:
            self.q = _JPEG_QUALITY[quality or Quality.MEDIUM]

    def _encoded(self, stream: str, request: Any) -> bytes:
        out = io.BytesIO()
        image = image_of(request.buffer(stream), request.config[stream]["format"], yuv=True)
        image.save(out, "JPEG", quality=self.q)
        return out.getvalue()


class MJPEGEncoder(JpegEncoder):
    def __init__(self, bitrate: int | None = None) -> None:
        super().__init__()
        self.bitrate = bitrate


class H264Encoder(_Encoder):
    def __init__(self, bitrate: int | None = None, **_: Any) -> None:
        super().__init__()
        self.bitrate = bitrate

    def _setup(self, quality: Any) -> None:  # noqa: ARG002
        raise RuntimeError("the simulated Pi has no H.264 encoder: use MJPEGEncoder")
