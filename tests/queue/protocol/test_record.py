"""Exceptions in records: Celery's names and arguments outside, ours inside."""

import json
from typing import Any

import pytest

from blimp import errors
from blimp.errors import ResultError, TaskFailed
from blimp.queue.protocol.record import (
    Fault,
    Record,
    State,
    decode,
    encode,
    fault_of,
    open_record,
    result_place,
)
from blimp.queue.protocol.signing import Signer
from blimp.queue.results.handle import error_of

LIMIT = 1_000_000


def record(error: BaseException, state: State = State.FAILURE) -> Record:
    return Record(id="a", state=state, fault=fault_of(error))


def written(error: BaseException, state: State = State.FAILURE) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode(record(error, state), limit_bytes=9999))["result"]
    return found


@pytest.mark.parametrize(
    ("error", "state", "name"),
    [
        (errors.Revoked("r"), State.REVOKED, "TaskRevokedError"),
        (errors.Expired("r"), State.EXPIRED, "TaskRevokedError"),
        (errors.Superseded("r"), State.SUPERSEDED, "TaskRevokedError"),
        (errors.SoftTimeLimitExceeded("r"), State.FAILURE, "SoftTimeLimitExceeded"),
        (errors.TimeLimitExceeded("r"), State.FAILURE, "TimeLimitExceeded"),
        (errors.WorkerLost("r"), State.FAILURE, "WorkerLostError"),
        (errors.MaxRetriesExceeded("r"), State.FAILURE, "MaxRetriesExceededError"),
        (errors.Reject("r"), State.FAILURE, "Reject"),
        (errors.UnknownTask("r"), State.FAILURE, "NotRegistered"),
    ],
)
def test_celery_s_names_are_written_and_ours_are_read(
    error: Exception, state: State, name: str
) -> None:
    assert written(error, state) == {
        "exc_type": name,
        "exc_message": ["r"],
        "exc_module": "celery.exceptions",
    }
    assert decode(encode(record(error, state), limit_bytes=9999)) == record(error, state)


def test_a_refusal_keeps_its_name() -> None:
    assert written(errors.Refused("r"), State.REFUSED)["exc_module"] == "blimp.errors"


def test_arguments_are_written_one_by_one() -> None:
    found = written(ValueError("the valve", 3, {"open": [True]}, {1}, object))
    assert found["exc_message"] == ["the valve", 3, {"open": [True]}, "{1}", "<class 'object'>"]


class Odd(Exception):
    """Says something else than its arguments."""

    def __str__(self) -> str:
        return f"odd: {self.args[0] + 1}"


def test_what_an_exception_says_is_kept_for_people() -> None:
    assert decode(encode(record(Odd(3)), limit_bytes=9999)).reason == "odd: 4"
    assert written(Odd(3))["exc_message"] == [3]
    assert record(FileNotFoundError(2, "none")).reason == "[Errno 2] none"


def test_a_group_names_what_is_inside() -> None:
    group = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("in", [KeyError("g")])])
    assert fault_of(group).text == "two (2 sub-exceptions) [ValueError: a; KeyError: 'g']"
    outer = RuntimeError("no batch")
    outer.__cause__ = BaseExceptionGroup("many", [OSError(number) for number in range(500)])
    said = fault_of(outer).text
    assert said.startswith("no batch (from ExceptionGroup: many (500 sub-exceptions) [OSError: 0;")
    assert said.endswith("; OSError: 9; more])")


def test_an_argument_whose_repr_raises_is_named() -> None:
    class Worse:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    error = Odd(1)
    error.args = (1, Worse())
    assert fault_of(error).exc_message[1] == "<Worse, whose repr raises RuntimeError>"


def test_a_nested_class_has_its_full_name_and_a_local_one_its_own() -> None:
    class Local(Exception):
        pass

    assert fault_of(Holder.Inner("x")).exc_type == "Holder.Inner"
    assert fault_of(Local("x")).exc_type == "Local"


class Holder:
    class Inner(Exception):
        pass


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


def test_a_record_of_ours_is_of_one_task_and_of_our_key() -> None:
    record, signer = Record(id="a", state=State.SUCCESS, result=1), Signer("k" * 16)
    data = encode(record, limit_bytes=LIMIT)
    signed = signer.append_to(data, place=result_place("a"))
    assert open_record("a", signed, signer=signer) == record
    for id, given in (
        ("a", data),
        ("b", signed),
        ("a", signed.replace(b'"result":1', b'"result":2')),
    ):
        with pytest.raises(errors.NotGenuine):
            open_record(id, given, signer=signer)
