"""Counting parts and starting bodies, whatever stands in the keys."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError, NotGenuine, Reject, TaskFailed
from blimp.queue import (
    GroupResult,
    State,
    TaskApp,
    chord,
)
from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.canvas.chords import _values, read_entries
from blimp.queue.canvas.parts import ChordPart, part_place
from blimp.queue.canvas.plan import SIZE
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Record
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.keys import Keys
from blimp.queue.redis.urls import redis_url
from tests.queue.canvas.sums import Sums, part
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.server_view import Look


@pytest.fixture
def sums(app: TaskApp) -> Sums:
    return Sums(app)


def test_a_chord_needs_a_redis_server() -> None:
    with TaskApp("alone", broker="memory://", transport="memory") as app:
        task = app.task(name="t")(lambda *args: 1)
        with pytest.raises(ConfigError, match="chords need a Redis server"):
            chord([task.s()], task.s())()


@pytest.mark.parametrize("key", ["j", "d", "s", "c"])
def test_a_key_of_a_wrong_type_costs_a_dead_letter_with_the_reason(
    sums: Sums, server: redis.Redis, look: Look, key: str
) -> None:
    server.rpush(f"celery-taskset-meta-g.{key}", "forged")
    if key != "s":
        server.set("celery-taskset-meta-g.s", 1)
    sums.app.publisher.publish(TaskMessage(**part("g", 0)))
    sums.app.publisher.publish(TaskMessage(id="other", task="same", args=(1,), queue="tests"))
    with working(sums.app) as worker:
        assert sums.app.result("other").wait(DEADLINE_S).state is State.SUCCESS
        wait_until(lambda: worker.counts["done"] == 2, "it is still in flight")
    assert look.in_flight() == 0
    (reason,) = look.dead_reasons()
    assert "WRONGTYPE" in reason


def test_a_size_that_is_no_number_is_named(sums: Sums, server: redis.Redis, look: Look) -> None:
    server.set("celery-taskset-meta-g.s", "many")
    sums.app.publisher.publish(TaskMessage(**part("g", 0)))
    with working(sums.app) as worker:
        wait_until(lambda: worker.counts["done"] == 1, "it is still in flight")
    (reason,) = look.dead_reasons()
    assert "celery-taskset-meta-g.s is no number" in reason


def test_a_size_that_lies_has_the_body_run_once_at_most(
    sums: Sums, server: redis.Redis, look: Look
) -> None:
    server.set("celery-taskset-meta-few.s", 2)
    server.set("celery-taskset-meta-many.s", 9)
    for index in range(4):
        for gid in ("few", "many"):
            message = part(gid, index, id=f"{gid}{index}")
            message["chord"] = message["chord"] | {"options": {"task_id": f"body-{gid}"}}
            sums.app.publisher.publish(TaskMessage(**message))
    with working(sums.app) as worker:
        assert sums.app.result("body-few").get(timeout=DEADLINE_S) == 2
        wait_until(lambda: worker.counts["done"] == 9, "not all are done")
    assert sums.app.result("body-many").state is State.PENDING
    assert 0 < server.ttl("celery-taskset-meta-many.j") <= 86_400
    assert look.waiting() == 0


def test_a_part_counts_once_whatever_it_gives_the_second_time(sums: Sums) -> None:
    chords = sums.app.chords
    assert chords is not None
    chords.begin([("g", 2)])
    body = part("g", 0)["chord"]
    first, again, other = (
        ChordPart(group_id="g", id=id, index=index, state=State.SUCCESS, value=value, body=body)
        for id, index, value in (("a", 0, 1), ("a", 0, 2), ("b", 1, 3))
    )
    assert [chords.count(one) for one in (first, again, other, again, other)] == [
        False, False, True, False, True
    ]  # fmt: skip


NESTED = pytest.param('[1, "x", "SUCCESS", ' + "[" * 2000 + "]" * 2001, id="nested")


@pytest.mark.parametrize("entry", ["nonsense", "[1]", '[1, "x", "FAILURE", 7]', NESTED])
def test_a_forged_part_fails_its_chord(sums: Sums, server: redis.Redis, entry: str) -> None:
    server.zadd("celery-taskset-meta-g.j", {entry: 0})
    server.set("celery-taskset-meta-g.s", 2)
    sums.app.publisher.publish(TaskMessage(**part("g", 1)))
    with working(sums.app), pytest.raises(TaskFailed, match="ChordError"):
        sums.app.result("body").get(timeout=DEADLINE_S)


def test_a_body_whose_results_are_too_long_fails_with_the_limit(url: str) -> None:
    with TaskApp("tests", broker=url, result_backend=url, limit_bytes=2000) as app:
        sums = Sums(app)
        with working(app):
            handle = chord([sums.same.s("x" * 500) for _ in range(5)], sums.same.s())()
            with pytest.raises(TaskFailed, match=r"ChordError: 'same' is \d+ bytes .* is 2000"):
                handle.get(timeout=DEADLINE_S)


def test_a_chord_may_take_longer_than_results_are_kept(url: str, server: redis.Redis) -> None:
    with TaskApp("tests", broker=url, result_backend=url, result_expires_s=1) as app:
        sums = Sums(app)
        handle = chord([sums.same.s(1), sums.same.s(2)], sums.total.s())()
        assert handle.parent is not None
        keys = [f"celery-taskset-meta-{handle.parent.id}.{letter}" for letter in "sjd"]
        assert server.ttl(keys[0]) > 3600
        server.delete(*server.keys("tests*"), *server.keys("blimp:queue:tests:level:*"))
        app.publisher.publish(TaskMessage(**part(handle.parent.id, 0)))
        with working(app):
            wait_until(lambda: server.exists(keys[1]), "it does not count")
            assert all(server.ttl(key) > 3600 for key in keys)


@pytest.mark.parametrize(
    "meta",
    [
        '{"result": [["g", null], [[["a", null], null], [["a", null], null]]]}',
        '{"result": [["g", null], []]}',
        '{"result": ' + "[" * 2000 + "]" * 2000 + "}",
        "nonsense",
    ],
)
def test_a_shape_that_lies_is_none(sums: Sums, server: redis.Redis, meta: str) -> None:
    server.set("celery-taskset-meta-g", meta)
    server.set("celery-taskset-meta-g.s", 2)
    for index, id in enumerate("ab"):
        sums.app.publisher.publish(TaskMessage(**part("g", index, id=id) | {"args": (id,)}))
    sums.total.function = list
    with working(sums.app):
        assert sums.app.result("body").get(timeout=DEADLINE_S) == ["a", "b"]


def test_killed_between_the_record_of_the_last_part_and_the_body(sums: Sums, look: Look) -> None:
    """Its worker left the record, the counted part, and the body reserved for it."""
    app = sums.app
    assert app.results is not None
    assert app.chords is not None
    app.chords.begin([("g", 1)])
    app.results.store(Record(id="part", state=State.SUCCESS, result=7))
    body = part("g", 0)["chord"]
    left = ChordPart(group_id="g", id="part", index=0, state=State.SUCCESS, value=7, body=body)
    assert app.chords.count(left)
    good = ({"task": "good"},)
    app.publisher.publish(TaskMessage(**part("g", 0, callbacks=good, delivery=2)))
    sums.total.function = list
    with working(app) as worker:
        assert app.result("body").get(timeout=DEADLINE_S) == [7]
        wait_until(lambda: worker.counts["done"] == 3, "not all are done")
    assert sums.heard == [(7,)]
    assert look.waiting() + look.in_flight() == 0


@pytest.mark.parametrize("end", ["expired", "late", "revoked", "rejected", "early", "given up"])
def test_a_part_that_does_not_succeed_ends_its_chord(sums: Sums, end: str) -> None:
    app = sums.app

    @app.task(name="reject")
    def reject() -> None:
        raise Reject("no use", requeue=False)

    @app.task(name="early", acks_late=False)
    def early() -> None:
        raise ValueError("no")

    @app.task(name="again", autoretry_for=(ValueError,), max_retries=1, retry_backoff=False)
    def again() -> None:
        raise ValueError("no")

    parts: dict[str, Callable[[], Any]] = {
        "expired": lambda: sums.same.s(1).set(expires=-1.0),
        "late": lambda: sums.same.s(1).set(ttl_s=1e-6),
        "revoked": lambda: sums.same.s(1),
        "rejected": reject.s,
        "early": early.s,
        "given up": again.s,
    }
    one = parts[end]()
    one.link_error(sums.bad.s("part"))
    one.link(sums.good.s("part"))
    canvas = chord([one, sums.same.s(2)], sums.total.s().on_error(sums.bad.s("body")))
    handle = canvas.apply_async()
    assert isinstance(handle.parent, GroupResult)
    if end == "revoked":
        handle.parent[0].revoke()
    with working(app):
        with pytest.raises(TaskFailed, match="ChordError: Dependency"):
            handle.get(timeout=DEADLINE_S)
        sums.wait(2)
    assert sorted(sums.heard) == sorted([(handle.parent[0].id, "part"), (handle.id, "body")])


def test_a_body_that_cannot_be_enqueued_starts_after_its_queue_is_repaired(
    sums: Sums, server: redis.Redis, look: Look
) -> None:
    app = sums.app
    spoilt = Keys().queue("other").levels[2]
    server.set(spoilt, "forged")
    holder = StreamsSession(url=redis_url(app.broker))
    letters = DeadLetters(store=holder.store, queue="tests")
    with working(app):
        canvas = chord([sums.same.s(1), sums.same.s(2)], sums.total.s().set(queue="other"))
        handle = canvas.apply_async()
        wait_until(lambda: look.dead() == 1, "it is no dead letter")
        (letter,) = letters.list()
        assert "WRONGTYPE" in letter.reason
        assert letter.headers is not None
        server.delete(spoilt)
        letters.requeue(letter.id, forgetting=[f"celery-task-meta-{letter.headers['id']}"])
        wait_until(lambda: look.waiting("other") == 1, "the body does not start")
    holder.close()
    with working(app, queues=["other"]):
        assert handle.get(timeout=DEADLINE_S) == 3


def test_a_part_is_signed_for_its_place_in_its_chord() -> None:
    signer = Signer("k" * 16)
    body: dict[str, Any] = {"task": "body"}

    def words(group_id: str, index: int | None) -> tuple[str, str | int, bytes]:
        one = ChordPart(
            group_id=group_id, id="a", index=index, state=State.SUCCESS, value=3, body=body
        )
        return one.words(signer)

    member, place, entry = words("g", 1)
    assert (member, place) == ("a:1", 1)
    assert words("g", None)[:2] == ("a:+inf", "+inf")
    signer.check_appended(entry, place=part_place("g", 1.0))
    for other in (part_place("h", 1.0), part_place("g", 2.0)):
        with pytest.raises(NotGenuine):
            signer.check_appended(entry, place=other)
    client = SimpleNamespace(zrange=lambda *_, **__: [(entry, 1.0)])
    assert read_entries(client, "g", signer) == [("a", "SUCCESS", 3)]
    with pytest.raises(NotGenuine):
        read_entries(client, "h", signer)
    for size in (1, 2):  # as many as it began with
        whole = {"task": "body", "options": {SIZE: size}}
        last = ChordPart(group_id="g", id="a", index=1, state=State.SUCCESS, value=3, body=whole)
        if size == 1:
            assert _values(last, client, signer) == [3]
        else:
            with pytest.raises(NotGenuine, match="has 1 parts, and began with 2"):
                _values(last, client, signer)
