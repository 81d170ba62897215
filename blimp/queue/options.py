"""What every part's options are, and a task's: the keywords of `TaskApp.task`.

Tested by test_task.py.
"""

from __future__ import annotations

import re
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, get_args, overload

import msgspec

from blimp.errors import ConfigError
from blimp.queue.protocol.message import NORMAL, check_limits, check_priority
from blimp.queue.protocol.unique import Until
from blimp.queue.retry import Backoff

if TYPE_CHECKING:
    from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager

    from blimp.queue.timetable import Schedule

T = TypeVar("T")
Per = Literal["call", "worker"]
Key = str | Callable[..., object] | None  # made of a call's arguments

RATE_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
LEAST_PER_S, MOST_PER_S = 1e-7, 1e6
MOST_AT_ONCE, MOST_UNIQUE_S = 10_000, 30 * 86_400.0  # so long a publish may be remembered
ALL, INSPECT, OFF = "all", "inspect", "off"  # of an app's `remote_control`


@cache
def _types(kind: type[Options]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What one part is made with. Raises ConfigError for a value of a wrong type or range."""

    def __post_init__(self) -> None:
        for name, kind in _types(type(self)).items():
            value = getattr(self, name)
            try:
                if not isinstance(value, Options):  # those have been checked
                    msgspec.convert(value, kind)
            except msgspec.ValidationError as error:  # shows no value: it may be a key
                raise ConfigError(f"{name}: {error}") from None
            except TypeError:  # a union of which msgspec cannot say which it is
                continue


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a task is run.

    acks_late: acknowledge after the result is stored, so that a killed worker's task runs
        again. False acknowledges before it runs: at most once.
    idempotent: whether it may run twice. False: begun and cut off, it ends as INTERRUPTED.
    resumable: whether it may go on past its time to live, if it began within it. For tasks
        whose effect is guarded elsewhere; others expire.
    acts_in_doubt: whether it runs although its age is doubtful, as the broker's clock went back.
        For what is better done late than not at all; others expire.
    autoretry_for: exceptions after which it is retried, `max_retries` times (None: for ever),
        after `backoff`.
    track_started: store STARTED when it begins.
    bind: pass a TaskContext as its first argument.
    cpu_bound: run it in a child process, so that it blocks no thread.
    soft_time_limit: seconds after which SoftTimeLimitExceeded is raised in it. time_limit:
        seconds after which it is ended.
    interruptible: whether an exception may be raised in it from outside, between any two of
        its instructions, as a soft time limit and `revoke(terminate=True)` do to a plain
        function in a thread. False if it uses locks that others need, and that this would leave
        locked: it must check `context.revoked` itself, and has no soft time limit.
    reject_on_worker_lost: a dead letter, not another run, if its worker or child died.
    acks_on_failure: False delivers a failed task again instead of acknowledging it;
        acks_on_timeout: the same for one that exceeded its time limit.
    requires: the pool of which it needs a resource while it runs; see resources/ and
        `TaskContext.grant`. It waits in its queue until one is free.
    concurrency_key: of the tasks whose arguments give one key at most `concurrency` run at once,
        on all workers; others wait. A text that the arguments fill in, such as "{user}", or a
        function of some of them, by name.
    unique_for: seconds in which the same task is sent once: a later send returns the handle of
        the first, until those are over or the first ended without success. unique_until: the same
        until the first begins ("start"), or ends in any way ("end"), however long that takes.
        The same is one of the same arguments, or of the same `unique_key`, given as a
        `concurrency_key` is.
    fair_key: names the tenant of a call, as a `concurrency_key` does. The tenants of one queue
        have their messages taken in turn, whichever of them has sent the most.
    rate_limit: how often one worker begins it, at most: "10/s", "100/m", "1000/h", or a number
        of times a second. Messages that wait for that delay no others.
    coalesce: of the waiting messages with one key only the newest runs. True: one key for
        the task; or a text that its arguments fill in, such as "{name}".
    schedule: `every(…)` or `cron(…)` of blimp.queue, a text such as "@daily", or a list of them:
        workers send it at each tick of each.
    """

    acks_late: bool = True
    ignore_result: bool = False
    autoretry_for: tuple[type[Exception], ...] = ()
    max_retries: int | None = 3
    backoff: Backoff = Backoff()
    idempotent: bool = True
    resumable: bool = False
    acts_in_doubt: bool = False
    track_started: bool = False
    bind: bool = False
    queue: str | None = None
    priority: int = NORMAL
    ttl_s: float | None = None
    cpu_bound: bool = False
    soft_time_limit: float | None = None
    time_limit: float | None = None
    interruptible: bool = True
    reject_on_worker_lost: bool = False
    acks_on_failure: bool = True
    acks_on_timeout: bool = True
    rate_limit: str | float | None = None
    coalesce: bool | str = False
    requires: str | None = None
    concurrency_key: Key = None
    concurrency: int = 1
    unique_for: float | None = None
    unique_until: Until | None = None
    unique_key: Key = None
    fair_key: Key = None
    schedule: Schedule | tuple[Schedule, ...] | None = None

    @property
    def sent_alone(self) -> str:
        """Why it is not sent as one of many, "" if it may be."""
        if self.unique_lasts:
            return "is unique"
        return "" if self.coalesce is False else "coalesces"

    @property
    def unique_lasts(self) -> str:
        """How long the claim of a unique task lasts, as in UniqueClaim; "" if it is not unique."""
        if self.unique_for is not None:
            return str(round(1e3 * self.unique_for))
        return self.unique_until or ""

    @property
    def is_limited(self) -> bool:
        """Whether it needs a grant to run."""
        return self.requires is not None or self.concurrency_key is not None

    @property
    def begins_once(self) -> bool:
        """Whether it must be known that a task has begun: it may not begin twice."""
        return not self.idempotent or self.reject_on_worker_lost


class UnboundKeywords(TypedDict, total=False):
    """What `TaskApp.task` takes: the options but for `bind`, the backoff under Celery's names.

    retry_backoff: first wait in seconds (True: 1 s, False: none), doubled each time up to
    `retry_backoff_max`; `retry_jitter` draws from zero to that. retry_kwargs: `max_retries`, and
    `countdown` for one wait instead of a growing one.
    """

    name: str | None
    acks_late: bool
    ignore_result: bool
    autoretry_for: Iterable[type[Exception]]
    max_retries: int | None
    retry_backoff: float | bool
    retry_backoff_max: float
    retry_jitter: bool
    retry_kwargs: Mapping[str, Any]
    idempotent: bool
    resumable: bool
    acts_in_doubt: bool
    track_started: bool
    queue: str | None
    priority: int
    ttl_s: float | None
    cpu_bound: bool
    soft_time_limit: float | None
    time_limit: float | None
    interruptible: bool
    reject_on_worker_lost: bool
    acks_on_failure: bool
    acks_on_timeout: bool
    rate_limit: str | float | None
    coalesce: bool | str
    requires: str | None
    concurrency_key: Key
    concurrency: int
    unique_for: float | None
    unique_until: Until | None
    unique_key: Key
    fair_key: Key
    schedule: Schedule | str | Sequence[Schedule | str] | None


class TaskKeywords(UnboundKeywords, total=False):
    """All that `TaskApp.task` takes."""

    bind: bool


def options_of(keywords: TaskKeywords) -> TaskOptions:
    """Return the options of `keywords`. Raises ConfigError naming an unknown one."""
    plain = dict(keywords)
    plain.pop("name", None)
    backoff = Backoff(
        first_s=float(keywords.get("retry_backoff", True)),
        cap_s=keywords.get("retry_backoff_max", 600.0),
        full_jitter=keywords.get("retry_jitter", True),
    )
    again = dict(keywords.get("retry_kwargs", {}))
    if set(again) - {"max_retries", "countdown"}:
        raise ConfigError(f"retry_kwargs {sorted(again)}: it takes max_retries and countdown")
    if "countdown" in again:
        wait_s = float(again["countdown"])
        backoff = Backoff(first_s=wait_s, cap_s=wait_s, full_jitter=False)
    if "max_retries" in again:
        plain["max_retries"] = again["max_retries"]
    for name in ("retry_backoff", "retry_backoff_max", "retry_jitter", "retry_kwargs"):
        plain.pop(name, None)
    unknown = set(plain) - set(TaskOptions.__struct_fields__)
    if unknown:
        from blimp.queue.words import OPTIONS, here  # of a mistake alone

        names = sorted(unknown)
        raise ConfigError(
            f"task options {names}: there are none of these names{here(OPTIONS, *names)}"
        )
    plain["autoretry_for"] = tuple(keywords.get("autoretry_for", ()))
    _check_keys(keywords)
    check_priority(keywords.get("priority", NORMAL))
    per_second(keywords.get("rate_limit"))
    if (schedule := keywords.get("schedule")) is not None:
        from blimp.queue.timetable import schedules_of  # most apps have none

        plain["schedule"] = schedules_of(schedule)
    check_limits(soft_s=keywords.get("soft_time_limit"), hard_s=keywords.get("time_limit"))
    return TaskOptions(**plain, backoff=backoff)  # type: ignore[arg-type]


class HasLimits(Protocol):
    """The settings of an app."""

    @property
    def time_limit(self) -> float | None: ...
    @property
    def soft_time_limit(self) -> float | None: ...


def limited(keywords: TaskKeywords, settings: HasLimits) -> TaskKeywords:
    """Return `keywords` with the app's time limits where the task gives none, not even None.

    An app's soft limit is not for a task that is ended before it, or cannot be interrupted.
    """
    given: TaskKeywords = {"time_limit": settings.time_limit, **keywords}
    hard_s, soft_s = given["time_limit"], settings.soft_time_limit
    if soft_s is None or "soft_time_limit" in given or not given.get("interruptible", True):
        return given
    return (
        given if hard_s is not None and hard_s <= soft_s else {**given, "soft_time_limit": soft_s}
    )


def _check_keys(keywords: TaskKeywords) -> None:
    """Raise ConfigError for keys, and limits by them, that cannot be."""
    at_once, unique_s = keywords.get("concurrency"), keywords.get("unique_for")
    key = keywords.get("concurrency_key")
    for name in ("concurrency_key", "unique_key", "fair_key"):
        one = keywords.get(name)
        if not (one is None or isinstance(one, str) or callable(one)):
            raise ConfigError(f"{name} {one!r:.80}: must be a text or a function")
    if at_once is not None and (type(at_once) is not int or not 1 <= at_once <= MOST_AT_ONCE):
        raise ConfigError(f"concurrency {at_once!r:.80}: must be from 1 to {MOST_AT_ONCE}")
    if at_once is not None and key is None:
        raise ConfigError(f"concurrency {at_once}: of which tasks? Give a concurrency_key")
    if key is not None and keywords.get("requires") is not None:
        raise ConfigError("concurrency_key and requires: a task waits for one of them")
    is_number = isinstance(unique_s, int | float) and not isinstance(unique_s, bool)
    if unique_s is not None and not (is_number and 1e-3 <= unique_s <= MOST_UNIQUE_S):
        raise ConfigError(f"unique_for {unique_s!r:.80}: must be 0.001 to {MOST_UNIQUE_S:.0f} s")
    until = keywords.get("unique_until")
    if until not in (None, *get_args(Until)):
        raise ConfigError(f"unique_until {until!r:.80}: must be one of {get_args(Until)}")
    if until is not None and unique_s is not None:
        raise ConfigError("unique_for and unique_until: for so long, or until then? Give one")
    if until is not None and not keywords.get("acks_late", True):
        raise ConfigError(
            "unique_until and acks_late=False: nobody would know that a killed worker's task has "
            "ended; give unique_for"
        )
    is_unique = until is not None or unique_s is not None
    if not is_unique and keywords.get("unique_key") is not None:
        raise ConfigError("unique_key: for how long? Give unique_for or unique_until")
    if is_unique and keywords.get("coalesce", False) is not False:
        raise ConfigError("a unique task and coalesce: the first of the same runs, or the newest")


def per_second(limit: object) -> float | None:
    """Return how often a second `limit` allows: "10/s", "100/m", "1000/h" or a number of times
    a second, as Celery writes it; None for no limit. Raises ConfigError.
    """
    if limit is None or limit == "":
        return None
    number, unit = limit, "s"
    if isinstance(limit, str):
        found = re.fullmatch(r"\s*([0-9.eE+-]{1,20})\s*(?:/\s*([smh]))?\s*", limit)
        number, unit = (found[1], found[2] or "s") if found else (None, "s")
    try:
        if isinstance(number, bool) or not isinstance(number, str | int | float):
            raise ValueError
        per_s = float(number) / RATE_UNIT_S[unit]
    except (ValueError, OverflowError):
        per_s = -1.0
    if per_s == 0.0:
        return None
    if not LEAST_PER_S <= per_s <= MOST_PER_S:
        raise ConfigError(
            f"rate_limit {limit!r:.80}: must be a number, or one with /s, /m or /h after it, "
            f"and up to {MOST_PER_S:.0f} a second"
        )
    return per_s


# --- what a parameter depends on ----------------------------------------------------------------


class Dependency(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The default of a parameter that a worker gives a value to."""

    factory: Callable[..., Any]
    per: str


@overload
def Depends(factory: Callable[..., _GeneratorContextManager[T]], *, per: Per = "call") -> T: ...


@overload
def Depends(
    factory: Callable[..., _AsyncGeneratorContextManager[T]], *, per: Per = "call"
) -> T: ...


@overload
def Depends(factory: Callable[..., AsyncIterator[T]], *, per: Per = "call") -> T: ...


@overload
def Depends(factory: Callable[..., Iterator[T]], *, per: Per = "call") -> T: ...


@overload
def Depends(factory: Callable[..., Coroutine[Any, Any, T]], *, per: Per = "call") -> T: ...


@overload
def Depends(factory: Callable[..., T], *, per: Per = "call") -> T: ...


def Depends(factory: Callable[..., Any], *, per: Per = "call") -> Any:  # noqa: N802  as FastAPI's
    """Have a parameter given what `factory()` returns or yields, in the worker, not by senders.

        @app.task
        def store(row: Row, session: Session = Depends(open_session)) -> None: ...

    A generator is closed after the call; what the function raises is raised at its `yield`. So is
    a function of `contextlib.contextmanager`; anything else is called, or awaited, and no more.
    Its own parameters may depend on something, too: within one call each is made once.
    per: "worker" makes it once in each process, at its first use, and closes it at the end. A
    plain one is shared by its threads, an async one belongs to its loop.
    Raises ConfigError for what cannot be called.
    """
    if not callable(factory):
        raise ConfigError(f"Depends({factory!r:.80}): must be a function, or a class")
    if per not in get_args(Per):
        raise ConfigError(f"Depends(…, per={per!r:.80}): must be one of {get_args(Per)}")
    return Dependency(factory=factory, per=per)


def remote_control_mode(mode: str | None, *, is_signed: bool) -> str:
    """Return what a worker does by remote control; None: what is safe. Raises ConfigError."""
    if mode is None:
        return INSPECT if is_signed else ALL
    if mode not in (ALL, INSPECT, OFF):
        raise ConfigError(f"remote_control {mode!r}: must be {ALL!r}, {INSPECT!r} or {OFF!r}")
    return mode
