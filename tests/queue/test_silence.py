"""What a caller learns who has waited for a result in vain."""

from typing import Any

import pytest

from blimp.errors import LinkError
from blimp.queue import TaskApp, chain, chord, group
from blimp.queue.operations import open_session
from tests.queue.conftest import DEADLINE_S, wait_until, working

WAIT_S = 0.05


def silence(result: Any) -> str:
    with pytest.raises(TimeoutError) as caught:
        result.get(timeout=WAIT_S)
    return str(caught.value)


@pytest.fixture
def add(app: TaskApp) -> Any:
    return app.task(name="add")(lambda *terms: sum(terms))


def test_nobody_consumes_its_queue_and_another_has_a_near_name(app: TaskApp, add: Any) -> None:
    with working(app, queues=["default", "other"]):
        reason = "no worker consumes 'defualt'; 'default' has 1 worker"
        assert reason in silence(add.apply_async((1,), queue="defualt"))
        assert reason in silence(add.s(1).set(queue="defualt").apply_async())
        both = group(add.s(1).set(queue="defualt"), add.s(2).set(queue="other"))()
        assert both.results[1].get(timeout=DEADLINE_S) == 2
        several = silence(both)
        assert reason in several
        assert "1 of 2 have not ended; task" in several
        assert "'default' has 1 worker, 'other' has 1 worker" in silence(add.delay(1))
    assert "no worker of app 'tests' runs" in silence(add.delay(1))


def test_it_waits_for_what_is_before_it_in_its_canvas(app: TaskApp, add: Any) -> None:
    with working(app):
        lost = add.s(1).set(queue="nowhere")
        for canvas in (chain(lost, add.s()), chord([add.s(1), lost], add.si(1))):
            result = canvas.apply_async()
            wait_until(lambda: "no worker consumes 'nowhere'" in silence(result), "it is found")  # noqa: B023


def test_its_queue_is_paused_or_long(app: TaskApp, add: Any) -> None:
    with working(app, queues=["other"]) as worker:
        sent = [add.delay(number) for number in range(3)]
        worker.in_flight.held_by = lambda: True
        worker.consumer_loop.change_queues(("tests",), timeout_s=5.0)
        wait_until(lambda: app.fleet.can_run("add", queue="tests"), "it is announced")
        assert "waits in queue 'tests' behind 2 others, for 1 worker" in silence(sent[2])
        with open_session(app) as session:
            session.store.pause(session.keys.queue("tests"))
            assert "queue 'tests' is paused" in silence(sent[0])


def test_it_waits_for_a_limit_a_rate_or_its_time(app: TaskApp) -> None:
    @app.task(name="limited", concurrency_key="{key}", concurrency=1)
    def limited(key: str) -> None:
        wait_until(lambda: ends, "the test ends it")

    @app.task(name="slow", rate_limit="1/h")
    def slow(number: int) -> None: ...

    ends: list[int] = []
    with working(app):
        later = slow.apply_async((1,), countdown=3600.0)
        rated = [slow.delay(number) for number in range(20)]
        same = [limited.delay("X") for _ in range(4)]
        before = "waits for the limit of 1 for key 'X', behind 2 others"
        wait_until(lambda: any(before in silence(one) for one in same), "three wait")
        assert any("worker 'worker' has it" in silence(one) for one in same)
        assert any("runs or waits for a thread or its rate" in silence(one) for one in rated[1:])
        assert "it waits for" in silence(later)
        ends.append(1)


def test_it_waits_for_its_time(app: TaskApp, add: Any) -> None:
    with working(app):
        assert "Z, in 3600 s" in silence(add.apply_async((1,), countdown=3600.0))


def test_no_worker_knows_its_task(app: TaskApp) -> None:
    with working(app):
        sent = app.send_task("new", (1,))
        reason = "no live worker of queue 'tests' knows task 'new'"
        said: list[str] = []

        def is_said() -> bool:
            said.append(silence(sent))
            return reason in said[-1]

        wait_until(is_said, "it is said")
        assert all("worker 'worker' has it" in one for one in said[:-1])
        with open_session(app) as session:
            keys = session.keys.queue("tests")
            wait_until(lambda: session.store.find(keys, sent.id).is_aside, "it is set aside")
        assert reason in silence(sent)


def test_it_is_revoked_or_was_never_sent(app: TaskApp, add: Any) -> None:
    app.revoke("later")
    assert "it is revoked" in silence(app.result("later"))
    assert "in none of the queues tests" in silence(app.result("never"))


@pytest.mark.parametrize("error", [LinkError("lost"), RuntimeError("any")])
def test_whatever_fails_meanwhile_it_is_a_timeout(
    app: TaskApp, add: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> None:
        raise error

    sent = add.delay(1)
    monkeypatch.setattr(app.fleet, "members", fail)
    assert f"task {sent.id} is PENDING after 0.05 s: 1 of 1 have not ended" in silence(sent)


def test_a_coroutine_gets_it_too(app: TaskApp, add: Any) -> None:
    import asyncio

    async def wait() -> None:
        await (await add.aapply_async((1,), queue="defualt")).aget(timeout=WAIT_S)

    with pytest.raises(TimeoutError, match="no worker consumes 'defualt'"):
        asyncio.run(wait())
