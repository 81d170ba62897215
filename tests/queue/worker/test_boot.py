"""Boot steps: in order, in reverse, and what becomes of one that does not start."""

import asyncio
import threading
from typing import Any

import pytest

from blimp.errors import ConfigError, StepFailed
from blimp.queue import TaskApp, Worker
from blimp.queue.worker.boot import check_tasks
from tests.queue.conftest import DEADLINE_S, Silence, working


class Step:
    def __init__(self, name: str, said: list[str], *, fails: str = "") -> None:
        self._name = name
        self._said = said
        self._fails = fails

    async def start(self, worker: Worker) -> None:
        await asyncio.sleep(0)
        if self._fails == "start":
            raise OSError("no such chart")
        self._said.append(f"start {self._name} {threading.current_thread().name}")

    async def stop(self, worker: Worker) -> None:
        self._said.append(f"stop {self._name}")
        if self._fails == "stop":
            raise OSError("the chart is torn")


def test_steps_start_in_order_in_the_first_loop_and_stop_in_reverse(app: TaskApp) -> None:
    said: list[str] = []
    for name in ("a", "b"):
        app.boot_step(Step(name, said))

    @app.task(name="look")
    async def look() -> list[str]:
        return [*said, threading.current_thread().name]

    with working(app):
        assert look.delay().get(DEADLINE_S) == ["start a loop-0", "start b loop-0", "loop-0"]
    assert said[2:] == ["stop b", "stop a"]


def test_a_step_that_does_not_start_ends_the_worker_and_stops_the_earlier(app: TaskApp) -> None:
    said: list[str] = []
    app.boot_step(Step("a", said))
    app.boot_step(Step("b", said, fails="start"))
    app.boot_step(Step("c", said))
    worker = Worker(app=app, name="worker", log=Silence())
    with pytest.raises(StepFailed, match="boot step Step did not start: OSError: no such chart"):
        worker.run()
    assert said == ["start a loop-0", "stop a"]
    assert not worker.ready.is_set()


def test_a_step_that_does_not_stop_keeps_no_other(app: TaskApp) -> None:
    said: list[str] = []
    app.boot_step(Step("a", said))
    app.boot_step(Step("b", said, fails="stop"))
    log = Silence()
    with working(app, log=log):
        pass
    assert said[2:] == ["stop b", "stop a"]
    assert log.events("boot step does not stop") == [{"step": "Step"}]


def test_a_stop_ends_a_start_that_takes_too_long(app: TaskApp) -> None:
    said: list[str] = []
    begun = threading.Event()

    class Slow(Step):
        async def start(self, worker: Worker) -> None:
            begun.set()
            await asyncio.sleep(3600)

    app.boot_step(Step("a", said))
    app.boot_step(Slow("b", said))
    worker = Worker(app=app, name="worker", log=Silence())
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert begun.wait(DEADLINE_S)
    worker.stop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert said == ["start a loop-0", "stop a"]


def test_a_stop_that_comes_before_them_starts_none(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a worker waits for the lease of a namesake to lapse."""
    said: list[str] = []

    class Endless(Step):
        async def start(self, worker: Worker) -> None:
            await super().start(worker)
            await asyncio.sleep(3600)

    app.boot_step(Endless("a", said))
    worker = Worker(app=app, name="worker", log=Silence())
    heeded = threading.Event()
    tell_stopping = worker.pools.tell_stopping

    def take_name(**_: object) -> None:
        worker.stop()
        assert heeded.wait(DEADLINE_S)

    def heed() -> None:
        tell_stopping()
        heeded.set()

    monkeypatch.setattr(worker._own_name, "wait", take_name)
    monkeypatch.setattr(worker.pools, "tell_stopping", heed)
    thread = threading.Thread(target=worker.run)
    thread.start()
    thread.join(DEADLINE_S)
    is_stuck = thread.is_alive()
    worker.stop()
    thread.join(DEADLINE_S)
    assert not is_stuck
    assert said == []


@pytest.mark.parametrize(
    "option",
    [
        {"idempotent": False},
        {"reject_on_worker_lost": True},
        {"coalesce": True},
        {"coalesce": "{a}"},
        {"requires": "ships"},
        {"concurrency_key": "{a}"},
    ],
)
def test_what_must_be_noted_on_a_server_is_refused_without_one(
    option: dict[str, Any], url: str
) -> None:
    for results, is_refused in ((None, True), (url, False)):
        app = TaskApp("ship", broker="memory://", result_backend=results)
        app.task(name="t", **option)(lambda a: a)
        if is_refused:
            with pytest.raises(ConfigError, match=f"'t' for {next(iter(option))}"):
                check_tasks(app)
        else:
            check_tasks(app)
