"""A worker's clock that is stepped by an hour under what it has in flight.

The machine's own clock is another's to set. What is stepped is the app's Clock and time.time,
which is all that the queue reads; monotonic time is not stepped by any system either.
"""

import threading
import time
from functools import partial

import pytest

from blimp.clock import SystemClock
from blimp.queue import State, TaskApp, TaskContext
from tests.faults.ground import Ground
from tests.queue.conftest import DEADLINE_S, Silence, working

HOUR_S = 3600.0


class SteppedClock(SystemClock):
    """The wall clock is off by `step_s`."""

    def __init__(self) -> None:
        self.step_s = 0.0
        self._wall_s = time.time

    def wall_s(self) -> float:
        return self._wall_s() + self.step_s


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
def test_nothing_is_early_late_expired_or_run_twice(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    clock = SteppedClock()
    monkeypatch.setattr(time, "time", clock.wall_s)
    began: dict[str, list[float]] = {}
    busy, go = threading.Event(), threading.Event()
    app = TaskApp("tests", broker=ground.url, result_backend=ground.url, clock=clock)

    def note(context: TaskContext) -> None:
        began.setdefault(context.id, []).append(time.monotonic())

    @app.task(name="long", bind=True)
    def long(context: TaskContext) -> None:
        note(context)
        busy.set()
        go.wait(DEADLINE_S)

    @app.task(name="short", bind=True)
    def short(context: TaskContext) -> None:
        note(context)

    @app.task(name="again", bind=True)
    def again(context: TaskContext) -> None:
        note(context)
        if context.message.retries == 0:
            context.retry(countdown=0.3)

    log = Silence()
    with app, working(app, sync_workers=1, log=log) as worker:
        handles = [app.send_task("long", task_id="long")]
        assert busy.wait(DEADLINE_S)
        send = partial(app.send_task, "short")
        handles += [
            send(task_id="ttl", ttl_s=600.0),
            send(task_id="expires", expires=600.0),
        ]
        sent_s = {"eta": time.monotonic()}
        handles.append(send(task_id="eta", countdown=0.5))
        clock.step_s = step_s
        handles.append(send(task_id="ttl-after", ttl_s=600.0))
        sent_s["eta-after"] = time.monotonic()
        handles += [
            send(task_id="eta-after", countdown=0.5),
            app.send_task("again", task_id="again"),
        ]
        go.set()
        records = [handle.wait(DEADLINE_S) for handle in handles]
        assert {record.state for record in records} == {State.SUCCESS}
        assert worker.counts["leases_lost"] == 0
    # The step is an hour: what comes of it is late by far more than what a loaded machine adds.
    for id in ("eta", "eta-after"):
        assert 0.3 < began[id][0] - sent_s[id] < DEADLINE_S
    first_s, second_s = began.pop("again")
    assert 0.15 < second_s - first_s < DEADLINE_S
    assert all(len(runs) == 1 for runs in began.values())
