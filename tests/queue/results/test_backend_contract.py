"""What every result backend does: Redis, SQLite, PostgreSQL, MariaDB, and that of tests."""

import threading
from collections.abc import Iterator

import pytest
import redis

from blimp.clock import SystemClock
from blimp.errors import ResultError
from blimp.queue import TaskApp
from blimp.queue.protocol.record import FINAL, Fault, Record, State
from blimp.queue.redis.client import RedisServer
from blimp.queue.results.backend import ResultBackend
from blimp.queue.results.redis_backend import RedisResults
from blimp.queue.testing import in_process
from tests.broker import EmbeddedBroker
from tests.queue.results.conftest import database_of

DEADLINE_S = 60.0
BACKENDS = [
    "redis",
    "sqlite",
    "sqlite, published",
    "postgresql",
    "postgresql, published",
    "mariadb",
    "in process",
]


@pytest.fixture(params=BACKENDS)
def results(
    request: pytest.FixtureRequest, broker_server: EmbeddedBroker, server: redis.Redis
) -> Iterator[ResultBackend]:
    backend, _, published = request.param.partition(", ")
    link = RedisServer(broker_server.url)
    if backend == "redis":
        yield RedisResults(server=link, clock=SystemClock())
    elif backend == "in process":
        app = TaskApp("tested", broker=broker_server.url, result_backend=broker_server.url)
        with in_process(app):
            assert app.results is not None
            yield app.results
    else:
        request.getfixturevalue("names")  # of this test alone
        open_results = request.getfixturevalue("open_results")
        yield open_results(notify_server=link if published else None)
    link.close()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    """The one that `results` asks for."""
    return database_of(request, request.node.callspec.params["results"].partition(", ")[0])


def test_what_is_written_is_read_again(results: ResultBackend) -> None:
    for number, value in enumerate([None, 0, "ä\0\n", [1, {"x": 1.5}], {"blimp_state": "x"}, True]):
        record = Record(
            id=f"{number}",
            state=State.SUCCESS,
            result=value,
            date_done="2026-11-20T13:02:03.477079+00:00",
        )
        assert results.store(record)
        assert results.get(record.id) == record


@pytest.mark.parametrize("state", sorted(FINAL - {State.SUCCESS}))
def test_our_finer_states_and_their_reasons_stay(results: ResultBackend, state: State) -> None:
    fault = Fault(exc_type="ValueError", exc_message=["x", 3], exc_module="builtins")
    record = Record(
        id="a", state=state, fault=fault, traceback="Traceback …", date_done="2026-11-20T13:02:03Z"
    )
    assert results.store(record)
    found = results.get("a")
    assert (found.state, found.fault, found.traceback) == (state, fault, "Traceback …")
    assert results.store(Record(id="b", state=state))
    assert results.get("b").state is state


def test_a_final_state_stays(results: ResultBackend) -> None:
    for first in FINAL:
        assert results.store(Record(id=first, state=first, result=1))
        for second in State:
            assert not results.store(Record(id=first, state=second, result=2))
        assert results.get(first).state is first


def test_states_under_way_give_way(results: ResultBackend) -> None:
    for state in (State.STARTED, State.PROGRESS, State.RETRY, State.STARTED, State.SUCCESS):
        assert results.store(Record(id="a", state=state, result={"fraction": 0.5}))
        assert results.get("a").state is state
    assert results.get("a").result == {"fraction": 0.5}


def test_what_is_unknown_is_pending_and_what_is_known_can_be_forgotten(
    results: ResultBackend,
) -> None:
    assert results.get("a") == Record(id="a", state=State.PENDING)
    assert results.read("a") is None
    results.forget("a")
    results.store(Record(id="a", state=State.SUCCESS))
    results.forget("a")
    assert results.get("a").state is State.PENDING


def test_one_moment_whatever_the_time_zone(results: ResultBackend) -> None:
    results.store(Record(id="a", state=State.SUCCESS, date_done="2026-11-20T13:02:03+05:30"))
    found = results.get("a").date_done
    assert found in ("2026-11-20T07:32:03+00:00", "2026-11-20T13:02:03+05:30")


def test_many_are_written_in_order_each_with_its_own_answer(results: ResultBackend) -> None:
    results.store(Record(id="stands", state=State.FAILURE))
    records = [
        Record(id="a", state=State.STARTED),
        Record(id="stands", state=State.SUCCESS),
        Record(id="a", state=State.SUCCESS, result=1),
        Record(id="b", state=State.REVOKED),
        Record(id="a", state=State.FAILURE),
    ]
    answers = results.write_many([(one.id, results.encode(one)) for one in records])
    assert answers == [True, False, True, True, False]
    assert results.get("a").result == 1
    assert results.write_many([]) == []


def test_of_many_who_end_the_same_tasks_each_is_ended_once(results: ResultBackend) -> None:
    ids = [str(number) for number in range(40)]
    answers: list[list[bool | ResultError]] = []
    begin = threading.Barrier(8)

    def end(who: int) -> None:
        mine = ids if who % 2 else ids[::-1]
        data = [(id, results.encode(Record(id=id, state=State.SUCCESS, result=who))) for id in mine]
        begin.wait(DEADLINE_S)
        found = results.write_many(data)
        answers.append(found if who % 2 else found[::-1])

    threads = [threading.Thread(target=end, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(answers) == 8
    for one in zip(*answers, strict=True):
        assert sorted(one) == [False] * 7 + [True]


def test_a_result_that_json_cannot_hold_or_above_the_limit_is_refused(
    results: ResultBackend,
) -> None:
    for value in (float("nan"), {1}, "x" * 1_000_000):
        with pytest.raises(ResultError, match="weather returned"):
            results.store(Record(id="a", state=State.SUCCESS, result=value, name="weather"))
    assert results.read("a") is None


def test_a_watch_sees_what_was_stored_before_and_what_comes(results: ResultBackend) -> None:
    results.store(Record(id="a", state=State.STARTED))
    with results.watch("a") as watch:
        first = watch.next(timeout_s=DEADLINE_S)
        assert first is not None
        assert first.state is State.STARTED
        assert watch.next(timeout_s=0.0) is None
        results.store(Record(id="a", state=State.PROGRESS, result={"fraction": 0.4}))
        second = watch.next(timeout_s=DEADLINE_S)
        assert second is not None
        assert second.result == {"fraction": 0.4}
        watch.close()
        assert watch.next(timeout_s=DEADLINE_S) is None


def test_a_watch_of_several_sees_each_of_them_end_once(results: ResultBackend) -> None:
    ids = [str(number) for number in range(6)]
    for id in ids[:3]:
        results.store(Record(id=id, state=State.SUCCESS, result=id))
    with results.watch(*ids) as watch:
        seen = [watch.next(timeout_s=DEADLINE_S) for _ in ids[:3]]
        assert watch.next(timeout_s=0.0) is None
        for id in reversed(ids[3:]):
            results.store(Record(id=id, state=State.STARTED))
            results.store(Record(id=id, state=State.SUCCESS, result=id))
        while sum(one is not None and one.final for one in seen) < len(ids):
            seen.append(watch.next(timeout_s=DEADLINE_S))
            assert seen[-1] is not None, "no word of an end"
        assert watch.next(timeout_s=0.0) is None
    assert sorted(one.result for one in seen if one is not None and one.final) == ids


def test_failures_are_listed_the_newest_first_and_can_be_forgotten(results: ResultBackend) -> None:
    fault = Fault(exc_type="ValueError", exc_message=["why"])
    for number, state in enumerate(sorted(State)):
        results.store(
            Record(
                id=str(state),
                state=state,
                fault=fault if state in FINAL - {State.SUCCESS} else None,
                name="weather",
                date_done=f"2026-11-20T13:02:{number:02}+00:00",
            )
        )
    listed = {State.FAILURE, State.REFUSED, State.INTERRUPTED}  # what Celery calls a failure
    found = results.failures(limit=10)
    assert {one.state for one in found} == listed
    assert {(one.id, one.reason) for one in found} == {(str(one), "why") for one in listed}
    assert len(results.failures(limit=2)) == 2
    results.forget(State.FAILURE)
    assert {one.state for one in results.failures(limit=10)} == listed - {State.FAILURE}


def test_a_group_is_kept_replaced_and_forgotten(results: ResultBackend) -> None:
    document = {"result": [["g", None], [[["a", None], None]]]}
    assert results.group("g") is None
    results.save_group("g", {"result": []})
    results.save_group("g", document)
    assert results.group("g") == document
    results.forget_group("g")
    assert results.group("g") is None


def test_a_closed_backend_opens_again_when_it_is_used(results: ResultBackend) -> None:
    results.prepare()
    results.store(Record(id="a", state=State.SUCCESS))
    results.close()
    results.close()
    assert results.get("a").final
    assert results.cleanup() == 0
