"""Revocations as the server keeps them, as workers read them, and what a revocation finds."""

from typing import Any

import pytest
import redis

from blimp.errors import MessageError
from blimp.queue import State, TaskApp
from blimp.queue.brokers.base import Found
from blimp.queue.protocol.record import Record
from blimp.queue.protocol.signing import Signer
from blimp.queue.publish.revocations import KEEP_S, MOST, Revocation, Revocations


def test_a_stored_revocation_expires(app: TaskApp) -> None:
    now_s = app.broker_clock.now_s()
    app.revocations.keep("old", terminate=False, now_s=now_s - KEEP_S - 1.0)
    app.revocations.keep("new", terminate=True, now_s=now_s)
    fresh = Revocations(link=app.broker_link, app="tests", signer=None)
    assert fresh.load(now_s=now_s) == {"new": True}
    assert fresh.load(now_s=now_s) == {}
    assert "old" not in fresh


def test_with_a_key_only_signed_revocations_count(url: str, server: redis.Redis) -> None:
    """Otherwise any program that reaches the server could end a flight task."""
    key, other = "k" * 20, "o" * 20
    with (
        TaskApp("tests", broker=url, result_backend=url, signing_key=key) as app,
        TaskApp("tests", broker=url, result_backend=url, signing_key=key) as sender,
        TaskApp("tests", broker=url, result_backend=url, signing_key=other) as stranger,
        TaskApp("tests", broker=url, result_backend=url) as anybody,
    ):
        now_s = app.broker_clock.now_s()
        stranger.revocations.keep("a", terminate=True, now_s=now_s)
        anybody.revocations.keep("b", terminate=True, now_s=now_s)
        sender.revocations.keep("c", terminate=False, now_s=now_s)
        kept: Any = server.zrange("blimp:revoked:tests", 0, -1)
        (mine,) = (one for one in kept if one[1:2] == b"c")
        server.zadd("blimp:revoked:tests", {b"!" + mine[1:]: now_s + KEEP_S})
        assert app.revocations.load(now_s=now_s) == {"c": False}
        sender.revocations.keep("c", terminate=True, now_s=now_s)
        assert app.revocations.load(now_s=now_s) == {"c": True}  # also where it was known


@pytest.mark.parametrize("id", ["", "x" * 256, "a\nb"])
def test_an_invalid_id_is_refused(app: TaskApp, id: str) -> None:
    with pytest.raises(MessageError, match="printable letters"):
        app.revoke(id)


def test_what_ends_between_the_two_looks_of_a_revocation_has_ended(app: TaskApp) -> None:
    results = app.results
    assert results is not None

    def ends_meanwhile(queue: str, id: str, mark: bytes) -> Found:
        results.store(Record(id=id, state=State.SUCCESS, result=1))
        return Found.ABSENT

    answer = app.revocations.revoke_waiting(
        "t", queues=["tests"], mark_message=ends_meanwhile, results=results, wall_s=0.0
    )
    assert answer is Revocation.ENDED


def revocations(*, key: str | None = "k" * 16, app: str = "tests") -> Revocations:
    """Return those of a worker without a server."""
    return Revocations(link=None, app=app, signer=Signer(key) if key else None)


def test_a_mark_is_of_one_message_and_of_a_signer_of_its_app() -> None:
    own = revocations()
    mark = own._member("a", terminate=False).encode()
    forged = (
        b"-a",
        b"!" + mark[1:],
        own._member("a", terminate=True).encode(),
        revocations(key="n" * 16)._member("a", terminate=False).encode(),
        revocations(app="other")._member("a", terminate=False).encode(),
    )
    assert [own.accept("a", one) for one in forged] == [False] * len(forged)
    assert not own.accept("b", mark)
    assert own.ids() == []
    assert own.accept("a", mark)
    assert own.ids() == ["a"]


def test_as_many_are_known_as_there_is_room_for_and_none_forgets_to_end_its_task() -> None:
    known = revocations(key=None)
    known.add("first", terminate=False)
    known.add("a", terminate=True)
    known.add("a", terminate=False)  # the same by another road
    assert known._known["a"] is True
    for number in range(MOST - 1):
        known.add(str(number), terminate=False)
    assert "first" not in known
    assert "a" in known


@pytest.mark.parametrize(
    ("found", "stored", "expected"),
    [
        (Found.MARKED, State.PENDING, Revocation.REVOKED),
        (Found.IN_FLIGHT, State.STARTED, Revocation.IN_FLIGHT),
        (Found.NOT_SEARCHED, State.PENDING, Revocation.NOT_SEARCHED),
        (Found.ABSENT, State.PENDING, Revocation.UNKNOWN),
        (Found.ABSENT, State.STARTED, Revocation.IN_FLIGHT),
        (Found.MARKED, State.SUCCESS, Revocation.ENDED),
    ],
)
def test_only_what_waited_is_revoked_at_once(
    app: TaskApp, found: Found, stored: State, expected: Revocation
) -> None:
    """`stored`: of a worker that ended it just before, or has begun."""
    results = app.results
    assert results is not None

    def mark(queue: str, id: str, mark: bytes) -> Found:
        if stored is not State.PENDING:
            results.store(Record(id=id, state=stored))
        return found

    answer = app.revocations.revoke_waiting(
        "t", queues=["tests", None], mark_message=mark, results=results, wall_s=0.0
    )
    assert answer is expected
    assert (results.get("t").state is State.REVOKED) is (expected is Revocation.REVOKED)
