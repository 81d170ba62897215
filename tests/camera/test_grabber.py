import itertools
import queue
import threading
from collections.abc import Iterator

import pytest

from blimp.camera.frame import Frame, Source
from blimp.camera.grabber import Grabber
from blimp.clock import ManualClock
from blimp.errors import CameraError
from tests.camera.frames import Camera, frame

WAIT_S = 30.0


class Bench:
    """A grabber with cameras that are opened one after the other; the last one is missing."""

    def __init__(self, *cameras: list[Frame | None]) -> None:
        self.clock = ManualClock()
        self.cameras = [Camera(frames, self.clock) for frames in cameras]
        self.frames: queue.Queue[Frame] = queue.Queue()
        self.said: queue.Queue[str] = queue.Queue()
        self._next = iter(self.cameras)
        self.grabber = Grabber(
            self._open, take=self.frames.put, clock=self.clock, say=self.said.put
        )

    def _open(self) -> Source:
        camera = next(self._next, None)
        if camera is None:
            raise CameraError("no camera 0")
        return camera

    def hear(self, *words: str) -> None:
        assert [self.said.get(timeout=WAIT_S) for _ in words] == list(words)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blimp.camera.grabber.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("blimp.camera.grabber.MAX_PAUSE_S", 0.001)


def test_a_camera_that_is_unplugged_and_comes_back() -> None:
    bench = Bench([frame(1), frame(2)], [frame(3)])
    with bench.grabber:
        bench.hear("frames of 64 x 48 pixels", "unplugged", "frames of 64 x 48 pixels")
        bench.hear("unplugged", "no camera 0")
        assert [bench.frames.get(timeout=WAIT_S).sequence for _ in range(3)] == [1, 2, 3]
        assert bench.grabber.problem == "no camera 0"
        assert bench.grabber.opened == 2
    assert all(camera.closed.is_set() for camera in bench.cameras)
    assert bench.said.empty(), "a problem that lasts is said once"


def test_a_frozen_camera_is_opened_again() -> None:
    bench = Bench([frame(1), *[None] * 20], [frame(2)])
    with bench.grabber:
        bench.hear("frames of 64 x 48 pixels")
        assert "no frame for 2 s" in bench.said.get(timeout=WAIT_S)
        bench.hear("frames of 64 x 48 pixels")


def test_the_first_frame_may_take_longer() -> None:
    bench = Bench([*[None] * 40, frame(1)], [None] * 60)  # 8 s, and 12 s
    with bench.grabber:
        bench.hear("frames of 64 x 48 pixels", "unplugged")
        assert "no frame for 10 s" in bench.said.get(timeout=WAIT_S)


def test_a_process_that_was_stopped_opens_no_camera_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench([])
    monkeypatch.setattr(Camera, "next_frame", lambda camera, _: next(camera._frames))
    stopped = Camera((), bench.clock)

    def frames() -> Iterator[Frame | None]:
        yield frame(1)
        bench.clock.advance(60.0)
        yield None
        yield frame(2)

    stopped._frames = frames()
    bench.grabber.close()
    opened = iter([stopped])

    def open_source() -> Source:
        camera = next(opened, None)
        if camera is None:
            raise CameraError("no camera 0")
        return camera

    with Grabber(
        open_source, take=bench.frames.put, clock=bench.clock, say=bench.said.put
    ) as grabber:
        assert [bench.frames.get(timeout=WAIT_S).sequence for _ in range(2)] == [1, 2]
        assert grabber.opened == 1


def test_another_size_than_asked_for_is_no_frame() -> None:
    bench = Bench([frame(1, size=(32, 24))])
    with bench.grabber:
        assert "32 x 24 pixels, asked for (64, 48)" in bench.said.get(timeout=WAIT_S)
    assert bench.frames.empty()


def test_missed_frames_and_the_rate() -> None:
    numbers = [*range(1, 60), 63]
    bench = Bench([frame(number) for number in numbers])
    with bench.grabber:
        bench.hear("frames of 64 x 48 pixels", "unplugged")
        assert (bench.grabber.missed, bench.grabber.frames) == (3, 60)


def test_a_photograph_needs_an_open_camera() -> None:
    gate, clock = threading.Event(), ManualClock()

    def endless(camera: Camera) -> Camera:
        camera._frames = (frame(n) for n in itertools.count(1))
        return camera

    def open_source() -> Source:
        gate.wait(WAIT_S)
        return endless(Camera([], clock))

    got = threading.Event()
    with Grabber(open_source, take=lambda _: got.set(), clock=clock, say=lambda _: None) as grabber:
        with pytest.raises(CameraError, match="no photograph: starting"):
            grabber.still()
        gate.set()
        assert got.wait(WAIT_S)
        assert grabber.still().pixels.shape == (96, 128, 3)
