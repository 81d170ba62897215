"""What a handle must not wait for: a result that is never stored, or one that waits for it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from blimp.errors import TaskFailed
from blimp.queue import TaskApp, chain, chord, group
from tests.queue.conftest import DEADLINE_S, WorkerProcess, working

# Tasks that are coroutines send here by plain calls, and that is warned of.
pytestmark = pytest.mark.filterwarnings("ignore:.* waits for the server:RuntimeWarning")


class Quiet:
    """Tasks of which no result is stored, and one of which it is."""

    def __init__(self, app: TaskApp) -> None:
        self.quiet = app.task(name="quiet", ignore_result=True)(lambda *_: 1)
        self.loud = app.task(name="loud")(lambda *_: 2)


SENT: dict[str, tuple[Callable[[Quiet], Any], Any]] = {
    "delay": (lambda q: q.quiet.delay(), None),
    "overridden": (lambda q: q.quiet.apply_async(ignore_result=False), None),
    "option": (lambda q: q.loud.apply_async(ignore_result=True), None),
    "by name": (lambda q: q.loud.app.send_task("quiet"), None),
    "end of a chain": (lambda q: (q.loud.s() | q.quiet.s()).delay(), None),
    "begin of a chain": (lambda q: chain(q.quiet.s(), q.loud.s()).delay(), 2),
    "body of a chord": (lambda q: chord([q.loud.s()], q.quiet.s())(), None),
    "group": (lambda q: group(q.quiet.s(), q.loud.s(), q.quiet.s()).delay(), [None, 2, None]),
    "chain into a group": (
        lambda q: (q.loud.s() | group(q.quiet.s(), q.loud.s())).delay(), [None, 2]),
    "header of a chord": (lambda q: chord([q.loud.s(), q.quiet.s()], q.loud.s())(), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", SENT)
def test_a_result_that_is_not_stored_is_none_at_once(app: TaskApp, name: str) -> None:
    send, value = SENT[name]
    handle = send(Quiet(app))
    if value is None or value == [None, None]:  # no worker runs
        assert handle.get() == value
        assert handle.get(timeout=0, propagate=False) == value
    with working(app):
        assert handle.get(timeout=DEADLINE_S) == value


class Waiting:
    """Tasks that wait for others."""

    def __init__(self, app: TaskApp) -> None:
        loud, quiet = (task := Quiet(app)).loud, task.quiet
        several = group(loud.s(), loud.s())
        options: Any = {"disable_sync_subtasks": False}
        self.waits: dict[str, Callable[[], Any]] = {
            "get": lambda: loud.delay().get(timeout=DEADLINE_S),
            "wait": lambda: loud.delay().wait(timeout=DEADLINE_S),
            "group": lambda: several.delay().get(timeout=DEADLINE_S),
            "chain": lambda: (loud.s() | loud.s()).delay().get(timeout=DEADLINE_S),
        }
        self.allowed: dict[str, tuple[Callable[[], Any], Any]] = {
            "get": (lambda: loud.delay().get(DEADLINE_S, **options), 2),
            "group": (lambda: several.delay().get(DEADLINE_S, **options), [2, 2]),
            "not stored": (lambda: quiet.delay().get(), None),
            "none": (lambda: group([]).delay().get(), []),
            "state": (lambda: loud.delay().ready() in (True, False), True),
        }

        @app.task(name="thread")
        def thread(name: str) -> Any:
            return self.waits[name]()

        @app.task(name="loop")
        async def loop(name: str) -> Any:
            return self.waits[name]()

        @app.task(name="aside")
        async def aside(name: str) -> Any:
            return await asyncio.to_thread(self.waits[name])

        @app.task(name="allowed")
        def allowed(name: str) -> Any:
            return self.allowed[name][0]()

        @app.task(name="called")
        def called(name: str) -> Any:
            return thread(name)

        self.tasks = (thread, loop, aside, called)


@pytest.mark.parametrize("name", ["get", "wait", "group", "chain"])
def test_a_task_that_waits_for_another_fails_and_is_named(app: TaskApp, name: str) -> None:
    waiting = Waiting(app)
    with working(app, sync_workers=1):
        for task in waiting.tasks:
            with pytest.raises(
                TaskFailed, match=f"TaskError: task '{task.name}' waits for"
            ) as caught:
                task.delay(name).get(timeout=DEADLINE_S)
            assert "context.replace" in str(caught.value)


def test_what_a_task_may_wait_for(app: TaskApp) -> None:
    waiting = Waiting(app)
    with working(app, sync_workers=2):
        for name, (_, value) in waiting.allowed.items():
            assert app.send_task("allowed", (name,)).get(timeout=DEADLINE_S) == value, name


def test_the_program_itself_may_wait_after_a_task_has_failed(app: TaskApp) -> None:
    waiting = Waiting(app)
    with working(app, sync_workers=1):
        with pytest.raises(TaskFailed):
            waiting.tasks[0].delay("get").get(timeout=DEADLINE_S)
        assert app.send_task("loud").get(timeout=DEADLINE_S) == 2

    async def ask() -> Any:
        return await asyncio.to_thread(app.send_task("quiet").get)

    assert asyncio.run(ask()) is None


def test_a_process_that_waits_fails_too(
    url: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    start_worker(url, app="tests.queue.failing_app:app", options="--process-workers 1")
    with TaskApp("failing", broker=url, result_backend=url) as app:
        handle = app.send_task("process.waits")
        with pytest.raises(TaskFailed, match=r"task 'process\.waits' waits for task x"):
            handle.get(timeout=DEADLINE_S)
