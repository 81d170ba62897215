"""How a task ended: its states, its outcome, and the record that Celery also reads.

Celery knows three final states. Ours are finer, so a record carries both: `status` is
Celery's, `blimp_state` is ours if they differ. A Celery program that waits for a refused
command gets an exception named Refused with the reason, and does not wait for ever.

An exception has our class names inside, and Celery's names and form outside: Celery's reader looks
the class up by `exc_module` and `exc_type`, and calls it with the arguments in `exc_message`.
Source: Celery 5.7 `backends/base.py`, `prepare_exception` and `exception_to_python`.
"""

from __future__ import annotations

import traceback
from contextvars import ContextVar
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ResultError
from blimp.queue.protocol.kombu_body import from_json
from blimp.queue.protocol.message import MAX_NAME_LENGTH, TaskMessage, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from blimp.queue.protocol.signing import Signer

OURS = "blimp.errors"
CELERY = "celery.exceptions"  # billiard's exceptions, too, have these names there

# A Celery program catches these by its own names.
CELERY_NAMES = {
    "Expired": "TaskRevokedError",
    "MaxRetriesExceeded": "MaxRetriesExceededError",
    "Reject": "Reject",
    "Retry": "Retry",
    "Revoked": "TaskRevokedError",
    "SoftTimeLimitExceeded": "SoftTimeLimitExceeded",
    "Superseded": "TaskRevokedError",
    "TimeLimitExceeded": "TimeLimitExceeded",
    "UnknownTask": "NotRegistered",
    "WorkerLost": "WorkerLostError",
}
_OUR_NAMES = {theirs: ours for ours, theirs in CELERY_NAMES.items()}
_REVOKED_NAMES = {"EXPIRED": "Expired", "REVOKED": "Revoked", "SUPERSEDED": "Superseded"}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """An exception: its class by our names, and its arguments as JSON can hold them.

    said: `str()` of the exception, if that is not its arguments in a row.
    """

    exc_type: str
    exc_message: list[Any]
    exc_module: str = OURS
    said: str = ""

    @property
    def text(self) -> str:
        return self.said or " ".join(str(part) for part in self.exc_message)

    def document(self) -> dict[str, Any]:
        """Return it as Celery's backends write an exception, by Celery's names."""
        exc_type, exc_module = self.exc_type, self.exc_module
        if exc_module == OURS and exc_type in CELERY_NAMES:
            exc_type, exc_module = CELERY_NAMES[exc_type], CELERY
        document = {
            "exc_type": exc_type,
            "exc_message": self.exc_message,
            "exc_module": exc_module,
        }
        return document | {"blimp_said": self.said} if self.said else document


def fault_of(error: BaseException) -> Fault:
    """Return `error` with its arguments; those that JSON cannot hold are written out.

    Never raises, whatever its methods do: a failure must reach who waits for it.
    """
    kind = type(error)
    try:
        arguments = [_writable(one) for one in error.args]
    except Exception:  # `args` may be a property of its own
        arguments = []
    said = named(error)
    name = kind.__name__ if "<locals>" in kind.__qualname__ else kind.__qualname__
    fault = Fault(
        exc_type=escaped(name)[:MAX_NAME_LENGTH],
        exc_message=arguments,
        exc_module=escaped(str(kind.__module__))[:MAX_NAME_LENGTH],
    )
    return fault if fault.text == said else msgspec.structs.replace(fault, said=said)


MOST_NAMED = 10  # exceptions of a group: a record is for people too


def named(error: BaseException) -> str:
    """Return `str(error)`, and what is in it, or in what it comes `from`, if that is a group.

    Never raises.
    """
    said, cause = text_of(error), error.__cause__
    try:
        if isinstance(error, BaseExceptionGroup):
            said = f"{said} [{'; '.join(_inside(error))}]"
        if isinstance(cause, BaseExceptionGroup):
            said = f"{said} (from {type(cause).__name__}: {named(cause)})"
    except Exception:  # a group of a class of its own may be anything, and as deep
        return said
    return said


def _inside(group: BaseExceptionGroup[Any]) -> list[str]:
    found = list(islice(_leaves(group), MOST_NAMED + 1))
    some = [f"{escaped(type(one).__name__)}: {text_of(one)}" for one in found[:MOST_NAMED]]
    return some if found[MOST_NAMED:] == [] else [*some, "more"]


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one


def _writable(argument: Any) -> Any:
    """Return `argument` as plain JSON, so that it is the same after any encoder."""
    if isinstance(argument, str):
        return escaped(argument)
    try:
        # As deep as in a record, or in the part of a chord, which have a limit of depth.
        return msgspec.json.decode(to_json([[[argument]]]))[0][0][0]
    except Exception:  # an argument's own methods may raise anything
        return repr_of(argument)


def escaped(text: str) -> str:
    """Return `text` as UTF-8 can hold it: a half of a letter, as of a file name, is written out."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def text_of(value: object) -> str:
    """Return `str(value)`, escaped. Never raises."""
    return _words_of(str, value)


def repr_of(value: object) -> str:
    """Return `repr(value)`, escaped. Never raises."""
    return _words_of(repr, value)


def _words_of(function: type[str] | Callable[[object], str], value: object) -> str:
    try:
        return escaped(function(value))
    except BaseException as error:  # it may even raise SystemExit
        how = f"{function.__name__} raises {type(error).__name__}"
        return escaped(f"<{type(value).__name__}, whose {how}>")


def trace_of(error: BaseException) -> str:
    """Return the traceback of `error`, escaped. Never raises."""
    try:
        return escaped("".join(traceback.format_exception(error)))
    except BaseException:  # a note, a cause or a field of it may be anything
        lines = traceback.format_tb(error.__traceback__)
        return escaped("".join([*lines, f"{type(error).__name__}: {text_of(error)}\n"]))


def read_fault(document: dict[str, Any], state: str) -> Fault:
    """Return the exception in the record of a task that ended in `state` (ours), by our names."""
    message = document.get("exc_message")
    exc_type, exc_module = str(document.get("exc_type", "")), str(document.get("exc_module", ""))
    if exc_module in (CELERY, "billiard.exceptions") and exc_type in _OUR_NAMES:
        ours = _REVOKED_NAMES.get(state) if exc_type == "TaskRevokedError" else None
        exc_type, exc_module = ours or _OUR_NAMES[exc_type], OURS
    return Fault(
        exc_type=exc_type,
        exc_message=message if isinstance(message, list) else [message],
        exc_module=exc_module,
        said=str(document.get("blimp_said", "")),
    )


class State(StrEnum):
    """What is known of a task. The last seven are final: see FINAL."""

    PENDING = "PENDING"  # nothing is known: not sent, not begun, or forgotten
    STARTED = "STARTED"
    PROGRESS = "PROGRESS"
    RETRY = "RETRY"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    REFUSED = "REFUSED"  # the ship said no; the reason is the result
    EXPIRED = "EXPIRED"  # too old before it could begin
    INTERRUPTED = "INTERRUPTED"  # begun, cut off, and not run again
    REVOKED = "REVOKED"  # called back
    SUPERSEDED = "SUPERSEDED"  # a newer message with the same key came before it began


FINAL = frozenset(State) - {State.PENDING, State.STARTED, State.PROGRESS, State.RETRY}

CELERY_STATUS = {
    State.REFUSED: "FAILURE",
    State.INTERRUPTED: "FAILURE",
    State.EXPIRED: "REVOKED",
    State.SUPERSEDED: "REVOKED",
}


# The task whose function runs here, "" outside of tasks: it must not wait for another.
running_task: ContextVar[str] = ContextVar("blimp_running_task", default="")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One task's last known state.

    result: what it returned (SUCCESS), how far it is (PROGRESS), or its fault.
    args, kwargs: of a failure, or if results are extended; they do not count for a limit.
    children: what its end has begun, as Celery writes results.
    """

    id: str
    state: State
    result: Any = None
    fault: Fault | None = None
    traceback: str | None = None
    date_done: str | None = None
    name: str | None = None
    worker: str | None = None
    retries: int = 0
    queue: str | None = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    parent_id: str | None = None
    group_id: str | None = None
    children: tuple[Any, ...] = ()

    @property
    def final(self) -> bool:
        return self.state in FINAL

    def is_of(self, names: Container[str] | None) -> bool:
        """Whether it is of one of these tasks, or may be: no name is stored. None: of any."""
        return names is None or self.name is None or self.name in names

    @property
    def reason(self) -> str:
        """Why it did not succeed, "" if it did or is still under way."""
        return self.fault.text if self.fault else ""


# What is written as it is; `args` and `kwargs` only if they are there.
_SAME = {
    "traceback", "date_done", "name", "worker", "retries", "queue", "args", "kwargs", "parent_id",
    "group_id",
}  # fmt: skip


def encode(record: Record, *, limit_bytes: int) -> bytes:
    """Return `record` as Celery's JSON.

    Raises ResultError if JSON cannot hold the result, or it is longer than the limit.
    """
    status = CELERY_STATUS.get(record.state, record.state.value)
    document: dict[str, Any] = {
        "status": status,
        "result": record.fault.document() if record.fault else record.result,
        "traceback": record.traceback,
        "children": record.children,
        "date_done": record.date_done,
        "task_id": record.id,
        "name": record.name,
        "worker": record.worker,
        "retries": record.retries,
        "queue": record.queue,
    }
    given = {
        name: value
        for name, value in (("args", record.args), ("kwargs", record.kwargs))
        if value is not None
    }
    document |= given
    for name in ("parent_id", "group_id"):
        if value := getattr(record, name):
            document[name] = value
    if status != record.state.value:
        document["blimp_state"] = record.state.value
    try:
        data = to_json(document)
        size = len(data) - (len(to_json(given)) if given else 0)
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"{record.name} returned what JSON cannot hold: {error}") from error
    if size > limit_bytes:
        raise ResultError(
            f"{record.name} returned {size} bytes as JSON: the limit is {limit_bytes}"
        )
    return data


def decode(data: bytes) -> Record:
    """Return the record that this package or Celery wrote. Raises ResultError otherwise."""
    try:
        document = from_json(data)
        if not isinstance(document, dict):
            raise ValueError(f"it is {type(document).__name__}, must be an object")
        state = State(document.get("blimp_state") or document["status"])
        result, fault = document.get("result"), None
        if state in FINAL and state is not State.SUCCESS and isinstance(result, dict):
            fault, result = read_fault(result, state), None
        known = {name: one for name, one in document.items() if one is not None and name in _SAME}
        return Record(
            id=str(document["task_id"]),
            state=state,
            result=result,
            fault=fault,
            children=tuple(document.get("children") or ()),
            **known,
        )
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ResultError(f"a result of {len(data)} bytes cannot be read: {error}") from error


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended; written before its message is acknowledged.

    retry_in_s: with RETRY, when to run it again. changes: what is different then.
    next: further messages that are sent if, and only if, this outcome is written.
    requeue: put the message back instead, and write nothing.
    again_in_s: instead of all that, deliver the message again after so many seconds, as it is:
        neither a delivery nor a try is counted.
    dead: write it, and make the message a dead letter for this reason.
    replacement: the signature that runs in the task's place; no result is written.
    settled: another delivery has written the result, or will; only acknowledge.
    """

    state: State
    result: Any = None
    fault: Fault | None = None
    traceback: str | None = None
    retry_in_s: float | None = None
    changes: dict[str, Any] = {}
    next: tuple[TaskMessage, ...] = ()
    requeue: bool = False
    again_in_s: float | None = None
    dead: str = ""
    replacement: dict[str, Any] | None = None
    settled: bool = False


def failure(
    error: BaseException, *, state: State = State.FAILURE, trace: str | None = None
) -> Outcome:
    return Outcome(state=state, fault=fault_of(error), traceback=trace)


def shortened(outcome: Outcome, *, most_bytes: int) -> Outcome:
    """Return `outcome` with a fault and a traceback that are, together, at most so long as JSON.

    Begin and end of each text stay. Arguments that are too long become one text.
    """
    fault, trace, most = outcome.fault, outcome.traceback, most_bytes // 3
    if fault is not None and len(to_json(fault.exc_message)) > most:
        fault = msgspec.structs.replace(fault, exc_message=[_cut(fault.text, most)], said="")
    elif fault is not None:
        fault = msgspec.structs.replace(fault, said=_cut(fault.said, most))
    trace = trace and _cut(trace, most)
    return msgspec.structs.replace(outcome, fault=fault, traceback=trace)


def _cut(text: str, most_bytes: int) -> str:
    if len(to_json(text)) <= most_bytes:
        return text
    # One letter is up to 6 bytes, what is written between them up to 50.
    half = max(0, (most_bytes - 50) // 12)
    left_out = len(text) - 2 * half
    return f"{text[:half]} ... {left_out} letters left out ... {text[len(text) - half :]}"


def open_record(id: str, data: bytes, *, signer: Signer | None) -> Record:
    """Return a stored record. Raises ResultError, and NotGenuine for one that no key signed."""
    if signer is not None:
        signer.check_appended(data, place=result_place(id))
    return decode(data)


def result_place(id: str) -> str:
    """Return what the signature of a record is for: it is of no use for another task."""
    return f"result of {id}"
