"""The tasks named `celery.*` on our worker."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from blimp.errors import TaskFailed
from blimp.queue import State, TaskApp, TaskContext, group, signature
from blimp.queue.canvas.signature import mapped
from tests.queue.conftest import DEADLINE_S, WorkerProcess, working


def test_map_calls_a_task_with_each_item(app: TaskApp) -> None:
    double = app.task(name="double")(lambda value: 2 * value)
    add = app.task(name="add")(lambda a, b=1: a + b)
    with working(app):
        assert double.map(range(3)).delay().get(timeout=DEADLINE_S) == [0, 2, 4]
        assert add.starmap([(1, 2), [3]]).delay().get(timeout=DEADLINE_S) == [3, 4]
        chunked = add.chunks([(1, 2), (3, 4), (5, 6)], 2).apply_async()
        assert chunked.get(timeout=DEADLINE_S) == [[3, 7], [11]]
        assert (double.map([]) | double.map([1])).delay().get(timeout=DEADLINE_S) == [2]


def test_a_mapped_coroutine_runs_in_a_loop(app: TaskApp) -> None:
    @app.task(name="nap")
    async def nap(value: int) -> list[Any]:
        await asyncio.sleep(0)
        return [value, threading.current_thread().name]

    with working(app):
        pairs = nap.map([1, 2]).delay().get(timeout=DEADLINE_S)
        alone = nap.delay(3).get(timeout=DEADLINE_S)
    assert [value for value, _ in pairs] == [1, 2]
    assert {thread for _, thread in pairs} == {alone[1]}


def test_a_mapped_task_has_the_resource_that_it_requires(app: TaskApp) -> None:
    @app.task(name="held", bind=True, requires="ships")
    def held(context: TaskContext, value: int) -> list[Any]:
        assert context.grant is not None
        return [value, context.grant.token]

    app.pools["ships"].add("one")
    with working(app):
        first, second = held.map([1, 2]).delay().get(timeout=DEADLINE_S)
    assert first[1] == second[1]


def test_a_mapped_task_that_fails_fails_the_map(app: TaskApp) -> None:
    add = app.task(name="add")(lambda a, b: a + b)
    with working(app), pytest.raises(TaskFailed, match="missing 1 required positional"):
        add.map([1]).delay().get(timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("called", "reason"),
    [
        (None, "task is no signature: Expected `object`, got `null`"),
        ({"task": "celery.map"}, "no task 'celery.map'"),
        ({"task": "heavy", "subtask_type": "group", "kwargs": {"tasks": []}}, "not a single task"),
    ],
)
def test_what_cannot_be_mapped_is_a_failure_with_the_reason(
    app: TaskApp, called: Any, reason: str
) -> None:
    app.settings = msgspec.structs.replace(app.settings, unknown_task_wait_s=0.0)
    app.task(name="heavy")(abs)
    sent = app.send_task("celery.map", kwargs={"task": called, "it": [1]})
    with working(app):
        record = sent.wait(DEADLINE_S)
    assert record.state is State.FAILURE
    assert reason in record.reason


def test_a_map_goes_to_the_queue_of_the_task_it_calls(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(app, "on_sent", lambda one, at_s: sent.append(one))
    far = app.task(name="far", queue="elsewhere", priority=2)(lambda value: value)
    far.map([1]).apply_async()
    group(far.starmap([[1]])).apply_async()
    assert [(one.queue, one.priority) for one in sent] == [("elsewhere", 2)] * 2


def test_celerys_accumulate_and_chain(app: TaskApp) -> None:
    with working(app):
        assert app.send_task("celery.accumulate", [1, 2]).get(timeout=DEADLINE_S) == [1, 2]
        last = signature("celery.accumulate", [1, 2], {"index": 1}, app=app).delay()
        assert last.get(timeout=DEADLINE_S) == 2
        with pytest.raises(TaskFailed, match="chain is not a real task"):
            app.send_task("celery.chain").get(timeout=DEADLINE_S)


def test_celery_beat_has_the_results_cleaned_up(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: list[bool] = []
    monkeypatch.setattr(app.results, "cleanup", lambda: cleaned.append(True))
    with working(app):
        assert app.send_task("celery.backend_cleanup").get(timeout=DEADLINE_S) is None
    assert cleaned == [True]


def test_a_task_in_a_process_is_mapped_there_and_replaced_there(
    url: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    start_worker(url, app="tests.queue.worn_app:app", options="--process-workers 1")
    with TaskApp("labour", broker=url, result_backend=url) as app:
        heavy = signature("heavy.pid", app=app)
        pairs = mapped(heavy, [1, 2]).delay().get(timeout=DEADLINE_S)
        alone = signature("heavy.pid", (3,), app=app).delay().get(timeout=DEADLINE_S)
        replaced = signature("heavy.replaced", app=app).delay().get(timeout=DEADLINE_S)
        here = signature("pid", app=app).delay().get(timeout=DEADLINE_S)
    assert pairs == [[1, alone[1]], [2, alone[1]]]
    assert replaced == [4, alone[1]]
    assert alone[1] != here
