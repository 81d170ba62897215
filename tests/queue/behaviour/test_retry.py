"""Tasks that are tried again: how often, when, and with which error at the end."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from blimp.errors import (
    ConfigError,
    Ignore,
    MaxRetriesExceeded,
    Retry,
    TaskFailed,
)
from blimp.queue import TaskApp, TaskContext
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until, working
from tests.queue.server_view import Look


def test_retries_with_growing_waits_until_it_succeeds(app: TaskApp) -> None:
    tries: list[tuple[int, int]] = []

    @app.task(
        name="shaky",
        bind=True,
        autoretry_for=(OSError,),
        max_retries=5,
        retry_backoff=0.01,
        retry_jitter=False,
    )
    def shaky(context: TaskContext) -> int:
        tries.append((context.message.retries, context.fence))
        if len(tries) < 4:
            raise ConnectionResetError("again")
        return len(tries)

    with working(app):
        assert shaky.delay().get(DEADLINE_S) == 4
    assert [retries for retries, _ in tries] == [0, 1, 2, 3]
    fences = [fence for _, fence in tries]
    assert fences == sorted(set(fences)), "the fence must grow with each try"


def test_gives_up_after_max_retries_with_its_own_error(app: TaskApp, look: Look) -> None:
    tries = []

    @app.task(name="lost", autoretry_for=(OSError,), max_retries=2, retry_backoff=0.01)
    def lost() -> None:
        tries.append(1)
        raise OSError("gone")

    with working(app) as worker:
        with pytest.raises(TaskFailed, match="OSError: gone"):
            lost.delay().get(DEADLINE_S)
        wait_until(lambda: worker.counts["done"] == 3, "not acknowledged")
    assert len(tries) == 3
    assert look.left_behind() == []


def test_retries_only_what_it_was_configured_to(app: TaskApp) -> None:
    tries = []

    @app.task(name="lost", autoretry_for=(OSError,), retry_backoff=0.01)
    def lost() -> None:
        tries.append(1)
        raise KeyError("other")

    with working(app), pytest.raises(TaskFailed, match="KeyError"):
        lost.delay().get(DEADLINE_S)
    assert len(tries) == 1


def test_a_task_may_ask_for_its_own_retry(app: TaskApp) -> None:
    @app.task(name="asks", bind=True, max_retries=2)
    def asks(context: TaskContext) -> None:
        context.retry(countdown=0.01)

    @app.task(name="asks-with", bind=True, max_retries=1)
    def asks_with(context: TaskContext) -> None:
        context.retry(ValueError("still shut"), eta=datetime.now(UTC))

    @app.task(name="raises", bind=True)
    def raises(context: TaskContext) -> int:
        if context.message.retries == 0:
            raise Retry("later", countdown_s=0.01)
        return context.message.retries

    with working(app):
        with pytest.raises(TaskFailed, match="asks: tried again 2 times, its limit") as caught:
            asks.delay().get(DEADLINE_S)
        assert caught.value.kind == MaxRetriesExceeded.__name__
        with pytest.raises(TaskFailed, match="ValueError: still shut"):
            asks_with.delay().get(DEADLINE_S)
        assert raises.delay().get(DEADLINE_S) == 1


@pytest.mark.parametrize("exc", [None, OSError("why")])
def test_a_retry_of_its_own_limit_is_not_tried_again_by_itself(
    app: TaskApp, exc: Exception | None
) -> None:
    tries: list[int] = []

    @app.task(
        name="again", bind=True, autoretry_for=(Exception,), max_retries=5, retry_backoff=False
    )
    def again(context: TaskContext) -> None:
        tries.append(1)
        context.retry(exc, countdown=0.0, max_retries=1)

    with working(app), pytest.raises(TaskFailed, match=r"MaxRetriesExceeded|OSError: why"):
        again.delay().get(DEADLINE_S)
    assert len(tries) == 2


def test_a_retry_at_a_time(app: TaskApp) -> None:
    times: list[float] = []

    @app.task(name="again", bind=True)
    def again(context: TaskContext) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            context.retry(eta=datetime.now(UTC) + timedelta(seconds=0.3))

    with working(app):
        again.delay().get(DEADLINE_S)
    assert 0.15 < times[1] - times[0] < DEADLINE_S


def test_a_retry_with_other_arguments(app: TaskApp) -> None:
    """As Celery's `retry(args=…, kwargs=…, throw=False)`."""

    @app.task(name="narrow", bind=True)
    def narrow(context: TaskContext, most: int, *, by: str = "") -> list[Any]:
        if most > 1:
            return context.retry(  # type: ignore[return-value]
                throw=False, args=[most // 2], kwargs={"by": f"{by}x"}, countdown=0
            )
        return [most, by, context.message.retries]

    with working(app):
        assert narrow.delay(4).get(DEADLINE_S) == [1, "xx", 2]


def test_a_process_retries_with_other_arguments_and_ignores(
    url: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    start_worker(url, app="tests.queue.failing_app:app", options="--process-workers 1")
    with TaskApp("failing", broker=url, result_backend=url) as client:
        ignored = client.send_task("process.ignored")
        assert client.send_task("process.narrow", (4,)).get(DEADLINE_S) == [1, "xx", 2]
        assert not ignored.ready()


def test_a_retry_in_another_queue(app: TaskApp) -> None:
    @app.task(name="moved", bind=True)
    def moved(context: TaskContext) -> str:
        if not context.message.retries:
            context.retry(queue="slow", countdown=0)
        return context.message.queue

    with working(app, name="quick"), working(app, name="slow", queues=("slow",)):
        assert moved.delay().get(DEADLINE_S) == "slow"


@pytest.mark.parametrize(
    "wrong", [{"args": [object()]}, {"kwargs": [1]}, {"queue": ""}, {"args": 1}]
)
def test_a_retry_that_cannot_be_sent_says_so(app: TaskApp, wrong: dict[str, Any]) -> None:
    @app.task(name="odd", bind=True)
    def odd(context: TaskContext) -> None:
        context.retry(**wrong)

    with working(app), pytest.raises(TaskFailed, match="of a retry"):
        odd.delay().get(DEADLINE_S)


def test_retry_kwargs_are_celerys(app: TaskApp) -> None:
    tries: list[int] = []

    @app.task(
        name="known", autoretry_for=(OSError,), retry_kwargs={"max_retries": 2, "countdown": 0}
    )
    def known() -> None:
        tries.append(1)
        raise OSError("again")

    with working(app), pytest.raises(TaskFailed, match="again"):
        known.delay().get(DEADLINE_S)
    assert len(tries) == 3
    with pytest.raises(ConfigError, match="retry_kwargs"):
        app.task(name="wrong", retry_kwargs={"max_tries": 2})(lambda: None)


def test_an_ignored_task_ends_without_a_result(app: TaskApp, look: Look) -> None:
    @app.task(name="nothing")
    def nothing() -> None:
        raise Ignore("another one has done it")

    @app.task(name="after")
    def after(_: object) -> None: ...

    with working(app) as worker:
        handle = nothing.s().apply_async()
        chained = (nothing.s() | after.s()).apply_async()
        wait_until(lambda: worker.counts["done"] >= 2, "not acknowledged")
        assert not handle.ready()
        assert not chained.ready()
    assert look.left_behind() == []
