"""An exception in a record: our class names inside, Celery's names and form outside.

Celery's reader looks the class up by `exc_module` and `exc_type`, and calls it with the
arguments in `exc_message`. Source: Celery 5.7 `backends/base.py`, `prepare_exception` and
`exception_to_python`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from blimp.queue.protocol.message import to_json

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
    """Return `error` with its arguments; those that JSON cannot hold are written out."""
    kind = type(error)
    arguments = [_writable(one) for one in error.args]
    said = str(error)
    name = kind.__name__ if "<locals>" in kind.__qualname__ else kind.__qualname__
    fault = Fault(exc_type=name, exc_message=arguments, exc_module=kind.__module__)
    return fault if fault.text == said else msgspec.structs.replace(fault, said=said)


def _writable(argument: Any) -> Any:
    """Return `argument` as plain JSON, so that it is the same after any encoder."""
    try:
        return msgspec.json.decode(to_json(argument))
    except Exception:  # an argument's own methods may raise anything
        return _repr(argument)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


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
