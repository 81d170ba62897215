"""How a task ended: one type, from its function to the script that writes it."""

from __future__ import annotations

from typing import Any

import msgspec

from blimp.queue.protocol.fault import Fault, fault_of
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import State


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended; written before its message is acknowledged.

    retry_in_s: with RETRY, when to run it again.
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
