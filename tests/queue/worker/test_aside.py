"""A rolling deploy: what the code of one worker cannot run waits for a worker that can."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from blimp.errors import LinkError, TaskFailed
from blimp.queue import State, TaskApp, chain, every
from blimp.queue.brokers.base import Aside, Found
from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.envelope import Claim, post
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.protocol.record import Record
from blimp.queue.publish.publisher import make_message
from blimp.queue.redis.fleet import Member
from blimp.queue.redis.keys import QueueKeys
from tests.queue import deployed_app
from tests.queue.behaviour.conftest import session, streams
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until, working

__all__ = ["session", "streams"]
Code = Callable[..., TaskApp]


def plain(x: int) -> int:
    return x


@pytest.fixture
def code(url: str) -> Iterator[Code]:
    """Makes the app of one version of the code: its tasks by name, each with its function."""
    made = []

    def make(*, wait_s: float = 600.0, key: str | None = None, **tasks: Any) -> TaskApp:
        app = TaskApp(
            "tests", broker=url, result_backend=url, unknown_task_wait_s=wait_s, signing_key=key
        )
        made.append(app)
        for name, function in tasks.items():
            options = {} if callable(function) else function[1]
            app.task(name=name, **options)(function if callable(function) else function[0])
        return app

    yield make
    for app in made:
        app.close()


def set_aside(server: redis.Redis) -> int:
    return int(server.zcard("blimp:queue:tests:aside"))


@pytest.mark.parametrize("key", [None, "k" * 16])
def test_each_of_a_new_task_runs_beside_a_worker_that_does_not_know_it(
    code: Code, key: str | None
) -> None:
    old, new = code(key=key, old=plain), code(key=key, old=plain, new=plain)
    with working(old, name="old") as worker:
        sent = [new.tasks["new"].delay(number) for number in range(40)]
        wait_until(lambda: worker.counts["set_aside"] == 40, "it takes all")
        with working(new, name="new"):
            assert [one.get(timeout=DEADLINE_S) for one in sent] == list(range(40))
            assert old.tasks["old"].delay(1).get(timeout=DEADLINE_S) == 1


def test_what_nobody_knows_waits_and_is_a_dead_letter_then(
    code: Code, session: StreamsSession
) -> None:
    """And the letter runs when it is requeued where it is known."""
    old, new = code(wait_s=0.2, old=plain), code(old=plain, new=plain)
    letters = DeadLetters(store=session.store, queue="tests")
    with working(old, name="old") as worker:
        sent = new.tasks["new"].delay(3)
        with pytest.raises(TaskFailed, match="no task 'new'"):
            sent.get(timeout=DEADLINE_S)
        assert worker.counts["set_aside"] == 1
        wait_until(lambda: len(letters) == 1, "a dead letter")
    (letter,) = letters.list()
    assert "no task 'new'" in letter.reason
    new.results.forget(sent.id)  # type: ignore[union-attr]
    letters.requeue(letter.id)
    with working(new, name="new"):
        assert sent.get(timeout=DEADLINE_S) == 3


def test_it_waits_longer_while_one_that_knows_it_lives(code: Code, server: redis.Redis) -> None:
    """Though that one takes nothing for now."""
    old, new = code(wait_s=0.2, old=plain), code(old=plain, new=plain)
    server.set("blimp.worker.tests.busy", "its lease")
    new.fleet.announce("busy", Member(("tests",), new.versions()))
    with working(old, name="old") as worker:
        sent = new.tasks["new"].delay(3)
        wait_until(lambda: worker.counts["set_aside"] > 2, "it has waited twice")
        assert sent.state is State.PENDING
        server.delete("blimp.worker.tests.busy")
        with pytest.raises(TaskFailed, match="no task 'new'"):
            sent.get(timeout=DEADLINE_S)


def test_it_waits_no_longer_than_it_may_begin(code: Code) -> None:
    old, new = code(old=plain), code(new=plain)
    expires = datetime.now(UTC) + timedelta(seconds=0.3)
    with working(old, name="old"):
        sent = new.tasks["new"].apply_async((1,), expires=expires)
        with pytest.raises(TaskFailed, match="no task 'new'"):
            sent.get(timeout=DEADLINE_S)


async def coroutine(x: int) -> int:
    return x


async def later_coroutine(x: int, y: int) -> int:
    return x + y


def sum_of(x: int, y: int) -> int:
    return x + y


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((plain, {}), (sum_of, {})),
        ((plain, {"idempotent": False}), (sum_of, {"idempotent": False})),
        ((plain, {"autoretry_for": (TypeError,)}), (sum_of, {})),
        ((coroutine, {}), (later_coroutine, {})),
    ],
    ids=["thread", "marked", "retried", "loop"],
)
def test_a_task_whose_arguments_have_changed_runs_where_they_fit(
    code: Code, before: Any, after: Any
) -> None:
    """Both ways: a message of the old code runs in the old worker."""
    old, new = code(task=before), code(task=after)
    with working(old, name="old") as first, working(new, name="new") as second:
        sent = [new.tasks["task"].delay(number, 1) for number in range(20)]
        early = [old.tasks["task"].delay(number) for number in range(20)]
        assert [one.get(timeout=DEADLINE_S) for one in sent] == list(range(1, 21))
        assert [one.get(timeout=DEADLINE_S) for one in early] == list(range(20))
        assert first.counts["done"] + second.counts["done"] >= 40
    alone = code(task=before)  # then a wrong call fails at once
    with working(alone, name="old"), pytest.raises(TaskFailed, match="argument"):
        new.tasks["task"].delay(1, 1).get(timeout=DEADLINE_S)


def test_a_misfit_is_asked_about_again_after_an_outage(
    code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = code(task=plain), code(task=sum_of)
    can_run, lost = old.fleet.can_run, [LinkError("lost")]

    def can_run_later(*args: Any, **options: Any) -> bool:
        if lost:
            raise lost.pop()
        return can_run(*args, **options)

    monkeypatch.setattr(old.fleet, "can_run", can_run_later)
    with working(old, name="old"):
        sent = new.tasks["task"].delay(1, 2)
        with pytest.raises(TaskFailed, match="argument"):
            sent.get(timeout=DEADLINE_S)
        assert not lost


def test_three_versions_pass_it_on_until_one_can_run_it(code: Code) -> None:
    """And not round for ever if none can."""
    first, second = code(task=plain), code(task=lambda x, y, z: x + y + z)
    third = code(task=sum_of)
    with working(first, name="1") as one, working(second, name="2") as two:
        sent = third.send_task("task", (1, 2))
        with pytest.raises(TaskFailed, match="argument"):
            sent.get(timeout=DEADLINE_S)
        assert one.counts["received"] + two.counts["received"] == 2
        with working(third, name="3"):
            found = [third.tasks["task"].delay(number, 2) for number in range(20)]
            assert [one.get(timeout=DEADLINE_S) for one in found] == list(range(2, 22))


def test_a_chain_a_retry_and_a_schedule_of_new_tasks_go_on(code: Code) -> None:
    tries = []

    def flaky(x: int) -> int:
        tries.append(x)
        if len(tries) < 3:
            raise ValueError("again")
        return x

    ticked = []
    retried = {"autoretry_for": (ValueError,), "retry_backoff": 0.01}
    scheduled = (lambda: ticked.append(1), {"schedule": every("1s")})
    old = code(old=plain)
    new = code(old=plain, new=plain, flaky=(flaky, retried), tick=scheduled)
    with working(old, name="old") as worker:
        with working(new, name="new"):
            linked = chain(new.tasks["old"].s(1), new.tasks["new"].s()).apply_async()
            again = new.tasks["flaky"].delay(5)
            mapped = new.tasks["new"].map([1, 2]).apply_async()
            assert (linked.get(DEADLINE_S), again.get(DEADLINE_S)) == (1, 5)
            assert mapped.get(DEADLINE_S) == [1, 2]
            wait_until(lambda: len(ticked) > 1, "it ticks")
        worker.stop()
    with working(new, name="new"):
        before = len(ticked)
        wait_until(lambda: len(ticked) > before, "it ticks when the old worker has gone")


@pytest.mark.parametrize("victim", ["old", "new"])
def test_either_is_killed_and_nothing_is_lost_or_run_twice(
    url: str, tmp_path: Path, server: redis.Redis, victim: str,
    start_worker: Callable[..., WorkerProcess],
) -> None:  # fmt: skip
    old, new = (
        {"app": f"tests.queue.deployed_app:{name}", "name": name} for name in ("old", "new")
    )
    worker = start_worker(url, **old)
    with deployed_app.build(url, tmp_path, is_new=True) as app:
        sent = [app.tasks["new"].delay(number) for number in range(60)]
        wait_until(lambda: set_aside(server) > 5, "it sets them aside")
        if victim == "old":
            worker.kill()
            start_worker(url, **new)
        else:
            worker = start_worker(url, **new)
            wait_until(lambda: len(deployed_app.ran(tmp_path)) > 5, "it runs some")
            worker.kill()
            start_worker(url, **new)
        assert [one.get(timeout=DEADLINE_S) for one in sent] == list(range(60))
        if victim == "old":
            start_worker(url, **old)
        found = [app.tasks["pair"].delay(number, 1) for number in range(10)]
        assert [one.get(timeout=DEADLINE_S) for one in found] == list(range(1, 11))
    ran = deployed_app.ran(tmp_path)
    assert {*ran} == {*range(60)}
    assert victim == "new" or len(ran) == 60  # what a killed one had not acknowledged runs again


def test_what_is_set_aside_keeps_its_deliveries_its_place_and_its_life(
    session: StreamsSession,
) -> None:
    keys, client = session.keys.queue("q"), session.link.client
    session.store.begin([keys], known=())
    for number in range(3):
        client.xadd(
            keys.levels[2], {"h": f'{{"headers": {{"id": "{number}"}}}}', "b": "", "x": 9_000}
        )
    ((first, _), (second, _), (third, _)) = session.store.take([keys], room=3).deliveries
    session.leases.hold([first, second, third])
    for claim in (second, third, first):
        assert session.leases.set_aside(claim, Aside("t", (), 60.0)) == 1
        assert client.xlen(keys.bell) == 1, "who waits is woken by the first one"
    assert session.leases.set_aside(first, Aside("t", (), 60.0)) == 0
    taken = session.store.take([keys], room=3, knows={"u": "1"})
    assert (taken.deliveries, taken.has_aside) == ([], True)
    assert session.store.counts(keys).scheduled == 3
    assert session.store.revoke(keys, "0", b"m") is Found.MARKED
    taken = session.store.take([keys], room=1, knows={"t": "1"})
    (revoked, fields), *_ = taken.deliveries
    assert fields[4:] == [b"r", b"m"]
    (_, fields), *_ = session.store.take([keys], room=1, knows={"t": "1"}).deliveries
    assert b'"1"' in fields[1], "the order is that in which they were set aside"
    assert 0 < int(fields[5]) <= 9_000
    assert session.store.purge(keys) == 1
    assert revoked.fence == 1


def test_what_ran_before_it_was_set_aside_does_not_run_again(
    code: Code, session: StreamsSession
) -> None:
    """Its worker was killed between its result and its acknowledgement; an old one got it then."""
    ran: list[int] = []
    old, new = code(old=plain), code(new=ran.append)
    keys, store = session.keys.queue("tests"), session.store
    store.begin([keys], known=())
    sent = new.tasks["new"].delay(3)
    ((claim, _),) = store.take([keys], room=1).deliveries
    assert new.results is not None
    new.results.store(Record(id=sent.id, state=State.SUCCESS, result="first"))
    store.release([claim])
    with working(old, name="old") as worker:
        wait_until(lambda: worker.counts["set_aside"], "it is set aside")
    with working(new, name="new") as worker:
        wait_until(lambda: worker.counts["done"], "it ends")
    assert (ran, sent.get()) == ([], "first")


def held(session: StreamsSession, keys: QueueKeys, *, level: int = 2, id: str = "*") -> Claim:
    """Have a queue's only message delivered, and held; return the claim of it."""
    session.store.begin([keys], known=())
    session.link.client.xadd(keys.levels[level], {"h": "{}", "b": ""}, id=id)
    ((claim, _),) = session.store.take([keys], room=1).deliveries
    session.leases.hold([claim])
    return claim


def test_a_consumer_that_announces_nothing_gets_it_when_its_time_is_over(
    session: StreamsSession,
) -> None:
    """Such as a worker of Celery: nobody else may be there."""
    keys = session.keys.queue("q")
    claim = held(session, keys)
    session.leases.set_aside(claim, Aside("t", (), 0.05))
    wait_until(lambda: session.store.take([keys], room=1).deliveries, "it is taken")


def test_what_is_set_aside_is_purged_and_deleted_with_its_queue(session: StreamsSession) -> None:
    keys, client = session.keys.queue("q"), session.link.client
    for drop in (session.store.purge, session.store.delete):
        claim = held(session, keys)
        session.leases.set_aside(claim, Aside("t", (), 60.0))
        drop(keys)
        assert not client.exists(keys.aside, keys.messages)


def test_an_emergency_that_is_set_aside_is_taken_from_a_paused_queue(
    session: StreamsSession,
) -> None:
    keys = session.keys.queue("q")
    claim = held(session, keys, level=0)
    session.leases.set_aside(claim, Aside("t", (), 60.0))
    session.store.pause(keys)
    assert session.store.take([keys], room=1, knows={"t": "1"}).deliveries


def test_the_life_that_a_queue_gives_goes_on_while_a_message_is_set_aside(
    session: StreamsSession,
) -> None:
    keys, client = session.keys.queue("q"), session.link.client
    claim = held(session, keys, id="1-1")  # of 1970
    client.set(keys.ttl, 60_000)
    session.leases.set_aside(claim, Aside("t", (), 60.0))
    taken = session.store.take([keys], room=1, knows={"t": "1"})
    assert (taken.deliveries, taken.expired) == ([], 1)


def test_a_map_of_a_name_with_a_line_break_is_not_taken_back_at_once(code: Code) -> None:
    """Its first line is the name of a task that this worker knows."""
    app = code(known=plain)
    inner = {"task": "known\nb", "args": [], "kwargs": {}, "options": {}}
    with working(app, name="w") as worker:
        sent = app.send_task("celery.map", (), {"task": inner, "it": [1]})
        with pytest.raises(TaskFailed, match="no task"):
            sent.get(timeout=DEADLINE_S)
        assert worker.counts["received"] == 1


@pytest.mark.parametrize("field", [("x", "abc"), ("u", f"0:{'9' * 400}:")])
def test_a_strange_field_of_an_entry_costs_no_connection(
    code: Code, session: StreamsSession, field: tuple[str, str]
) -> None:
    app, letters = code(wait_s=0.2, old=plain), DeadLetters(store=session.store, queue="tests")
    message = make_message("new", (), {}, {}, defaults=None, queue="tests", now_s=0.0, origin="")
    put = post(message)
    with working(app, name="w") as worker:
        level = session.keys.queue("tests").levels[put.level]
        session.link.client.xadd(level, {"h": put.head, "b": put.body, field[0]: field[1]})
        wait_until(lambda: len(letters) == 1, "a dead letter")
        assert worker.counts["reconnects"] == 0


def test_a_misfit_keeps_the_claim_that_ends_when_its_function_is_called(
    code: Code, server: redis.Redis
) -> None:
    unique = {"unique_until": "start"}
    old, new = code(task=(plain, unique)), code(task=(sum_of, unique))
    server.set("blimp.worker.tests.busy", "its lease")
    new.fleet.announce("busy", Member(("tests",), new.versions()))
    with working(old, name="old"):
        first = new.tasks["task"].delay(1, 2)
        wait_until(lambda: set_aside(server), "it is set aside")
        assert new.tasks["task"].delay(1, 2) == first


def test_what_is_set_aside_while_it_is_looked_for_is_found(
    session: StreamsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes back to where the search has been already: it was said never to have been sent."""
    keys, store = session.keys.queue("q"), session.store
    store.begin([keys], known=())
    session.link.client.xadd(keys.levels[2], {"h": '{"headers": {"id": "0"}}', "b": "", "x": 9_000})
    ((claim, _),) = store.take([keys], room=1).deliveries
    session.leases.hold([claim])
    run = store.run

    def slow(script: str, *rest: Any) -> Any:
        if script == "revoke":
            session.leases.set_aside(claim, Aside("t", (), 60.0))
        return run(script, *rest)

    monkeypatch.setattr(store, "run", slow)
    assert store.find(keys, "0").is_aside
