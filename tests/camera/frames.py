"""Frames and cameras for tests."""

import threading
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
import pytest

from blimp import airframe as airframes
from blimp.airframe import Airframe, Device
from blimp.camera.frame import Frame
from blimp.chips import CHIPS, Chip
from blimp.clock import ManualClock
from blimp.errors import CameraError

SIZE = (64, 48)
ROW = Device(name="camera", chip="imx219", bus="camera", required=False)


def with_camera(monkeypatch: pytest.MonkeyPatch) -> Airframe:
    """Return the twin with a camera."""
    monkeypatch.setitem(CHIPS, ROW.chip, Chip(driver="", twin="", role="camera", supply=""))
    twin = airframes.load("twin")
    return msgspec.structs.replace(twin, device=(*twin.device, ROW))


def frame(sequence: int = 1, *, size: tuple[int, int] = SIZE, value: int | None = None) -> Frame:
    """Return a frame of noise, or of one value."""
    shape = (size[1], size[0], 3)
    noise = np.random.default_rng(sequence).integers(0, 256, shape, np.uint8)
    pixels = noise if value is None else np.full(shape, value, np.uint8)
    return Frame(sequence=sequence, t_s=0.1 * sequence, exposure_s=0.01, gain=1.0, pixels=pixels)


class Camera:
    """A camera whose frames are given; None is a wait that took `timeout_s` of the clock."""

    def __init__(self, frames: Iterable[Frame | None], clock: ManualClock) -> None:
        self.size = SIZE
        self._frames: Iterator[Frame | None] = iter(frames)
        self._clock = clock
        self.closed = threading.Event()

    def next_frame(self, timeout_s: float) -> Frame | None:
        try:
            found = next(self._frames)
        except StopIteration:
            raise CameraError("unplugged") from None
        if found is None:
            self._clock.advance(timeout_s)
        return found

    def still(self) -> Frame:
        return frame(9, size=(128, 96))

    def close(self) -> None:
        self.closed.set()
