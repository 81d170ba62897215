"""The end of a delivery: result, what follows and acknowledgement are one step, or nothing."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from blimp.errors import TaskFailed
from blimp.queue import TaskApp
from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.envelope import Claim, Envelope, post
from blimp.queue.brokers.streams.store import DONE, LOST, SETTLED
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.protocol.message import EMERGENCY, TaskMessage
from blimp.queue.protocol.record import Outcome
from blimp.queue.redis.keys import QueueKeys
from blimp.queue.worker.job import CallNext, Job
from tests.queue.brokers.streams.completions import complete
from tests.queue.celery.kombu_transport.conftest import put_raw
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.server_view import Look

KEY = "celery-task-meta-x"


@pytest.fixture
def claim(session: StreamsSession) -> Claim:
    """One delivery of queue "q", held by `holder`."""
    keys = session.keys.queue("q")
    session.store.make_group(keys)
    put_raw(session, b"body", head=b"head")
    ((claim, _),) = session.store.take([keys], room=1).deliveries
    return claim


def put(
    session: StreamsSession, queue: str, *, level: int = 2, due_ms: int = 0
) -> tuple[QueueKeys, Envelope]:
    envelope = Envelope(level=level, due_ms=due_ms, head=b"h", body=b"b")
    return session.keys.queue(queue), envelope


def standing(session: StreamsSession) -> tuple[bool, int, int, int]:
    """Return whether a result stands, and how many wait in q, in r, and in r's schedule."""
    q, r = session.keys.queue("q"), session.keys.queue("r")
    client: Any = session.link.client
    return (
        bool(client.exists(KEY)),
        session.store.counts(q).ready,
        session.store.counts(r).ready,
        int(client.zcard(r.later)),
    )


def whole(session: StreamsSession, claim: Claim | None, **options: Any) -> dict[str, Any]:
    """An end with everything: a result, one message at once, another in the far future."""
    following = (put(session, "r"), put(session, "r", level=0, due_ms=4_000_000_000_000))
    return {
        "claim": claim, "result": KEY, "record": b'{"status": "SUCCESS"}', "keep_s": 9,
        "puts": following,
    } | options  # fmt: skip


def test_everything_is_written_in_the_step_that_ends_it(
    session: StreamsSession, claim: Claim
) -> None:
    assert complete(session.store, whole(session, claim)) == [DONE]
    assert standing(session) == (True, 0, 1, 1)
    assert complete(session.store, whole(session, claim)) == [SETTLED]
    assert standing(session) == (True, 0, 1, 1)


def test_nothing_is_written_for_a_lost_lease(session: StreamsSession, claim: Claim) -> None:
    assert session.store.release([claim]) == [DONE]
    assert complete(session.store, whole(session, claim)) == [LOST]
    assert standing(session) == (False, 1, 0, 0)


def test_many_end_at_once_each_for_itself(session: StreamsSession) -> None:
    keys = session.keys.queue("q")
    session.store.make_group(keys)
    for _ in range(3):
        put_raw(session, b"body", head=b"head", level=1)
    first, second, third = (one for one, _ in session.store.take([keys], room=3).deliveries)
    session.store.release([second])
    ends = [{"claim": first}, whole(session, second), whole(session, third)]
    assert complete(session.store, *ends) == [DONE, LOST, DONE]
    assert standing(session) == (True, 1, 1, 1)


def test_an_end_without_a_delivery_is_written_once(session: StreamsSession) -> None:
    end = whole(session, None, once=session.keys.once("q/2/1-1/1"))
    assert complete(session.store, end) == [DONE]
    assert complete(session.store, end) == [SETTLED]
    assert standing(session) == (True, 0, 1, 1)


def test_a_dead_letter_has_its_result_in_the_same_step(
    session: StreamsSession, claim: Claim
) -> None:
    assert complete(session.store, whole(session, claim, reason="no such pad")) == [DONE]
    (letter,) = DeadLetters(store=session.store, queue="q").list()
    assert (letter.reason, letter.deliveries) == ("no such pad", 1)
    assert standing(session) == (True, 0, 1, 1)


def test_one_that_cannot_be_written_spoils_no_other(session: StreamsSession, claim: Claim) -> None:
    client: Any = session.link.client
    client.rpush(KEY, "no result")
    keys = session.keys.queue("q")
    put_raw(session, b"body", head=b"head")
    ((other, _),) = session.store.take([keys], room=1).deliveries
    refused, done = complete(session.store, whole(session, claim), {"claim": other})
    assert str(refused).startswith("WRONGTYPE")
    assert done == DONE
    assert session.store.renew([claim]) == [DONE], "it is still held"


def test_a_message_that_follows_looks_as_if_published(
    app: TaskApp, session: StreamsSession
) -> None:
    message = TaskMessage(
        id="m", task="add", args=(1, "ö"), kwargs={"b": None}, queue="q", priority=EMERGENCY,
        retries=2, eta_s=4e9, expires_s=5e9, issued_ms=7, ttl_s=3.0, delivery=4,
        ignore_result=True, headers={"blimp_vehicle": "twin", "other": 1},
    )  # fmt: skip
    client: Any = session.link.client
    keys = session.keys.queue("q")
    app.publisher.publish(message)
    put = post(message)
    assert client.zscore(keys.later, client.zrange(keys.later, 0, 0)[0]) == put.due_ms == 4e12
    message = msgspec.structs.replace(message, eta_s=None)
    app.publisher.publish(message)
    put = post(message)
    ((_, fields),) = client.xrange(keys.levels[put.level])
    assert (put.due_ms, put.body) == (0, fields[b"b"])
    theirs, ours = json.loads(fields[b"h"]), json.loads(put.head)
    for document in (theirs, ours):
        document["properties"].pop("delivery_tag")
        document["properties"].pop("body_encoding", None)
    assert theirs == ours


# --- the worker -------------------------------------------------------------------------------


class Following:
    """Middleware that has one more task follow each success of "first"."""

    def __init__(self, app: Callable[[], TaskApp]) -> None:
        self._app = app

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        outcome = await call_next(job)
        if job.task.name != "first":
            return outcome
        message = TaskMessage(id="second", task="second", queue="tests", args=(outcome.result,))
        return msgspec.structs.replace(outcome, next=(message,))


@pytest.mark.parametrize("acks_late", [True, False])
def test_what_follows_is_sent_with_the_result(
    app: TaskApp, session: StreamsSession, look: Look, acks_late: bool
) -> None:
    ran: list[int] = []
    app.task(name="second", ignore_result=True)(ran.append)
    app.task(name="first", acks_late=acks_late)(lambda: 3)
    app.outer_middleware = (Following(lambda: app),)
    with working(app) as worker:
        assert app.send_task("first").get(DEADLINE_S) == 3
        wait_until(lambda: worker.counts["done"] == 2, "the second does not run")
    assert ran == [3]
    assert look.left_behind() == []


# --- the acker ------------------------------------------------------------------------------


class Odd(dict[str, int]):
    """What JSON can hold, but for its own methods."""

    def items(self) -> Any:
        raise RuntimeError("not today")


@pytest.mark.parametrize("result", [{1, 2}, float("nan"), Odd(a=1)])
def test_what_cannot_be_written_fails_and_is_acknowledged(
    app: TaskApp, look: Look, result: object
) -> None:
    app.task(name="odd")(lambda: result)
    with working(app) as worker:
        handle = app.send_task("odd")
        with pytest.raises(TaskFailed, match=r"odd returned what (JSON )?cannot"):
            handle.get(DEADLINE_S)
        wait_until(lambda: worker.counts["done"] == 1, "it is still in flight")
    assert look.left_behind() == []
