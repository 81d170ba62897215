"""What is done with the frames: steps, each in a thread of its own, that never delay the camera.

A step gets the newest frame when it is free and its period has passed; frames that came meanwhile
are passed over. A step that raises is counted and said, and goes on with the next frame. One that
does not return is said, and what it saw before is dropped.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from blimp.camera.frame import Frame
from blimp.clock import Clock
from blimp.closing import Closing
from blimp.link.camera_control import StepStatus

Say = Callable[[str], object]
HUNG_S = 5.0  # ten times what a detector's answer may take, on the slowest board


class Step(Protocol):
    """One use of the frames.

    name: in the status. period_s: from one frame that it takes to the next, at least.
    """

    name: str
    period_s: float

    def take(self, frame: Frame, /) -> Any:
        """Use a frame; return what is shown with the picture as JSON has it, None for nothing."""


class StepResult(NamedTuple):
    """What a step made of a frame."""

    sequence: int
    t_s: float
    content: Any


class Pipeline(Closing):
    """Runs the steps on the frames that `offer` is given.

    seen: by a step's name, what it made of its last frame.
    """

    def __init__(self, steps: Sequence[Step], *, clock: Clock, say: Say) -> None:
        self._clock, self._say = clock, say
        self._newest: Frame | None = None
        self._changed = threading.Condition()
        self._ended = False
        self.seen: dict[str, StepResult] = {}
        self.steps: dict[str, StepStatus] = {step.name: StepStatus() for step in steps}
        self._busy: dict[str, float] = {}  # steps that have a frame, and since when
        self._threads = [
            threading.Thread(target=self._run, args=(step,), name=step.name, daemon=True)
            for step in steps
        ]
        for thread in self._threads:
            thread.start()

    def offer(self, frame: Frame) -> None:
        """Make it the newest frame. Never waits for a step."""
        with self._changed:
            self._newest = frame
            self._changed.notify_all()
            now_s = self._clock.now_s()
            hung = {name: now_s - s for name, s in self._busy.items() if now_s - s >= HUNG_S}
            for name, waited_s in hung.items():
                self._note(name, f"has not returned for {waited_s:.0f} s", "has not returned")
                self.seen.pop(name, None)

    def newer(self, than: int, *, timeout_s: float) -> Frame | None:
        """Return the newest frame if it is another one than `than`; None if none comes in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._has(than), timeout=timeout_s)
            return self._newest if self._has(than) else None

    def _has(self, than: int) -> bool:
        return self._newest is not None and self._newest.sequence != than

    def _run(self, step: Step) -> None:
        last, due_s = -1, self._clock.now_s()
        while not self._ended:
            wait_s = due_s - self._clock.now_s()
            if wait_s > 0.0:
                with self._changed:
                    self._changed.wait_for(lambda: self._ended, timeout=wait_s)
                continue
            frame = self.newer(last, timeout_s=1.0)
            if frame is None:
                continue
            last, began_s = frame.sequence, self._clock.now_s()
            due_s = began_s + step.period_s
            self._take(step, frame, began_s)

    def _take(self, step: Step, frame: Frame, began_s: float) -> None:
        content, problem = None, ""
        with self._changed:
            self._busy[step.name] = began_s
        try:
            content = step.take(frame)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        with self._changed:
            del self._busy[step.name]
            if content is not None:
                self.seen[step.name] = StepResult(frame.sequence, frame.t_s, content)
            self._note(step.name, problem, problem)
            done = self.steps[step.name]
            self.steps[step.name] = msgspec.structs.replace(
                done,
                frames=done.frames + 1,
                took_s=self._clock.now_s() - began_s,
                failures=done.failures + bool(problem),
            )

    def _note(self, name: str, problem: str, same: str) -> None:
        """Note a step's problem; say it once, as long as it begins with `same`."""
        before = self.steps[name]
        if problem and not (before.problem and before.problem.startswith(same)):
            self._say(f"{name}: {problem}")
        self.steps[name] = msgspec.structs.replace(before, problem=problem)

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=2.0)
