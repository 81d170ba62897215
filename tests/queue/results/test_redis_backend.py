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
from blimp.queue.protocol.record import FINAL, Fault, Record, State, decode, encode
from blimp.queue.redis.client import RedisServer
from blimp.queue.redis.keys import FAILED_RESULTS
from blimp.queue.results.handle import error_of
from blimp.queue.results.redis_backend import RedisResults
from tests.queue.conftest import DEADLINE_S, wait_until, working

LIMIT = 1_000_000


@pytest.fixture
def results(app: TaskApp) -> RedisResults:
    assert isinstance(app.results, RedisResults)
    return app.results


def test_a_success_is_written_as_celery_writes_it() -> None:
    record = Record(
        id="a", state=State.SUCCESS, result={"x": 1}, date_done="2026-11-20T13:02:03+00:00"
    )
    document = json.loads(encode(record, limit_bytes=LIMIT))
    assert document["status"] == "SUCCESS"
    assert document["result"] == {"x": 1}
    assert document["task_id"] == "a"
    assert document["children"] == []
    assert document["traceback"] is None
    assert document["date_done"] == "2026-11-20T13:02:03+00:00"
    assert "blimp_state" not in document


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (State.REFUSED, "FAILURE"),
        (State.INTERRUPTED, "FAILURE"),
        (State.EXPIRED, "REVOKED"),
        (State.FAILURE, "FAILURE"),
    ],
)
def test_an_end_that_celery_does_not_know_is_final_for_it_too(state: State, status: str) -> None:
    fault = Fault(exc_type="Refused", exc_message=["the battery is low"])
    record = Record(id="a", state=state, fault=fault)
    data = encode(record, limit_bytes=LIMIT)
    document = json.loads(data)
    assert document["status"] == status
    assert document["result"] == {
        "exc_type": "Refused",
        "exc_message": ["the battery is low"],
        "exc_module": "blimp.errors",
    }
    assert decode(data) == record
    assert decode(data).reason == "the battery is low"


def test_reads_a_failure_that_celery_wrote() -> None:
    record = decode(
        b'{"status": "FAILURE", "result": {"exc_type": "ValueError", "exc_message": ["x", 3], '
        b'"exc_module": "builtins"}, "traceback": "Traceback", "children": [], '
        b'"date_done": "2026-11-20T13:02:03.477079+00:00", "task_id": "a"}'
    )
    assert record.state is State.FAILURE
    assert record.reason == "x 3"
    error = error_of(record)
    assert isinstance(error, TaskFailed)
    assert (error.kind, error.trace) == ("ValueError", "Traceback")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"status": "ODD", "task_id": "a"}'])
def test_a_record_that_is_none_is_an_error(data: bytes) -> None:
    with pytest.raises(ResultError, match="cannot be read"):
        decode(data)


@pytest.mark.parametrize("value", [float("nan"), {1}, object(), "\ud800"])
def test_what_json_cannot_hold_is_named(value: object) -> None:
    with pytest.raises(ResultError, match="weather returned what JSON cannot hold"):
        encode(Record(id="a", state=State.SUCCESS, result=value, name="weather"), limit_bytes=LIMIT)


def test_a_result_above_the_limit_is_named() -> None:
    record = Record(id="a", state=State.SUCCESS, result="x" * 100, name="weather")
    with pytest.raises(ResultError, match=r"weather returned \d+ bytes as JSON: the limit is 99"):
        encode(record, limit_bytes=99)


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


def test_states_under_way_give_way(results: RedisResults) -> None:
    for state in (State.STARTED, State.PROGRESS, State.RETRY, State.STARTED, State.SUCCESS):
        assert results.store(Record(id="a", state=state))
    assert results.get("a").state is State.SUCCESS


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


def test_an_unknown_task_is_pending_and_can_be_forgotten(results: RedisResults) -> None:
    assert results.get("a").state is State.PENDING
    results.store(Record(id="a", state=State.SUCCESS))
    results.forget("a")
    assert results.get("a").state is State.PENDING


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


def test_waiting_ends_when_the_result_is_there(app: TaskApp, results: RedisResults) -> None:
    handle = app.result("a")
    store = threading.Timer(
        0.05, lambda: results.store(Record(id="a", state=State.SUCCESS, result=[1, 2]))
    )
    store.start()
    assert handle.get(timeout=5.0) == [1, 2]
    assert handle.ready()
    assert handle.record.final
    handle.forget()
    assert not handle.ready()
    store.join()


def test_waiting_ends_after_its_timeout(app: TaskApp, results: RedisResults) -> None:
    results.store(Record(id="a", state=State.PROGRESS, result={"fraction": 0.4}))
    handle = app.result("a")
    assert handle.progress == {"fraction": 0.4}
    with pytest.raises(TimeoutError, match="task a is PROGRESS after 0"):
        handle.get(timeout=0.0)


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


def test_an_app_without_results_says_so(url: str) -> None:
    with (
        TaskApp("none", broker=url) as app,
        pytest.raises(TaskError, match="app 'none' keeps no results"),
    ):
        _ = app.result("a").state


def test_without_a_server_the_error_names_it() -> None:
    server = RedisServer("redis+socket:///nowhere/at/all.sock?virtual_host=0")
    results = RedisResults(server=server, clock=SystemClock())
    with pytest.raises(LinkError, match=r"no broker at redis\+socket:///nowhere/at/all.sock"):
        results.get("a")
    results.close()


def test_what_a_group_is_made_of_is_kept_under_celerys_key(
    results: RedisResults, server: redis.Redis
) -> None:
    document = {"result": [["g", None], [[["a", None], None]]]}
    assert results.group("g") is None
    results.save_group("g", document)
    assert results.group("g") == document
    stored = server.get("celery-taskset-meta-g")
    assert isinstance(stored, bytes)
    assert json.loads(stored) == document
    assert 86_000 < int(server.ttl("celery-taskset-meta-g")) <= 86_400
    results.forget_group("g")
    assert results.group("g") is None


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


def test_a_failure_is_listed_once_and_a_success_is_not(
    results: RedisResults, server: redis.Redis
) -> None:
    for id in ("a", "a", "b"):
        results.store(Record(id=id, state=State.FAILURE))
    results.store(Record(id="c", state=State.SUCCESS, result={"status": "FAILURE"}))
    assert sorted(one.id for one in results.failures(limit=10)) == ["a", "b"]


def test_a_failure_is_listed_that_a_worker_completed(
    app: TaskApp, results: RedisResults, server: redis.Redis
) -> None:
    @app.task(name="fail")
    def fail() -> None:
        raise ValueError("the valve is shut")

    with working(app):
        handle = fail.delay()
        assert handle.wait(DEADLINE_S).state is State.FAILURE
        assert [(one.id, one.name) for one in results.failures(limit=10)] == [(handle.id, "fail")]


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
