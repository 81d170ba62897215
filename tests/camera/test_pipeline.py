import threading
from typing import Any

from blimp.camera.frame import Frame
from blimp.camera.pipeline import Pipeline
from blimp.clock import ManualClock, SystemClock
from tests.camera.frames import frame

WAIT_S = 30.0


class Held:
    """A step that takes as long as a test wants."""

    name, period_s = "held", 0.0

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.began, self.go_on = threading.Event(), threading.Event()

    def take(self, frame: Frame) -> Any:
        self.taken.append(frame.sequence)
        self.began.set()
        assert self.go_on.wait(WAIT_S)
        return {"last": frame.sequence}


class Bad:
    name, period_s = "bad", 0.0

    def __init__(self) -> None:
        self.done = threading.Semaphore(0)

    def take(self, frame: Frame) -> Any:
        self.done.release()
        raise ValueError("no picture of mine")


def test_a_slow_step_passes_over_frames_and_delays_nothing() -> None:
    slow = Held()
    with Pipeline([slow], clock=SystemClock(), say=print) as pipeline:
        pipeline.offer(frame(1))
        assert slow.began.wait(WAIT_S)
        slow.began.clear()
        for number in range(2, 50):  # returns at once, though the step holds the first one
            pipeline.offer(frame(number))
        slow.go_on.set()
        assert slow.began.wait(WAIT_S)
    assert slow.taken == [1, 49]
    assert pipeline.seen["held"].content == {"last": 49}


def test_a_step_that_raises_is_said_once_and_goes_on() -> None:
    said: list[str] = []
    bad = Bad()
    with Pipeline([bad], clock=SystemClock(), say=said.append) as pipeline:
        for number in range(1, 4):
            pipeline.offer(frame(number))
            assert bad.done.acquire(timeout=WAIT_S)
    assert said == ["bad: ValueError: no picture of mine"]
    assert pipeline.steps["bad"].failures == 3


def test_a_step_that_does_not_return_is_said_once_until_it_does() -> None:
    said: list[str] = []
    held, clock = Held(), ManualClock()
    with Pipeline([held], clock=clock, say=said.append) as pipeline:
        pipeline.offer(frame(1))
        assert held.began.wait(WAIT_S)
        held.began.clear()
        for number in range(2, 9):
            clock.advance(1.0)
            pipeline.offer(frame(number))
        assert said == ["held: has not returned for 5 s"]
        assert pipeline.steps["held"].problem == "has not returned for 7 s"
        assert "held" not in pipeline.seen
        held.go_on.set()
        assert held.began.wait(WAIT_S)
        assert pipeline.steps["held"].problem == ""


def test_a_newer_frame_than_one() -> None:
    with Pipeline([], clock=SystemClock(), say=print) as pipeline:
        assert pipeline.newer(-1, timeout_s=0.0) is None
        pipeline.offer(frame(7))
        found = pipeline.newer(-1, timeout_s=0.0)
        assert found is not None
        assert found.sequence == 7
        assert pipeline.newer(7, timeout_s=0.0) is None
