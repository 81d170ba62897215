"""Every error this project raises, drawn as a tree.

BlimpError
├── ConfigError              a file, a variable or an option a person wrote is wrong
│   ├── AirframeError        ... in an airframe file
│   ├── MissionError         ... in a mission file
│   ├── UnknownName          no queue, schedule, ship or result of a name that a caller gave
│   ├── BoardError           ... in a device table: two devices want one address or pin
│   └── TableMismatch        ... in a results database (a LinkError too: results wait for it)
├── HardwareError            a chip or a bus does not do what its datasheet says
│   ├── BusError             no answer, or the bus is stuck
│   ├── DeviceError          wrong identity, failed self-test, a value out of its range
│   └── CameraError          missing, in use, frozen, or its pictures are not what was asked for
├── LogError                 a flight's log cannot be written, or is none that can be read
├── PhotoError               a photograph cannot be taken, kept or fetched
├── MailboxError             the mailbox between worker and flight process failed
├── LinkError                the broker is unreachable, or nothing on board answers
│   ├── NotAuthorised        the broker, or the ship, refuses this sender
│   └── OutcomeUnknown       a command was sent, and no end of it was heard in time
│       └── LinkLost         ... because the broker was unreachable meanwhile
└── TaskError                the queue
    ├── MessageError         a message cannot be read: what, where and the limit
    ├── PartlySent           of many messages only the first were sent
    ├── UnknownTask          this worker has no task of that name
    ├── Refused              the ship refused the command; the reason is its argument
    │   └── NotInControl     ... because another pilot holds control of it
    ├── ControlUnknown       the broker did not say in time who holds control of the ship
    ├── Retry                a task asks to be run again later
    ├── MaxRetriesExceeded   a task asked for more retries than it may have
    ├── Replace              a task asks for another one to run in its place
    ├── Reject               a task asks for its message to be dropped or requeued
    ├── ResultError          a result cannot be written as JSON, or cannot be read
    ├── Expired              the message was older than its time to live before it started
    ├── Revoked              the task was revoked, before it started or while it ran
    ├── Superseded           a newer message with the same key replaced it
    ├── Interrupted          the task started, may not have ended, and is not run again
    ├── SoftTimeLimitExceeded  raised inside a task that should end by itself
    ├── TimeLimitExceeded    the task ran beyond its time limit and was ended
    ├── WorkerLost           the process that ran the task has died
    ├── LeaseError           a pool's resource cannot be acquired, or the request is wrong
    │   ├── NoneFree         ... all resources are held by others, or there are none
    │   └── LeaseLost        ... the lease ended while its holder relied on it
    ├── StepFailed           a boot step of a worker did not start
    └── TaskFailed           the task raised an exception: its name and message

Refusals inside the flight process are values (`Outcome` with a reason), never exceptions.
"""

from typing import Any


class BlimpError(Exception):
    """Base of all errors raised by this project."""


class ConfigError(BlimpError):
    """A file, a variable or an option is wrong. The message names what, where and the limit."""


class AirframeError(ConfigError):
    """An airframe file is missing, malformed or physically impossible."""


class MissionError(ConfigError):
    """A mission file is missing, malformed or outside the ship's limits."""


class UnknownName(ConfigError):
    """There is no queue, schedule, ship or result of the name that a caller gave."""


class BoardError(ConfigError):
    """Two devices of one board claim the same address, pin, channel or port."""


class HardwareError(BlimpError):
    """A chip or a bus does not do what its datasheet says."""


class BusError(HardwareError):
    """A transfer got no answer, or the bus is stuck."""


class DeviceError(HardwareError):
    """A device has the wrong identity, failed its self-test or gave an impossible value."""


class CameraError(HardwareError):
    """A camera is missing, in use, frozen or disconnected, or sends another size."""


class LogError(BlimpError):
    """A log cannot be written or read. The message names the file and what is wrong with it."""


class PhotoError(BlimpError):
    """A photograph cannot be taken, kept or fetched. The text names what, where and the limit."""


class MailboxError(BlimpError):
    """The mailbox between worker and flight process failed."""


class LinkError(BlimpError):
    """The broker is unreachable, or nothing on board answers."""


class NotAuthorised(LinkError):
    """The broker, or the ship, refuses this sender."""


class OutcomeUnknown(LinkError):
    """A command was sent, and no end of it was heard in time: it may have acted, or still act.

    id: of the command, to ask for its result later.
    """

    def __init__(self, reason: str, *, id: str) -> None:
        super().__init__(reason)
        self.id = id


class LinkLost(OutcomeUnknown):
    """The broker stayed unreachable for too long while a command was under way."""


class TableMismatch(ConfigError, LinkError):
    """A table of results has other columns than expected. The text names table and columns.

    A LinkError, because results wait until somebody has repaired the table.
    """


class TaskError(BlimpError):
    """Base of the queue's errors."""


class MessageError(TaskError):
    """A message cannot be read. The text names what, where and the limit."""


class PartlySent(TaskError):
    """Of many tasks and canvases only the first were sent, for `reason`, its cause.

    sent: the handles of those that the broker has whole. Of the next it may have some messages: a
    part of a canvas, or if the reason is a LinkError all of a step that was not answered.
    """

    def __init__(self, sent: list[Any], reason: Exception) -> None:
        super().__init__(f"only the first {len(sent)} were sent: {reason}")
        self.sent = sent
        self.reason = reason


class NotGenuine(MessageError):
    """No key of ours has signed it, or it is too old: nothing of it is believed."""


class Copied(NotGenuine):
    """It was signed once, and accepted once: this is another copy of it."""


class UnknownTask(TaskError):
    """This worker has no task of that name, `task`."""

    def __init__(self, reason: str, *, task: str = "") -> None:
        super().__init__(reason)
        self.task = task


class Refused(TaskError):
    """The ship refused the command. `str(error)` is its reason."""


class NotInControl(Refused):
    """Another pilot holds control of the ship, or the sender's own control has ended."""


class ControlUnknown(TaskError):
    """The broker did not say in time who holds control of the ship: nothing was done."""


class Retry(TaskError):
    """Raised by a task to be run again after `countdown_s` seconds.

    changes: arguments and queue of the next try that differ: `args`, `kwargs`, `queue`.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        countdown_s: float | None = None,
        changes: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(reason)
        self.countdown_s = countdown_s
        self.changes = changes or {}


class Ignore(TaskError):
    """Raised by a task that is to end without a result: nothing is stored, nothing follows."""


class Replace(TaskError):
    """Raised by `TaskContext.replace`: `signature` runs in the task's place, with its id."""

    def __init__(self, signature: dict[str, Any]) -> None:
        super().__init__(f"replaced by {signature.get('task')}")
        self.signature = signature


class MaxRetriesExceeded(TaskError):
    """A task asked for more retries than its `max_retries`."""


class Reject(TaskError):
    """Raised by a task to requeue its message (`requeue=True`) or to drop it."""

    def __init__(self, reason: str = "", *, requeue: bool = False) -> None:
        super().__init__(reason)
        self.requeue = requeue


class ResultError(TaskError):
    """A result cannot be written as JSON, or a stored one cannot be read."""


class Expired(TaskError):
    """A message was older than its time to live, or past its `expires`, before it started."""


class Revoked(TaskError):
    """A task was revoked. `str(error)` says whether it had started."""


class Superseded(TaskError):
    """A newer message with the same key replaced it. `str(error)` names that message."""


class Interrupted(TaskError):
    """A task started, may not have ended, and must not run again. `str(error)` says why."""


class SoftTimeLimitExceeded(TaskError):
    """Raised inside a task that reached its `soft_time_limit`: it may clean up and end."""

    def __init__(self, reason: str = "it ran longer than its soft time limit") -> None:
        super().__init__(reason)


class TimeLimitExceeded(TaskError):
    """A task ran longer than its `time_limit` and was ended, or abandoned."""


class WorkerLost(TaskError):
    """The process that ran a task died. The text says how."""


class LeaseError(TaskError):
    """A pool cannot do what was asked. The text names the pool, the key or the resource."""


class NoneFree(LeaseError):
    """No resource was free in time. The text names the holders and who waits ahead."""


class LeaseLost(LeaseError):
    """A resource, or a task's message, is no longer held by who asks. The text says why."""


class StepFailed(TaskError):
    """A boot step of a worker did not start. The text names it and says why."""


class TaskFailed(TaskError):
    """Raised by `get()` if the task raised an exception. kind: the name of that exception."""

    def __init__(self, message: str, *, kind: str = "", trace: str | None = None) -> None:
        super().__init__(f"{kind}: {message}" if kind else message)
        self.kind = kind
        self.trace = trace
