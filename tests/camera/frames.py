"""Frames and cameras for tests."""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from blimp import airframe as airframes
from blimp.airframe import Airframe, Device
from blimp.camera.detect import Detection
from blimp.camera.frame import Frame
from blimp.camera.lens import Lens
from blimp.camera.pose import Mounted
from blimp.camera.tag_map import TagMap, corners_ned_m
from blimp.chips import CHIPS, Chip
from blimp.clock import ManualClock
from blimp.errors import CameraError
from blimp.rotation import from_euler, rotate

SIZE = (64, 48)
MOUNTED = Mounted()
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


def corners(
    tags: TagMap, lens: Lens, place: Any, angles: Any, random: np.random.Generator, *,
    mount: Mounted = MOUNTED, noise_px: float = 0.1,
) -> list[Detection]:  # fmt: skip
    """Return what an ideal detector finds from a hull's place and angles, corner by corner."""
    body = np.array([rotate(from_euler(*angles), axis) for axis in np.eye(3)]).T  # type: ignore[arg-type]
    turn, eye = body @ mount.rotation, np.array(place) + body @ np.array(mount.position_m)
    found = []
    for tag in tags.tags:
        seen = lens.project((np.array(corners_ned_m(tag)) - eye) @ turn)
        if (seen > 0.0).all() and (seen < (lens.width - 1, lens.height - 1)).all():
            seen = seen + random.normal(0.0, noise_px, (4, 2))
            found.append(Detection(family=tag.family, id=tag.id, corners_px=seen))
    return found


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
