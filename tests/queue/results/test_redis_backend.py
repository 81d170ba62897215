"""Results: Celery's records and keys, final states that stay, and waiting for them."""

import json
import threading

import pytest
import redis

from blimp.clock import SystemClock
from blimp.errors import (
    Expired,
    Interrupted,
    LinkError,
    Refused,
    ResultError,
    Revoked,
    Superseded,
    TaskError,
    TaskFailed,
)
from blimp.queue import TaskApp
from blimp.queue.protocol.record import FINAL, Fault, Record, State, encode
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.client import RedisServer
from blimp.queue.redis.keys import FAILED_RESULTS, result_key
from blimp.queue.results.redis_backend import RedisResults
from tests.queue.conftest import DEADLINE_S, wait_until

LIMIT = 1_000_000


@pytest.fixture
def results(app: TaskApp) -> RedisResults:
    assert isinstance(app.results, RedisResults)
    return app.results


def test_the_key_is_celerys_and_expires(results: RedisResults, server: redis.Redis) -> None:
    assert results.store(Record(id="a", state=State.SUCCESS, result=1))
    stored = server.get("celery-task-meta-a")
    assert isinstance(stored, bytes)
    assert json.loads(stored)["result"] == 1
    lifetime_s = server.ttl("celery-task-meta-a")
    assert isinstance(lifetime_s, int)
    assert 86_000 < lifetime_s <= 86_400


@pytest.mark.parametrize("first", sorted(FINAL))
def test_a_final_state_stays(results: RedisResults, first: State) -> None:
    assert results.store(Record(id="a", state=first))
    for second in State:
        assert not results.store(Record(id="a", state=second)), second
        assert results.get("a").state is first, second


def test_a_spoilt_record_can_be_replaced(results: RedisResults, server: redis.Redis) -> None:
    server.set("celery-task-meta-a", "not json")
    assert results.store(Record(id="a", state=State.SUCCESS))


@pytest.mark.parametrize("result", [r'"\ud800"', "[" * 1100 + "]" * 1100], ids=["text", "nested"])
def test_a_final_record_stays_that_the_servers_json_cannot_read(
    results: RedisResults, server: redis.Redis, result: str
) -> None:
    record = f'{{"status": "SUCCESS", "result": {result}, "task_id": "a"}}'
    server.set("celery-task-meta-a", record)
    assert not results.store(Record(id="a", state=State.PROGRESS))
    assert server.get("celery-task-meta-a") == record.encode()


def test_a_watch_sees_what_was_stored_before_and_what_comes(results: RedisResults) -> None:
    results.store(Record(id="a", state=State.STARTED))
    with results.watch("a") as watch:
        first = watch.next(timeout_s=5.0)
        assert first is not None
        assert first.state is State.STARTED
        for fraction in (0.2, 0.4):
            results.store(Record(id="a", state=State.PROGRESS, result={"fraction": fraction}))
        seen = [watch.next(timeout_s=5.0) for _ in range(2)]
        assert [record.result["fraction"] for record in seen if record] == [0.2, 0.4]
        assert watch.next(timeout_s=0.0) is None
        watch.close()
        assert watch.next(timeout_s=1.0) is None


def test_what_was_published_before_a_look_comes_before_what_it_reads(
    results: RedisResults,
) -> None:
    """Also if the time of `next` is up by then, as in a process that stood still meanwhile."""
    with results.watch("a") as watch:
        for fraction in (0.2, 0.4):
            results.store(Record(id="a", state=State.PROGRESS, result={"fraction": fraction}))
        seen = [watch.next(timeout_s=0.0) for _ in range(9)]
    assert [record.result["fraction"] for record in seen if record] == [0.2, 0.4]


def test_a_watch_sees_what_was_stored_before_a_task_is_added(
    results: RedisResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have ended between a caller's look and the server's reading of the subscription."""
    monkeypatch.setattr("blimp.queue.results.redis_backend.LOOK_AGAIN_S", 2 * DEADLINE_S)
    with results.watch("a") as watch:
        assert watch.next(timeout_s=0.0) is None
        results.store(Record(id="b", state=State.SUCCESS))
        watch.add("b")
        record = watch.next(timeout_s=DEADLINE_S)
        assert record is not None
        assert (record.id, record.final) == ("b", True)


def test_a_watch_reads_what_is_stored_if_the_publication_was_lost(
    results: RedisResults, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blimp.queue.results.redis_backend.LOOK_AGAIN_S", 0.1)
    with results.watch("a") as watch:
        assert watch.next(timeout_s=0.0) is None
        data = encode(Record(id="a", state=State.SUCCESS), limit_bytes=LIMIT)
        server.set("celery-task-meta-a", data)  # without PUBLISH
        record = watch.next(timeout_s=5.0)
        assert record is not None
        assert record.final


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (State.REFUSED, Refused),
        (State.EXPIRED, Expired),
        (State.INTERRUPTED, Interrupted),
        (State.FAILURE, TaskFailed),
        (State.REVOKED, Revoked),
        (State.SUPERSEDED, Superseded),
    ],
)
def test_get_raises_what_became_of_it(
    app: TaskApp, results: RedisResults, state: State, kind: type[TaskError]
) -> None:
    results.store(Record(id="a", state=state, fault=Fault(exc_type="E", exc_message=["why"])))
    with pytest.raises(kind, match="why"):
        app.result("a").get(timeout=5.0)


@pytest.mark.parametrize("data", [b"", b"[]", b"\x80\x05N."])
def test_a_spoilt_group_is_an_error_that_names_it(
    results: RedisResults, server: redis.Redis, data: bytes
) -> None:
    server.set("celery-taskset-meta-g", data)
    with pytest.raises(ResultError, match=rf"celery-taskset-meta-g of {len(data)} bytes"):
        results.group("g")


def test_many_are_written_at_once_and_a_refused_one_spoils_no_other(
    results: RedisResults, server: redis.Redis
) -> None:
    server.lpush("celery-task-meta-b", "a list")
    results.store(Record(id="c", state=State.SUCCESS, result="first"))
    records = [(id, results.encode(Record(id=id, state=State.SUCCESS, result=id))) for id in "abc"]
    first, second, third = results.write_many(records)
    assert (first, third) == (True, False)
    assert isinstance(second, ResultError)
    assert "celery-task-meta-b: WRONGTYPE" in str(second)
    assert results.get("a").result == "a"
    assert results.get("c").result == "first"


def test_results_are_kept_for_ever_where_that_is_asked_for(url: str, server: redis.Redis) -> None:
    results = RedisResults(server=RedisServer(url), clock=SystemClock(), keep_s=0)
    results.store(Record(id="a", state=State.SUCCESS))
    results.save_group("g", {"result": []})
    assert server.ttl("celery-task-meta-a") == -1
    assert server.ttl("celery-taskset-meta-g") == -1
    results.close()


def test_a_waiter_gets_an_error_when_its_connection_is_closed(results: RedisResults) -> None:
    ended: list[BaseException] = []
    watch = results.watch("never")
    assert watch.next(timeout_s=0.0) is None

    def wait() -> None:
        try:
            watch.next(timeout_s=DEADLINE_S)
        except BaseException as error:
            ended.append(error)

    def close() -> bool:  # as the client's `close` does, until it comes at the wrong moment
        watch._pubsub.connection.disconnect()
        return not thread.is_alive()

    thread = threading.Thread(target=wait)
    thread.start()
    with watch:
        wait_until(close, "it waits on")
    assert [type(error) for error in ended] == [LinkError]


def test_the_index_of_failures_is_bounded_and_leaves_out_what_has_expired(
    results: RedisResults, server: redis.Redis
) -> None:
    server.zadd(FAILED_RESULTS, {f"old{number}": 0.0 for number in range(10_000)})
    results.store(Record(id="a", state=State.FAILURE))
    assert server.zcard(FAILED_RESULTS) == 1  # the others are older than results are kept
    now_s = float(server.time()[0])
    server.zadd(FAILED_RESULTS, {f"recent{number}": now_s for number in range(10_000)})
    results.store(Record(id="b", state=State.FAILURE))
    assert server.zcard(FAILED_RESULTS) == 10_000
    assert {one.id for one in results.failures(limit=5)} <= {"a", "b"}
    results.store(Record(id="x" * 256, state=State.FAILURE))
    assert server.zscore(FAILED_RESULTS, "x" * 256) is None


def test_failures_of_one_second_are_listed_the_newest_first(results: RedisResults) -> None:
    ids = list("dacb")
    for id in ids:
        results.store(Record(id=id, state=State.FAILURE))
    assert [one.id for one in results.failures(limit=9)] == ids[::-1]


def test_reports_that_are_published_while_a_watch_begins_come_once_and_in_order(
    results: RedisResults,
) -> None:
    """The newest of them is stored, too, and was returned first."""
    with results.watch("a") as watch:
        for at in range(3):
            results.store(Record(id="a", state=State.PROGRESS, result={"at": at}))
        found = [watch.next(timeout_s=1.0) for _ in range(3)]
        assert [one and one.result for one in found] == [{"at": 0}, {"at": 1}, {"at": 2}]
        assert watch.next(timeout_s=0.0) is None


def test_what_was_read_before_it_was_published_comes_once(
    results: RedisResults, server: redis.Redis
) -> None:
    """A database commits a record first, and publishes it then."""
    begun, ended = (
        results.encode(Record(id="a", state=state)) for state in (State.STARTED, State.SUCCESS)
    )
    key = result_key("a")
    server.set(key, begun)
    with results.watch("a") as watch:
        first = watch.next(timeout_s=DEADLINE_S)
        server.publish(key, begun)
        server.publish(key, ended)
        second = watch.next(timeout_s=DEADLINE_S)
    assert [record and record.state for record in (first, second)] == [State.STARTED, State.SUCCESS]


def test_what_was_published_first_comes_before_what_was_read(
    results: RedisResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server sends it to the subscribed connection after it has answered the read."""
    with results.watch("a") as watch:
        receive = watch._pubsub.get_message
        monkeypatch.setattr(
            watch._pubsub, "get_message", lambda timeout: receive(timeout=timeout or 0.001)
        )
        assert watch.next(timeout_s=0.0) is None
        monkeypatch.setattr(
            watch._pubsub,
            "get_message",
            lambda timeout: receive(timeout=timeout) if timeout else None,
        )
        for at in range(3):
            results.store(Record(id="a", state=State.PROGRESS, result={"at": at}))
        watch._looked_s = None  # it reads again
        found = [watch.next(timeout_s=DEADLINE_S) for _ in range(3)]
    assert [one and one.result for one in found] == [{"at": 0}, {"at": 1}, {"at": 2}]


def test_with_a_key_only_records_of_that_key_and_task_are_results(
    url: str, results: RedisResults
) -> None:
    """Read, waited for and listed: what is not signed is a PENDING record that says why."""
    signed, other = (
        RedisResults(server=RedisServer(url), clock=SystemClock(), signer=Signer(key * 16))
        for key in "ko"
    )
    try:
        with signed.watch("a", "b") as watch:
            for forger, forged in ((results, "a"), (other, "c")):
                forger.store(Record(id=forged, state=State.FAILURE, name="t"))
                found = signed.get(forged)
                assert (found.state, bool(found.reason)) == (State.PENDING, True)
                assert signed.failures(limit=9) == []
            assert signed.store(Record(id="a", state=State.SUCCESS, result=1))
            assert not results.store(Record(id="a", state=State.FAILURE))  # a true one stays
            record = watch.next(timeout_s=DEADLINE_S)
            assert record is not None
            assert (record.id, record.result) == ("a", 1)
            assert watch.forged >= 1
        data = signed.read("a")
        assert data is not None
        signed.write("b", data)
        assert signed.get("b").state is State.PENDING
        assert signed.get("a").result == 1
    finally:
        signed.close()
        other.close()
