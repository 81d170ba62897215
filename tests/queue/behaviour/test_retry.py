"""Tasks that are tried again: how often, when, and with which error at the end."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from blimp.errors import (
    ConfigError,
    Ignore,
    MaxRetriesExceeded,
    MessageError,
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


@pytest.mark.parametrize("cpu_bound", [False, True])
def test_a_retry_changes_what_apply_async_takes(
    url: str, cpu_bound: bool, start_worker: Callable[..., WorkerProcess]
) -> None:
    start_worker(url, app="tests.queue.failing_app:app", options="--process-workers 1")
    with TaskApp("failing", broker=url, result_backend=url) as app:
        name = "retried.in.process" if cpu_bound else "retried"
        handle = app.send_task(name, headers={"blimp_a": "1"}, time_limit=40.0)
        seen = handle.get(timeout=DEADLINE_S)
        assert app.result("linked").get(timeout=DEADLINE_S) == [seen]
    assert seen.pop("expires_in_s") == pytest.approx(500.0, abs=60.0)
    assert seen == {
        "retries": 1, "args": [2], "priority": 3, "ttl_s": 900.0, "timelimit": [40.0, 30.0],
        "headers": {"blimp_a": "1", "blimp_b": "2"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"task_id": "b"}, ConfigError, "retry of 'again': task_id stays as it was"),
        ({"prioirty": 3}, ConfigError, "there is no option prioirty"),
        ({"priority": 10}, ConfigError, "priority 10: must be from 0"),
        ({"eta": datetime(2030, 1, 1)}, MessageError, "'eta' is 2030-01-01T00:00:00, which has no"),
        ({"expires": "soon"}, MessageError, "'expires' is 'soon', must be an ISO 8601 time"),
        ({"link": [3]}, MessageError, r"link\[0\]"),
        ({"queue": 3}, MessageError, "the queue of a retry is 3, must be a name"),
    ],
)
def test_a_retry_refuses_what_cannot_be_sent(
    app: TaskApp, options: dict[str, Any], error: type[Exception], reason: str
) -> None:
    @app.task(name="again", bind=True)
    def again(context: TaskContext) -> None:
        context.retry(**options)

    with pytest.raises(error, match=reason):
        again.call()


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


def test_a_retry_in_another_queue(app: TaskApp) -> None:
    @app.task(name="moved", bind=True)
    def moved(context: TaskContext) -> str:
        if not context.message.retries:
            context.retry(queue="slow", countdown=0)
        return context.message.queue

    with working(app, name="quick"), working(app, name="slow", queues=("slow",)):
        assert moved.delay().get(DEADLINE_S) == "slow"


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
