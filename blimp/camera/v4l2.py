"""A camera of this computer, /dev/video*, by the kernel's interface (V4L2, streaming by mmap).

For a person who tries it on a laptop. Layouts: linux/videodev2.h, of a 64-bit kernel.
"""

import fcntl
import mmap
import os
import select
import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

from blimp.camera.frame import Frame, Pixels
from blimp.errors import CameraError

CAPTURE, MMAP = 1, 1  # V4L2_BUF_TYPE_VIDEO_CAPTURE, V4L2_MEMORY_MMAP
CAN_STREAM = 0x04000001  # V4L2_CAP_STREAMING | V4L2_CAP_VIDEO_CAPTURE
YUYV, MJPG = (int.from_bytes(name, "little") for name in (b"YUYV", b"MJPG"))
BUFFERS = 3  # one is filled, one is ready, one is read
_CAPABILITY = struct.Struct("16s32s32sIII12x")
_FORMAT = struct.Struct("I4xIIIIIII172x")  # type; width, height, format, field, line, size, colours
_PARAMETERS = struct.Struct("IIIII184x")  # type; capability, mode, a frame's seconds as a fraction
_REQUEST = struct.Struct("IIII4x")
_BUFFER = struct.Struct("IIIII4xqq16xIIQI12x")
_TYPE = struct.Struct("i")


def _code(direction: int, number: int, layout: struct.Struct) -> int:
    return direction << 30 | layout.size << 16 | ord("V") << 8 | number  # _IOC of asm-generic


QUERYCAP = _code(2, 0, _CAPABILITY)
SET_FORMAT, SET_PARAMETERS = _code(3, 5, _FORMAT), _code(3, 22, _PARAMETERS)
REQUEST, QUERY_BUFFER = _code(3, 8, _REQUEST), _code(3, 9, _BUFFER)
QUEUE, DEQUEUE = _code(3, 15, _BUFFER), _code(3, 17, _BUFFER)
STREAM_ON, STREAM_OFF = _code(1, 18, _TYPE), _code(1, 19, _TYPE)

Ioctl = Callable[[int, int, bytearray], Any]


class V4l2Source:
    """The camera at `path`, opened and streaming. ioctl: the kernel's, but in tests."""

    def __init__(
        self,
        path: str,
        *,
        size: tuple[int, int],
        rate_hz: float,
        ioctl: Ioctl = fcntl.ioctl,
        memory: Callable[..., Any] = mmap.mmap,
    ) -> None:
        self.size = size
        self._path, self._ioctl, self._maps = path, ioctl, list[Any]()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise CameraError(f"camera {path}: {error.strerror}") from error
        try:
            if self._ask(QUERYCAP, _CAPABILITY)[5] & CAN_STREAM != CAN_STREAM:
                raise CameraError(f"camera {path}: it streams no video: try another /dev/video*")
            found = self._ask(SET_FORMAT, _FORMAT, CAPTURE, *size, YUYV, 1, 0, 0, 0)
            self._format = found[3]
            if found[1:3] != size or self._format not in (YUYV, MJPG):
                name = self._format.to_bytes(4, "little").decode("ascii", "replace")
                raise CameraError(f"camera {path}: it offers {found[1]} x {found[2]} {name}")
            self._line = found[5]
            self._ask(SET_PARAMETERS, _PARAMETERS, CAPTURE, 0, 0, 1, max(1, round(rate_hz)))
            for index in range(self._ask(REQUEST, _REQUEST, BUFFERS, CAPTURE, MMAP, 0)[0]):
                buffer = self._ask(QUERY_BUFFER, _BUFFER, *self._of(index))
                self._maps.append(memory(self._file, buffer[10], offset=buffer[9]))
                self._ask(QUEUE, _BUFFER, *self._of(index))
            self._ask(STREAM_ON, _TYPE, CAPTURE)
        except BaseException:
            self.close()
            raise

    def next_frame(self, timeout_s: float) -> Frame | None:
        """Return the newest frame that is ready; older ones go back to the driver unread."""
        if not select.select([self._file], [], [], timeout_s)[0]:
            return None
        buffer = self._dequeue()
        while select.select([self._file], [], [], 0.0)[0]:
            self._ask(QUEUE, _BUFFER, *self._of(buffer[0]))
            buffer = self._dequeue()
        data = self._maps[buffer[0]][: buffer[2]]
        self._ask(QUEUE, _BUFFER, *self._of(buffer[0]))
        pixels = self._decode(data)
        at_s = buffer[5] + 1e-6 * buffer[6]  # CLOCK_MONOTONIC of all drivers since Linux 3.9
        return Frame(sequence=buffer[7], t_s=at_s, exposure_s=0.0, gain=1.0, pixels=pixels)

    def still(self) -> Frame:
        frame = self.next_frame(2.0)
        if frame is None:
            raise CameraError(f"camera {self._path}: no frame in 2 s")
        return frame

    def _decode(self, data: bytes) -> Pixels:
        width, height = self.size
        try:
            if self._format == MJPG:
                from PIL import Image

                return np.asarray(Image.open(BytesIO(data)).convert("RGB"))
            rows = np.frombuffer(data, np.uint8)[: self._line * height]
            return rgb_of(rows.reshape(height, self._line)[:, : 2 * width])
        except (OSError, ValueError) as error:
            raise CameraError(f"camera {self._path}: a broken frame: {error}") from error

    def _dequeue(self) -> tuple[Any, ...]:
        return self._ask(DEQUEUE, _BUFFER, *self._of(0))

    @staticmethod
    def _of(index: int) -> tuple[int, ...]:
        return (index, CAPTURE, 0, 0, 0, 0, 0, 0, MMAP, 0, 0)

    def _ask(self, code: int, layout: struct.Struct, *fields: int) -> tuple[Any, ...]:
        data = bytearray(layout.pack(*fields)) if fields else bytearray(layout.size)
        try:
            self._ioctl(self._file, code, data)
        except OSError as error:
            raise CameraError(f"camera {self._path}: {error.strerror}") from error
        return layout.unpack(data)

    def close(self) -> None:
        for one in self._maps:
            one.close()
        self._maps.clear()
        if self._file >= 0:
            os.close(self._file)  # the kernel stops the stream
            self._file = -1


def rgb_of(yuyv: Pixels) -> Pixels:
    """Return the colours of YUV 4:2:2 rows, by ITU-R BT.601 with its limited range."""
    pairs = yuyv.reshape(yuyv.shape[0], -1, 4).astype(np.int32)
    luma = 298 * (pairs[:, :, 0::2] - 16)
    u, v = pairs[:, :, 1:2] - 128, pairs[:, :, 3:4] - 128
    colours = (luma + 409 * v, luma - 100 * u - 208 * v, luma + 516 * u)
    flat = np.stack([(one + 128) >> 8 for one in colours], axis=-1)
    return np.clip(flat, 0, 255).astype(np.uint8).reshape(yuyv.shape[0], -1, 3)
