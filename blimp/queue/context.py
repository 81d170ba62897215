"""What a bound task sees of the message it runs for. Tested by behaviour/test_retry.py."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    NoReturn,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from blimp.errors import (
    ConfigError,
    LinkError,
    MaxRetriesExceeded,
    MessageError,
    Replace,
    ResultError,
    Retry,
)
from blimp.queue.protocol.annotated import P, R
from blimp.queue.protocol.embed import CHORD, check_signature, options_of
from blimp.queue.protocol.message import epoch_s, to_json, zoned
from blimp.queue.protocol.record import Record, State, repr_of
from blimp.queue.retry import give_up
from blimp.queue.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.resources.grant import Grant
    from blimp.queue.results.backend import ResultBackend
    from blimp.queue.task import Task


T = TypeVar("T")

FIXED = {"task_id", "coalesce", "retry", "retry_policy"}  # options of `apply_async`


class RetryOptions(TypedDict, total=False):
    """What a retry may change of the message, as `apply_async` takes it: see SendOptions.

    headers: beside those that it has. link, link_error: instead of those that it has. expires: in
    seconds, from the retry on.
    """

    queue: str | None
    priority: int | None
    expires: float | datetime | None
    ttl_s: float | None
    soft_time_limit: float | None
    time_limit: float | None
    ignore_result: bool | None
    headers: dict[str, Any] | None
    link: dict[str, Any] | Sequence[dict[str, Any]] | None
    link_error: dict[str, Any] | Sequence[dict[str, Any]] | None


class TaskContext:
    """What a bound task sees of the message it runs for.

    stopping: set when the worker is asked to stop; a long task may end early then.
    lost: set when the lease was lost: another worker runs the task now, and the result of this
        run is refused. An `async def` task is cancelled; a plain one must check.
    revoked: set when the task was revoked while it runs, and must end.
    grant: the resource that it holds if its task `requires` one; `lost` is set, too, when
        that is lost.
    began_before: an earlier delivery of this message had begun to run.
    previous: what was stored for the task when this delivery began.
    """

    def __init__(
        self,
        *,
        task: Task,
        message: TaskMessage,
        worker: str,
        stopping: threading.Event,
        lost: threading.Event,
        revoked: threading.Event,
        previous: Record | None,
        grant: Grant | None = None,
        steps: Steps | None = None,
    ) -> None:
        self.task = task
        self.message = message
        self.worker = worker
        self.stopping = stopping
        self.lost = lost
        self.revoked = revoked
        self.previous = previous
        self.grant = grant
        self._steps = steps or Steps(task=task, ask=None)

    if not TYPE_CHECKING:  # a checker knows what there is

        def __getattr__(self, name: str) -> Any:
            from blimp.queue.words import CONTEXT, missing  # of a mistake alone

            raise missing(self, CONTEXT, name)

    @property
    def id(self) -> str:
        """The task's id, the same in every delivery and retry."""
        return self.message.id

    @property
    def retries(self) -> int:
        """How often it was tried before, by `retry` or `autoretry_for`."""
        return self.message.retries

    @property
    def fence(self) -> int:
        """The delivery count: grows each time the message comes again."""
        return self.message.delivery

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered again without a retry: requeued, or its worker died."""
        return self.deliveries > 1

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included, retries not counted."""
        return max(1, self.message.delivery - self.message.retries)

    @property
    def began_before(self) -> bool:
        return self.previous is not None and self.previous.state is not State.PENDING

    def age_s(self) -> float | None:
        """Return how old the message may be on the broker's clock, None if it has no time."""
        if self.message.issued_ms is None:
            return None
        return self.task.app.broker_clock.latest_s() - self.message.issued_ms / 1000.0

    def progress(self, fraction: float, **details: Any) -> bool:
        """Publish how far the task is, 0 to 1. Lossy: False if that cannot be written.

        Raises ResultError for details that JSON cannot hold.
        """
        results = self.task.app.results
        if results is None:
            return False
        record = Record(
            id=self.id,
            state=State.PROGRESS,
            result={"fraction": fraction, **details},
            name=self.task.name,
            worker=self.worker,
            retries=self.message.retries,
            queue=self.message.queue,
        )
        return self._publish(results, results.encode(record))

    @overload
    def step(self, name: str, function: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...

    @overload
    def step(self, name: str, function: Callable[[], T]) -> T: ...

    def step(self, name: str, function: Callable[[], Any]) -> Any:
        """Call `function` once for all deliveries and retries of this task; return its result.

        In an `async def` task, return an awaitable of that. The result is stored on the broker's
        server under the task's id, if this worker still holds the message; a step whose result is
        stored is not run again after a kill. One that is killed before runs again. The result is
        what its JSON gives.

        name: unique in a run. Raises what `function` raises, and stores nothing then; LeaseLost if
        another worker has the message; MessageError for a name that is wrong or taken; ResultError
        for what JSON cannot hold, what is too long, or more than MOST_STEPS; ConfigError if the
        broker stores no steps, or the task is acknowledged early. A direct call stores nothing.
        """
        run = self._steps.run(name, function)
        if self.task.is_async:
            return run
        try:
            run.send(None)  # in a plain task it never waits
        except StopIteration as end:
            return end.value
        raise RuntimeError(f"{self.task.name}: step {name!r} waits in a plain task")

    def _publish(self, results: ResultBackend, data: bytes) -> bool:
        try:
            return results.write(self.id, data)
        except (LinkError, ResultError):
            return False

    def retry(
        self,
        exc: Exception | None = None,
        *,
        throw: bool = True,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
        **options: Unpack[RetryOptions],
    ) -> Retry:
        """Run the task again later. The names are Celery's.

        Raises Retry; with throw=False it returns it, for the task to return. args, kwargs,
        options: of the next try, as they were by default; see RetryOptions. After `max_retries`
        tries it raises `exc`, or MaxRetriesExceeded; it raises MessageError for what cannot be
        sent, ConfigError for an option that there is not.
        """
        limit = self.task.options.max_retries if max_retries is None else max_retries
        if limit is not None and self.message.retries >= limit:
            error = exc or MaxRetriesExceeded(
                f"{self.task.name}: tried again {limit} times, its limit"
            )
            give_up(error)
            raise error
        if eta is not None:
            countdown = epoch_s(zoned(eta, "eta")) - self._broker_now_s()
        given = {"args": args, "kwargs": kwargs, **self._changed(options)}
        retry = Retry(
            repr_of(exc) if exc is not None else "",
            countdown_s=countdown,
            changes=_checked({name: value for name, value in given.items() if value is not None}),
        )
        if throw:
            raise retry from exc
        return retry

    def _changed(self, options: RetryOptions) -> dict[str, Any]:
        """Return what `options` change of the message. Raises MessageError, ConfigError."""
        if not options:
            return {}
        from blimp.queue.publish.publisher import check_options, read_options, signatures_of

        given: dict[str, Any] = {name: one for name, one in options.items() if one is not None}
        if fixed := sorted(given.keys() & FIXED):
            raise ConfigError(f"retry of {self.task.name!r}: {', '.join(fixed)} stays as it was")
        check_options(self.task.name, given)
        found = read_options(given, self._broker_now_s()) | signatures_of(given)
        limits = zip(found.pop("timelimit"), self.message.timelimit, strict=True)
        found["timelimit"] = [new or old for new, old in limits]
        if "headers" in given:
            found["headers"] = self.message.headers | given["headers"]
        same = ("queue", "priority", "ignore_result")
        return found | {name: given[name] for name in same if name in given}

    def replace(self, signature: dict[str, Any]) -> NoReturn:
        """Run `signature` (a task, chain, group or chord) in this task's place. Never returns.

        It gets the task's id, links and errbacks, the rest of its chain and its part in a
        chord; the task itself has no result. Raises Replace; MessageError if it is wrong.
        """
        check_signature(signature, where="replacement")
        if options_of(signature).get(CHORD):
            raise MessageError("a replacement must not be a part of a chord")
        try:
            plain = msgspec.json.decode(to_json(signature))
        except (TypeError, ValueError, RecursionError) as error:
            raise MessageError(f"a replacement that JSON cannot hold: {error}") from None
        raise Replace(plain)

    def _broker_now_s(self) -> float:
        """Return the broker's time. A child process has it from its worker."""
        return self.task.app.broker_clock.now_s()


class DirectContext(TaskContext):
    """That of a direct call: no worker, and no server is asked."""

    def __init__(self, task: Task, message: TaskMessage) -> None:
        super().__init__(
            task=task,
            message=message,
            worker="",
            stopping=threading.Event(),
            lost=threading.Event(),
            revoked=threading.Event(),
            previous=None,
        )

    def _publish(self, results: ResultBackend, data: bytes) -> bool:  # noqa: ARG002
        return False

    def age_s(self) -> float | None:
        return None

    def _broker_now_s(self) -> float:
        return self.task.app.clock.wall_s()


def _checked(changes: dict[str, Any]) -> dict[str, Any]:
    """Return what a retry changes as it can be sent. Raises MessageError."""
    if "queue" in changes and not (isinstance(changes["queue"], str) and changes["queue"]):
        raise MessageError(f"the queue of a retry is {changes['queue']!r}, must be a name")
    try:
        sent: dict[str, Any] = msgspec.json.decode(to_json(changes))
        if "args" in sent:
            sent["args"] = tuple(msgspec.convert(sent["args"], list[Any]))
        msgspec.convert(sent.get("kwargs", {}), dict[str, Any])
        return sent
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"arguments of a retry that JSON cannot hold: {error}") from None


class RegisterBound(Protocol):
    """What `TaskApp.task(bind=True, …)` returns: it makes a task of a function of a context."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[TaskContext, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[TaskContext, P], R], /) -> Task[P, R]: ...
