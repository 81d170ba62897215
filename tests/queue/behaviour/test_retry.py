"""Tasks that are tried again: how often, when, and with which error at the end."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from blimp.errors import (
    MaxRetriesExceeded,
    Retry,
    TaskFailed,
)
from blimp.queue import TaskApp, TaskContext
from tests.queue.conftest import DEADLINE_S, wait_until, working
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
