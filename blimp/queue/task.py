"""A task: a function with a name and options, and what it sees while it runs."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, cast

from blimp.errors import (
    ConfigError,
    LinkError,
    MaxRetriesExceeded,
    MessageError,
    ResultError,
    Retry,
)
from blimp.queue.options import TaskOptions
from blimp.queue.protocol.message import epoch_s
from blimp.queue.protocol.record import Record, State
from blimp.queue.publish.coalescing import coalescing_key
from blimp.queue.retry import give_up

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.canvas.signature import Signature
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.publish.sending import SendOptions
    from blimp.queue.resources.grant import Grant
    from blimp.queue.results.handle import AsyncResult


class Task:
    """A registered function. Call it to run it here; `delay` it to have it run by a worker."""

    def __init__(
        self, *, app: TaskApp, name: str, function: Callable[..., Any], options: TaskOptions
    ) -> None:
        self.app = app
        self.name = name
        self.function = function
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        if self.is_async and options.cpu_bound:
            raise ConfigError(
                f"task {name!r} is cpu_bound and async: a process of its own runs plain functions"
            )
        if not options.interruptible and options.soft_time_limit is not None:
            raise ConfigError(f"task {name!r} has a soft_time_limit, and is not interruptible")
        if not options.interruptible and (self.is_async or options.cpu_bound):
            raise ConfigError(
                f"task {name!r} is not interruptible: only a plain function in a thread can be so"
            )
        self.__doc__ = function.__doc__
        try:
            self._parameters: inspect.Signature | None = inspect.signature(function)
        except ValueError:  # some built-in functions have none
            self._parameters = None
        self._counts = _positional_counts(self._parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def check_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raise MessageError where the function cannot be called with these.

        A bound task's context is not among them.
        """
        if not kwargs and len(args) + self.options.bind in self._counts:
            return  # `bind` costs more than a short task does
        if self._parameters is not None:
            try:
                self._parameters.bind(*([None] if self.options.bind else []), *args, **kwargs)
            except TypeError as error:
                raise MessageError(f"arguments of {self.name!r}: {error}") from None

    def named_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, defaults included. Raises MessageError."""
        self.check_arguments(args, kwargs)
        if self._parameters is None:
            return dict(kwargs)
        bound = self._parameters.bind(*([None] if self.options.bind else []), *args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature of it with these arguments: to be sent, linked, or part of others."""
        return self.signature(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature that takes no further arguments."""
        return self.signature(args, kwargs, immutable=True)

    def signature(
        self,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Any,
    ) -> Signature:
        from blimp.queue.canvas.signature import signature

        return signature(self, args, kwargs, options, immutable=immutable)

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Send it with these arguments; `apply_async` takes options, too."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        **options: Unpack[SendOptions],
    ) -> AsyncResult:
        """Send the task to a worker; see SendOptions. What is not said is as the task says."""
        own = self.options
        defaults = {
            "ttl_s": own.ttl_s,
            "priority": own.priority,
            "queue": own.queue,
            "ignore_result": own.ignore_result,
            "coalesce": coalescing_key(self, args, kwargs or {}),
        }
        given = {name: value for name, value in options.items() if value is not None}
        return self.app.send_task(self.name, args, kwargs, **cast("SendOptions", defaults | given))


def _positional_counts(signature: inspect.Signature | None) -> range:
    """Return how many positional arguments are right where there are no others."""
    if signature is None:
        return range(0)
    counts = [0, 0]
    for one in signature.parameters.values():
        required = one.default is one.empty
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            counts = [counts[0] + required, counts[1] + 1]
        elif one.kind is one.KEYWORD_ONLY and required:
            return range(0)
    return range(counts[0], counts[1] + 1)


class TaskContext:
    """What a bound task sees of the message it runs for.

    stopping: set when the worker is asked to stop; a long task may end early on it.
    lost: set when the lease was lost: someone else runs the task now, and what this run ends
        with is refused. An `async def` task is cancelled; a plain one must look.
    revoked: set when the task was revoked while it runs, and is to end.
    grant: the executor that it holds, where its task `requires` one; `lost` is set, too, when
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
    ) -> None:
        self.task = task
        self.message = message
        self.worker = worker
        self.stopping = stopping
        self.lost = lost
        self.revoked = revoked
        self.previous = previous
        self.grant = grant

    @property
    def id(self) -> str:
        """The task's id, the same in every delivery and retry."""
        return self.message.id

    @property
    def fence(self) -> int:
        """The delivery count: grows each time the message comes again."""
        return self.message.delivery

    @property
    def redelivered(self) -> bool:
        """Whether it came again without having asked for it: put back, or its worker died."""
        return self.deliveries > 1

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included, retries not counted."""
        return max(1, self.message.delivery - self.message.retries)

    @property
    def began_before(self) -> bool:
        return self.previous is not None and self.previous.state is not State.PENDING

    def age_s(self) -> float | None:
        """Return how old the message may be on the broker's clock, None where it does not say."""
        if self.message.issued_ms is None:
            return None
        return self.task.app.broker_clock.latest_s() - self.message.issued_ms / 1000.0

    def progress(self, fraction: float, **details: Any) -> bool:
        """Publish how far the task is, 0 to 1. Lossy: False where that cannot be written.

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
        data = results.encode(record)
        try:
            return results.write(self.id, data)
        except (LinkError, ResultError):
            return False

    def retry(
        self,
        exc: Exception | None = None,
        *,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
    ) -> NoReturn:
        """Have the task run again later. Never returns.

        Raises Retry, or where it was tried `max_retries` times `exc`, or MaxRetriesExceeded.
        """
        limit = self.task.options.max_retries if max_retries is None else max_retries
        if limit is not None and self.message.retries >= limit:
            error = exc or MaxRetriesExceeded(
                f"{self.task.name}: tried again {limit} times, its limit"
            )
            give_up(error)
            raise error
        if eta is not None:
            countdown = epoch_s(eta) - self._broker_now_s()
        raise Retry(repr(exc) if exc else "", countdown_s=countdown) from exc

    def _broker_now_s(self) -> float:
        return self.task.app.broker_clock.now_s()
