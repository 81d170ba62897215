"""Exceptions in records: Celery's names and arguments outside, ours inside."""

import json
from typing import Any

import pytest

from blimp import errors
from blimp.queue.protocol.record import Record, State, decode, encode, fault_of


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
