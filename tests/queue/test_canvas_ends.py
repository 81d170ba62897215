"""What waits for a canvas always hears of its end: whatever is wrong with what tells of it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from blimp.errors import Refused, Reject, TaskFailed
from blimp.queue import GroupResult, State, TaskApp, chain, chord, group, signature
from blimp.queue.brokers.base import ChordPart
from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.session import StreamsSession
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Record
from blimp.queue.redis.keys import Keys
from blimp.queue.redis.urls import redis_url
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.look import Look
from tests.queue.test_canvas import Sums, part


@pytest.fixture
def sums(app: TaskApp) -> Sums:
    return Sums(app)


@pytest.fixture
def small(url: str) -> Iterator[Sums]:
    with TaskApp("tests", broker=url, result_backend=url, limit_bytes=4000) as app:
        yield Sums(app)


def test_a_chord_ends_however_long_the_words_of_what_failed(small: Sums) -> None:
    """Each chord tells of the one within, in quotes: the words would grow without end."""

    @small.app.task(name="long")
    def long() -> None:
        raise Refused("both ' and \" " * 290)

    canvas: Any = small.app.tasks["long"].s()
    for _ in range(12):
        canvas = chord([canvas, small.same.s(1)], small.total.s().on_error(small.bad.s()))
    with working(small.app):
        handle = canvas.apply_async()
        with pytest.raises(TaskFailed, match="ChordError: Dependency"):
            handle.get(timeout=DEADLINE_S)
        assert len(small.wait(12)) == 12


def test_a_chain_ends_however_long_the_words_of_what_failed(small: Sums) -> None:
    @small.app.task(name="l")
    def long() -> None:
        raise Refused("x" * 3600)

    name = "x" * 250
    with working(small.app):
        handle = (small.app.tasks["l"].s() | signature(name)).apply_async()
        assert handle.parent is not None
        with pytest.raises(Refused):
            handle.parent.get(timeout=DEADLINE_S)
        with pytest.raises(Refused, match="xxx"):
            handle.get(timeout=DEADLINE_S)


WRONG = {"task": "bad", "options": {"countdown": "soon"}}


def test_an_errback_that_cannot_be_begun_keeps_no_end_back(sums: Sums, look: Look) -> None:
    other = {"task": "bad", "args": ["other"]}
    log = Silence()
    with working(sums.app, log=log):
        alone = sums.app.send_task("fail", link_error=[WRONG, other])
        with pytest.raises(TaskFailed, match="no"):
            alone.get(timeout=DEADLINE_S)
        assert sums.wait() == [(alone.id, "other")]
        wait_until(lambda: look.waiting() + look.in_hand() == 0, "it is not acknowledged")
    assert look.dead() == 0
    (told,) = log.events("errback")
    assert "'countdown' is 'soon'" in told["reason"]


@pytest.mark.parametrize("where", ["part", "body"])
def test_a_chord_ends_where_an_errback_cannot_be_begun(sums: Sums, where: str) -> None:
    fails, body = sums.fail.s(), sums.total.s()
    (fails if where == "part" else body).link_error(WRONG)
    with working(sums.app):
        handle = chord([fails, sums.same.s(1)], body)()
        with pytest.raises(TaskFailed, match="ChordError: Dependency"):
            handle.get(timeout=DEADLINE_S)


def test_a_part_ends_whose_words_json_cannot_hold(sums: Sums) -> None:
    @sums.app.task(name="odd", ignore_result=True)
    def odd() -> None:
        raise ValueError("\udc80")

    with working(sums.app):
        handle = chord([odd.s(), sums.same.s(1)], sums.total.s())()
        with pytest.raises(TaskFailed, match="ChordError: Dependency"):
            handle.get(timeout=DEADLINE_S)


def test_a_chord_may_take_longer_than_results_are_kept(url: str, server: redis.Redis) -> None:
    with TaskApp("tests", broker=url, result_backend=url, result_expires_s=1) as app:
        sums = Sums(app)
        handle = chord([sums.same.s(1), sums.same.s(2)], sums.total.s())()
        assert handle.parent is not None
        keys = [f"celery-taskset-meta-{handle.parent.id}.{letter}" for letter in "sjd"]
        assert server.ttl(keys[0]) > 3600
        server.delete(*server.keys("tests*"), *server.keys("blimp:queue:tests:lane:*"))
        app.publisher.publish(TaskMessage(**part(handle.parent.id, 0)))
        with working(app):
            wait_until(lambda: server.exists(keys[1]), "it does not count")
            assert all(server.ttl(key) > 3600 for key in keys)


@pytest.mark.parametrize(
    "meta",
    [
        '{"result": [["g", null], [[["a", null], null]]]}',
        '{"result": [["g", null], [[["a", null], null], [["a", null], null]]]}',
        '{"result": [["g", null], []]}',
        '{"result": ' + "[" * 2000 + "]" * 2000 + "}",
        '{"result": 7}',
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


def test_a_part_of_another_that_is_nested_too_deep_fails_its_chord(
    sums: Sums, server: redis.Redis
) -> None:
    server.zadd("celery-taskset-meta-g.j", {'[1, "x", "SUCCESS", ' + "[" * 2000 + "]" * 2001: 0})
    server.set("celery-taskset-meta-g.s", 2)
    sums.app.publisher.publish(TaskMessage(**part("g", 1)))
    with working(sums.app), pytest.raises(TaskFailed, match="ChordError"):
        sums.app.result("body").get(timeout=DEADLINE_S)


def test_a_canvas_has_the_arguments_it_was_cloned_with(sums: Sums) -> None:
    made = {
        "chain": chain(sums.add.s(1), sums.add.s(1)),
        "group": group(sums.add.s(1), sums.add.s(2)),
        "chord": chord([sums.add.s(1), sums.add.s(2)], sums.total.s()),
    }
    with working(sums.app):
        sent = {name: one.clone((5,)).apply_async() for name, one in made.items()}
        found = {name: one.get(timeout=DEADLINE_S) for name, one in sent.items()}
    assert found == {"chain": 7, "group": [6, 7], "chord": 13}


def test_killed_between_the_record_of_the_last_part_and_the_body(sums: Sums, look: Look) -> None:
    """What its worker left: the record, the part counted, and its claim to begin the body."""
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
    assert look.waiting() + look.in_hand() == 0


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


def test_tasks_acknowledged_early_go_on_with_their_canvas(sums: Sums) -> None:
    app = sums.app
    early = app.task(name="early", acks_late=False, ignore_result=True)(lambda value: value)
    with working(app) as worker:
        handle = chord([early.s(1) | early.s() | early.s(), early.s(2)], sums.total.s())()
        assert handle.get(timeout=DEADLINE_S) == 3
        wait_until(lambda: worker.counts["done"] == 5, "not all are done")


def test_a_body_that_cannot_be_enqueued_begins_once_its_queue_is_put_right(
    sums: Sums, server: redis.Redis, look: Look
) -> None:
    app = sums.app
    spoilt = Keys().queue("other").lanes[2]
    server.set(spoilt, "forged")
    holder = StreamsSession(url=redis_url(app.broker), options={})
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
        wait_until(lambda: look.waiting("other") == 1, "the body does not begin")
    holder.close()
    with working(app, queues=["other"]):
        assert handle.get(timeout=DEADLINE_S) == 3
