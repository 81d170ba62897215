"""The kernel's side is a fake at the system call: this machine has no camera, and no v4l2loopback.

Layouts and codes are compared with what a C compiler makes of linux/videodev2.h, x86-64.
"""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blimp.camera import v4l2
from blimp.errors import CameraError

SIZE = (4, 2)


class Kernel:
    """One device with three buffers; `ready` are the frames that wait, by buffer."""

    def __init__(self, *, can: int = v4l2.CAN_STREAM, size: tuple[int, int] = SIZE) -> None:
        self.can, self.size = can, size
        self.queued: list[int] = []
        self.ready: list[int] = []
        self.streams = False
        self.error = 0

    def ioctl(self, _: int, code: int, data: bytearray) -> None:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        if code == v4l2.QUERYCAP:
            data[88:92] = self.can.to_bytes(4, "little")
        elif code == v4l2.SET_FORMAT:
            data[8:16] = b"".join(side.to_bytes(4, "little") for side in self.size)
            data[24:28] = (2 * self.size[0] + 2).to_bytes(4, "little")  # rows are padded
        elif code == v4l2.QUERY_BUFFER:
            data[72:76] = (20).to_bytes(4, "little")
        elif code == v4l2.QUEUE:
            self.queued.append(data[0])
        elif code == v4l2.DEQUEUE:
            number = self.ready.pop(0)
            data[0], data[8], data[24], data[32], data[56] = number, 20, 5, 40, 30 + number
        elif code == v4l2.STREAM_ON:
            self.streams = True

    def opened(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> v4l2.V4l2Source:
        path.touch()
        row = bytes([235, 128, 16, 128, 126, 128, 126, 128, 0, 0])

        def select(files: Any, *_: Any) -> Any:
            return (files if self.ready else []), [], []

        class Memory(bytes):
            def close(self) -> None:
                pass

        monkeypatch.setattr("blimp.camera.v4l2.select.select", select)
        return v4l2.V4l2Source(
            str(path), size=SIZE, rate_hz=15.0, ioctl=self.ioctl,
            memory=lambda *_, **__: Memory(2 * row),
        )  # fmt: skip


def test_layouts_are_those_of_the_header() -> None:
    sizes = [one.size for one in (v4l2._CAPABILITY, v4l2._FORMAT, v4l2._PARAMETERS, v4l2._BUFFER)]
    assert sizes == [104, 208, 204, 88]
    assert (v4l2.QUERYCAP, v4l2.DEQUEUE, v4l2.STREAM_ON) == (0x80685600, 0xC0585611, 0x40045612)


def test_the_newest_frame_is_taken_and_every_buffer_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel()
    source = kernel.opened(tmp_path / "video0", monkeypatch)
    assert (kernel.queued, kernel.streams) == ([0, 1, 2], True)
    assert source.next_frame(0.1) is None
    kernel.ready = [0, 1]
    frame = source.next_frame(0.1)
    assert frame is not None
    assert (frame.sequence, round(frame.t_s, 6)) == (31, 5.00004)
    assert kernel.queued[3:] == [0, 1]
    assert frame.pixels.shape == (2, 4, 3)
    assert frame.pixels[0, :, 0].tolist() == [255, 0, 128, 128]
    source.close()
    source.close()


@pytest.mark.parametrize(
    ("kernel", "words"),
    [(Kernel(can=0), "streams no video"), (Kernel(size=(8, 8)), "offers 8 x 8 YUYV")],
)
def test_a_device_that_is_no_camera_of_ours(
    kernel: Kernel, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CameraError, match=words):
        kernel.opened(tmp_path / "video0", monkeypatch)


def test_a_camera_that_is_in_use_missing_or_unplugged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CameraError, match="No such file"):
        v4l2.V4l2Source("/dev/no-video", size=SIZE, rate_hz=1.0)
    with pytest.raises(CameraError, match=r"null: Inappropriate ioctl"):  # the kernel's own answer
        v4l2.V4l2Source("/dev/null", size=SIZE, rate_hz=1.0)
    kernel = Kernel()
    source = kernel.opened(tmp_path / "video0", monkeypatch)
    kernel.ready, kernel.error = [0], errno.ENODEV
    with pytest.raises(CameraError, match="No such device"):
        source.next_frame(0.1)


def test_grey_has_no_colour() -> None:
    grey = np.full((2, 8), 128, np.uint8)
    assert set(v4l2.rgb_of(grey).reshape(-1).tolist()) == {130}  # (128 - 16) * 255 / 219
