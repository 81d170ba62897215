"""Durable steps: what one returned is stored, and a kill does not run it again."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError, LeaseLost, MessageError, ResultError
from blimp.queue import State, TaskApp, TaskContext
from blimp.queue.redis.keys import Keys
from blimp.queue.steps import KEEP_S, MOST_STEPS
from blimp.queue.testing import in_process
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until, working
from tests.queue.server_view import Look

Start = Callable[..., WorkerProcess]
STEPPING = "tests.queue.stepping_app:app"
EACH = "--sync-workers 1 --loop-workers 1 --process-workers 1"


@pytest.fixture
def stepping(url: str) -> Iterator[TaskApp]:
    with TaskApp("stepping", broker=url, result_backend=url) as app:
        yield app


def effects(directory: Path) -> list[str]:
    return (directory / "effects").read_text().split()


BOUNDARIES = {
    "before a": ["a", "b"],
    "in a": ["a", "b"],
    "after the effect of a": ["a", "a", "b"],  # it had not ended: it runs again
    "before b": ["a", "b"],
    "after the effect of b": ["a", "b", "b"],
    "before the end": ["a", "b"],
}


@pytest.mark.parametrize(
    ("place", "boundary"),
    [
        *(("thread", boundary) for boundary in BOUNDARIES),
        *((place, "after the effect of b") for place in ("loop", "process")),
    ],
)
def test_a_finished_step_is_not_run_again_wherever_its_worker_is_killed(
    stepping: TaskApp, url: str, look: Look, start_worker: Start, tmp_path: Path,
    place: str, boundary: str,
) -> None:  # fmt: skip
    (tmp_path / f"kill.{boundary}").touch()
    first = start_worker(url, app=STEPPING, options=EACH)
    handle = stepping.send_task(place)
    first.process.wait(DEADLINE_S)
    second = start_worker(url, app=STEPPING, options=EACH)
    a, b, fence = handle.get(DEADLINE_S)
    assert (a[0], b[0], fence) == ("a", "b", 2)
    assert effects(tmp_path) == BOUNDARIES[boundary]
    assert second.terminate() == 0
    assert look.left_behind() == []  # what was stored went with the message


def test_retries_share_what_was_stored(
    stepping: TaskApp, url: str, start_worker: Start, tmp_path: Path
) -> None:
    start_worker(url, app=STEPPING)
    assert stepping.send_task("retried").get(DEADLINE_S)[1] == 2
    assert effects(tmp_path) == ["a"]


def test_a_child_that_is_interrupted_while_its_worker_asks_goes_on_with_the_next_task(
    stepping: TaskApp, url: str, server: redis.Redis, start_worker: Start, tmp_path: Path
) -> None:
    """The server answers nothing while the soft time limit comes."""
    start_worker(url, app=STEPPING, options="--process-workers 1")
    handle = stepping.send_task("limited")
    wait_until((tmp_path / "began").exists, "it did not begin")
    server.client_pause(1200)
    (tmp_path / "go").touch()
    assert handle.get(DEADLINE_S) == "interrupted"
    assert stepping.send_task("process").get(DEADLINE_S)[2] == 1  # its first delivery


def test_steps_of_a_coroutine_may_run_side_by_side() -> None:
    app = TaskApp("own", broker="redis://nowhere", result_backend="redis://nowhere")

    @app.task(bind=True)
    async def beside(context: TaskContext) -> Any:
        async def square(number: int) -> int:
            await asyncio.sleep(0)
            return number * number

        steps = [context.step(str(n), partial(square, n)) for n in range(MOST_STEPS + 1)]
        *found, last = await asyncio.gather(*steps, return_exceptions=True)
        assert isinstance(last, ResultError), last
        return found

    with in_process(app):
        assert beside.delay().get() == [n * n for n in range(MOST_STEPS)]


def test_one_that_lost_its_message_stores_nothing(app: TaskApp, server: redis.Redis) -> None:
    """The message is another consumer's when the step's function returns."""
    key = Keys().steps("t1", 0)
    errors: list[Exception] = []
    ends = threading.Event()

    @app.task(name="stepped", bind=True)
    def stepped(context: TaskContext) -> int:
        if context.fence > 1:
            return context.step("a", lambda: 2)

        def lose() -> int:
            queue = Keys().queue(context.message.queue)
            (entry,) = server.xpending_range(queue.levels[2], "workers", "-", "+", 1)
            server.xclaim(queue.levels[2], "workers", "-", 0, [entry["message_id"]])
            return 1

        try:
            return context.step("a", lose)
        except LeaseLost as error:
            errors.append(error)
            raise
        finally:
            ends.set()

    with working(app):
        handle = stepped.apply_async(task_id="t1")
        assert ends.wait(DEADLINE_S)
        assert "step 'a': this worker does not hold its message any more" in str(errors[0])
        assert handle.get(DEADLINE_S) == 2
    assert server.exists(key) == 0


def test_a_step_waits_while_the_server_does_not_answer(url: str, server: redis.Redis) -> None:
    ran: list[int] = []
    ended = threading.Event()

    def pause() -> int:
        ran.append(1)
        server.client_pause(1000)
        return 7

    def function(context: TaskContext) -> int:
        result = context.step("a", pause)
        ended.set()
        return result

    with TaskApp("own", broker=url, result_backend=url, timeout_s=0.3) as own:
        handle = own.task(name="stepped", bind=True)(function).delay()
        with working(own):
            assert ended.wait(DEADLINE_S)
            assert handle.get(DEADLINE_S) == 7
    assert ran == [1]


def test_a_server_that_refuses_a_steps_key_fails_the_task(
    app: TaskApp, server: redis.Redis
) -> None:
    @app.task(name="stepped", bind=True)
    def stepped(context: TaskContext) -> int:
        server.set(Keys().steps(context.id, 0), "not a hash")
        return context.step("a", int)

    with working(app):
        record = stepped.delay().wait(DEADLINE_S)
    assert record.state is State.FAILURE
    assert "steps of stepped: the broker refuses blimp:steps:" in record.reason


def test_what_is_stored_lapses_a_day_after_the_last_step(app: TaskApp, server: redis.Redis) -> None:
    lasts: list[int] = []

    @app.task(name="stepped", bind=True)
    def stepped(context: TaskContext) -> None:
        context.step("a", lambda: None)
        lasts.append(server.ttl(Keys().steps(context.id, 0)))

    with working(app):
        stepped.delay().get(DEADLINE_S)
    assert KEEP_S - 60 <= lasts[0] <= KEEP_S


def test_a_mistake_is_refused_before_anything_is_stored() -> None:
    def more(context: TaskContext) -> None:
        for number in range(MOST_STEPS + 1):
            context.step(str(number), int)

    async def later() -> None: ...

    cases: list[tuple[Callable[[TaskContext], Any], type[Exception], str]] = [
        (lambda c: (c.step("a", int), c.step("a", int)), MessageError, "a second step 'a'"),
        (lambda c: c.step("", int), MessageError, "must be 1 to"),
        (lambda c: c.step("a", object), ResultError, "step 'a' returned what JSON cannot hold"),
        (lambda c: c.step("a", lambda: "x" * 2000), ResultError, "2002 bytes .* the limit is 1024"),
        (lambda c: c.step("a", later), ConfigError, "is a coroutine, and the task is not"),
        (more, ResultError, f"step '{MOST_STEPS}' is one more than {MOST_STEPS}"),
    ]
    app = TaskApp(
        "own", broker="redis://nowhere", result_backend="redis://nowhere", result_limit_bytes=1024
    )
    with in_process(app):
        for number, (function, error, text) in enumerate(cases):
            task = app.task(name=f"t{number}", bind=True)(function)
            with pytest.raises(Exception, match=text) as found:
                task.delay().get()
            assert error.__name__ in str(found.value)


def test_a_step_that_failed_may_be_tried_again_in_the_same_run() -> None:
    app = TaskApp("own", broker="redis://nowhere", result_backend="redis://nowhere")
    tries: list[int] = []

    def fails_once() -> tuple[int, ...]:
        tries.append(1)
        return (1 // (len(tries) - 1),)

    @app.task(bind=True)
    def again(context: TaskContext) -> Any:
        with pytest.raises(ZeroDivisionError):
            context.step("a", fails_once)
        return context.step("a", fails_once)

    with in_process(app):
        assert again.delay().get() == [1]  # as JSON gives it, also in the run that stores it
    tries.clear()
    assert again.call() == [1]  # a direct call asks no server


@pytest.mark.parametrize(
    ("broker", "acks_late"), [("memory://", True), ("", False)], ids=["no leases", "acked early"]
)
def test_steps_need_a_message_that_is_held(url: str, broker: str, acks_late: bool) -> None:
    def function(context: TaskContext) -> int:
        return context.step("a", int)

    with TaskApp("own", broker=broker or url, result_backend=url) as app:
        task = app.task(name="stepped", bind=True, acks_late=acks_late)(function)
        with working(app):
            record = task.delay().wait(DEADLINE_S)
    assert record.state is State.FAILURE
    assert "steps need a Redis broker with streams, and acks_late=True" in record.reason
