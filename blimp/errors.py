"""Every error this project raises, drawn as a tree.

BlimpError
├── ConfigError              a file, a variable or an option a person wrote is wrong
│   ├── AirframeError        ... in an airframe file
│   ├── MissionError         ... in a mission file
│   ├── BoardError           ... in a device table: two devices want one address or pin
│   └── TableMismatch        ... in a database of results (a LinkError too: they wait for it)
├── HardwareError            a chip or a bus did not do what its datasheet says
│   ├── BusError             no answer, or the bus is stuck
│   └── DeviceError          wrong identity, failed self-test, a value out of its range
├── MailboxError             the crossing between worker and flight process failed
├── LinkError                no broker, or nothing on board answers
│   └── NotAuthorised        the broker, or the ship, does not accept who is asking
└── TaskError                the queue
    ├── MessageError         a message that cannot be read: what, where and the limit
    ├── UnknownTask          a task name that this worker does not have
    ├── Refused              the ship said no; the reason is its argument
    │   └── NotInControl     ... because another pilot holds control of it
    ├── Retry                a task asks to be run again later
    ├── MaxRetriesExceeded   ... and has asked too often
    ├── Reject               a task asks for its message to be dropped or put back
    ├── ResultError          a result that cannot be written as JSON, or cannot be read
    ├── Expired              older than its time to live before it could begin
    ├── Revoked              called back before it began, or ended while it ran
    ├── Superseded           a newer message with the same key has taken its place
    ├── Interrupted          begun, and not known to have ended; not run again
    ├── SoftTimeLimitExceeded  raised in a task that should end by itself
    ├── TimeLimitExceeded    a task that did not, and was ended
    ├── WorkerLost           the process in which a task ran is gone
    ├── LeaseError           a resource of a pool cannot be had, or the request for it is wrong
    │   ├── NoneFree         ... all are held by others, or there are none
    │   └── LeaseLost        ... it was held, and is so no more
    ├── StepFailed           what a worker needs before it begins did not start
    └── TaskFailed           the task raised: what it raised, told to whoever waits

Refusals inside the flight process are values (`Outcome` with a reason), never exceptions.
"""


class BlimpError(Exception):
    """Base of all errors raised by this project."""


class ConfigError(BlimpError):
    """Something a person wrote is wrong. The message names what, where and the limit."""


class AirframeError(ConfigError):
    """An airframe file is missing, malformed or physically impossible."""


class MissionError(ConfigError):
    """A mission file is missing, malformed or outside the ship's limits."""


class BoardError(ConfigError):
    """Two devices of one board claim the same address, pin, channel or port."""


class HardwareError(BlimpError):
    """A chip or a bus did not do what its datasheet says."""


class BusError(HardwareError):
    """A transfer got no answer, or the bus is stuck."""


class DeviceError(HardwareError):
    """A device has the wrong identity, failed its self-test or gave an impossible value."""


class MailboxError(BlimpError):
    """The crossing between worker and flight process failed."""


class LinkError(BlimpError):
    """No broker, or nothing on board answers."""


class NotAuthorised(LinkError):
    """The broker, or the ship, does not accept who is asking."""


class TableMismatch(ConfigError, LinkError):
    """A table of results is of another version. The text names it and its columns.

    A LinkError, because what is to be written waits until somebody has put it right.
    """


class TaskError(BlimpError):
    """Base of the queue's errors."""


class MessageError(TaskError):
    """A message that cannot be read. The text names what, where and the limit."""


class UnknownTask(TaskError):
    """A task name that this worker does not have."""


class Refused(TaskError):
    """The ship said no. `str(error)` is its reason."""


class NotInControl(Refused):
    """Another pilot holds control of the ship, or the sender's own has ended."""


class ControlUnknown(TaskError):
    """The broker did not say who holds control of the ship in time: nothing was done."""


class Retry(TaskError):
    """Raised by a task to be run again after `countdown_s` seconds."""

    def __init__(self, reason: str = "", *, countdown_s: float | None = None) -> None:
        super().__init__(reason)
        self.countdown_s = countdown_s


class MaxRetriesExceeded(TaskError):
    """A task asked to be run again more often than its `max_retries`."""


class Reject(TaskError):
    """Raised by a task to give its message back (`requeue=True`) or drop it."""

    def __init__(self, reason: str = "", *, requeue: bool = False) -> None:
        super().__init__(reason)
        self.requeue = requeue


class ResultError(TaskError):
    """A task returned what JSON cannot hold, or what is stored cannot be read."""


class Expired(TaskError):
    """A message was older than its time to live, or past its `expires`, before it began."""


class Revoked(TaskError):
    """A task was revoked. `str(error)` says whether it had begun."""


class Superseded(TaskError):
    """A newer message with the same key took its place. `str(error)` names it."""


class Interrupted(TaskError):
    """A task began, was cut off, and must not be run again. `str(error)` says by what."""


class SoftTimeLimitExceeded(TaskError):
    """Raised in a task that has run for its `soft_time_limit`: it may tidy up and end."""

    def __init__(self, reason: str = "it ran longer than its soft time limit") -> None:
        super().__init__(reason)


class TimeLimitExceeded(TaskError):
    """A task ran longer than its `time_limit` and was ended, or given up."""


class WorkerLost(TaskError):
    """The process in which a task ran ended under it. The text says how."""


class LeaseError(TaskError):
    """A pool cannot do what was asked. The text names the pool, the key or the resource."""


class NoneFree(LeaseError):
    """No resource could be had in time. The text says who holds them, and who waits before."""


class LeaseLost(LeaseError):
    """A resource is no longer held by the grant that asks. The text says why."""


class StepFailed(TaskError):
    """A boot step of a worker did not start. The text names it and says why."""


class TaskFailed(TaskError):
    """Told to whoever waits for a task that raised. kind: the name of what it raised."""

    def __init__(self, message: str, *, kind: str = "", trace: str | None = None) -> None:
        super().__init__(f"{kind}: {message}" if kind else message)
        self.kind = kind
        self.trace = trace
