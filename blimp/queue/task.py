"""A task: a function with a name and options. And the tasks that every app has."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import re
import types
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, Unpack, overload

import msgspec

from blimp.errors import ConfigError, MessageError, Retry
from blimp.queue.located import ByName, module_name, path_of_app, task_at
from blimp.queue.options import Dependency, TaskOptions
from blimp.queue.protocol.annotated import Annotations, P, R, are_plain, parameters_of
from blimp.queue.protocol.embed import GATHER, STARMAP, check_signature, kind_of
from blimp.queue.protocol.kombu_body import from_json
from blimp.queue.protocol.message import to_json
from blimp.queue.results.backend import awaited
from blimp.queue.retry import give_up

if TYPE_CHECKING:
    from blimp.queue.canvas.signature import Signature, group
    from blimp.queue.dependencies import Dependencies
    from blimp.queue.interface import App
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.publish.publisher import SendOptions
    from blimp.queue.results.handle import AsyncResult


MOST_WRAPPERS = 20  # of one function, to look through


class Task(ByName, Generic[P, R]):
    """A registered function. Call it to run it here; `delay` sends it to a worker.

    P: its parameters, but for a bound task's context. R: what it returns, or its coroutine does.
    """

    def __init__(
        self, *, app: App, name: str, function: Callable[..., Any], options: TaskOptions
    ) -> None:
        if isinstance(function, Task):
            function = function.function
        self.app = app
        self.name = name
        self.function: Callable[..., Any] = function
        self.options = options
        self.is_async = is_async(name, function)
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
        self._parameters = parameters_of(function)
        self._needs: Dependencies | None = None
        if self._parameters is not None and _has_dependencies(self._parameters):
            from blimp.queue.dependencies import Dependencies  # most tasks have none

            self._needs = Dependencies(
                f"task {name!r}",
                self._parameters,
                is_async=self.is_async,
                is_bound=options.bind,
                kept=lambda: app.kept,
            )
            self._parameters = self._needs.signature
        self._counts = _positional_counts(self._parameters)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._call(args, kwargs, is_direct=True)

    if not TYPE_CHECKING:  # a checker knows what there is

        def __getattr__(self, name: str) -> Any:
            from blimp.queue.words import TASK, missing  # of a mistake alone

            raise missing(self, TASK, name)

    def __reduce__(self) -> Any:
        return task_at, (path_of_app(self.app), self.name)

    @property
    def has_dependencies(self) -> bool:
        return self._needs is not None

    def _call(self, args: Sequence[Any], kwargs: dict[str, Any], *, is_direct: bool) -> Any:
        """Call the function, with what it depends on."""
        if self._needs is None:
            return self.function(*args, **kwargs)
        return self._needs.call(self.function, args, kwargs, is_direct=is_direct)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function as a worker does, with a context if it is bound, as of a first try.

        For tests: it raises what the function raises, Retry and Replace too, and sends nothing.
        Progress is reported to nobody. A coroutine is returned, to be awaited.
        """
        context = [self.app.direct_context(self, args, kwargs)] if self.options.bind else []
        return self._call((*context, *args), kwargs, is_direct=True)

    @cached_property
    def annotations(self) -> Annotations:
        """What has to be made of its arguments and its result. Classes must be defined by now."""
        return Annotations(self.function, self._parameters, skip=int(self.options.bind))

    @cached_property
    def run(self) -> Callable[..., Any]:
        """The function, for arguments as a message has them."""
        if self.annotations.has_arguments:
            return self._run_made
        return self.function if self._needs is None else self._run_filled

    def _run_filled(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(args, kwargs, is_direct=False)

    def _run_made(self, *args: Any, **kwargs: Any) -> Any:
        try:
            made, named = self.annotations.made(args, kwargs, where=f"arguments of {self.name!r}")
        except MessageError as error:
            give_up(error)  # they would be as wrong in another try
            raise
        return self._call(made, named, is_direct=False)

    @cached_property
    def version(self) -> str:
        """What tells functions apart that take other arguments. Defaults are not looked at."""
        parameters = () if self._parameters is None else self._parameters.parameters.values()
        words = [
            f"{one.kind:d} {one.name} {one.default is one.empty} {one.annotation}"
            for one in parameters
        ]
        text = re.sub(r" at 0x[0-9a-f]+", "", "\n".join(words))  # of what has no name
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def can_take(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Return whether the function can be called with arguments as a message has them."""
        try:
            self.check_arguments(args, kwargs)
            if self.annotations.has_arguments:
                context = [None] if self.options.bind else []
                self.annotations.made((*context, *args), kwargs, where="arguments")
        except MessageError:
            return False
        return True

    def check_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raise MessageError if the function cannot be called with these.

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

    def key_of(self, option: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """Return the key that an option, such as `fair_key`, makes of arguments as sent.

        Raises MessageError if it cannot be made of them.
        """
        key: Any = getattr(self.options, option)
        named = self.named_arguments(args, kwargs)
        try:
            if key is None:
                return to_json(sorted(named.items())).decode()
            if isinstance(key, str):
                return key.format_map(named)
            wanted = inspect.signature(key).parameters
            if self.annotations.has_arguments:
                where = f"arguments of {self.name!r}"
                named = self.annotations.made((), named, where=where)[1]
            if not any(one.kind is one.VAR_KEYWORD for one in wanted.values()):
                named = {name: named[name] for name in wanted if name in named}
            return str(key(**named))
        except MessageError:
            raise
        except Exception as error:  # the key is code of anybody
            raise MessageError(f"{option} of {self.name!r}: {type(error).__name__}: {error}") from (
                error
            )

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature of it with these arguments: to send, to link, or for a canvas."""
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
        from blimp.queue.canvas.signature import signature  # a ship's worker makes none

        return signature(self, args, kwargs, options, immutable=immutable)

    def map(self, items: Iterable[Any]) -> Signature:
        """Return one task that calls this one with each item in turn; returns all results."""
        from blimp.queue.canvas.signature import mapped

        return mapped(self.s(), items)

    def starmap(self, items: Iterable[Iterable[Any]]) -> Signature:
        """Return one task that calls this one with the arguments of each item in turn."""
        from blimp.queue.canvas.signature import mapped

        return mapped(self.s(), items, star=True)

    def chunks(self, items: Iterable[Iterable[Any]], size: int) -> group:
        """Return a group of `starmap` tasks with up to `size` items each."""
        from blimp.queue.canvas.signature import chunks

        return chunks(self.s(), items, size)

    def delay(self, /, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Send it with these arguments; `apply_async` takes options, too."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        **options: Unpack[SendOptions],
    ) -> AsyncResult[R]:
        """Send the task to a worker; see SendOptions. Missing options default to the task's.

        Raises TypeError for arguments with which the function cannot be called, as a call does.
        """
        self.check_sent(args, kwargs or {})
        sent: AsyncResult[R] = self.app.send_task(self.name, args, kwargs, **options)
        return sent

    def check_sent(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raise TypeError for arguments of no call, or that would not arrive as they are."""
        try:
            self.check_arguments(args, kwargs)
        except MessageError as error:
            raise TypeError(str(error)) from None
        try:
            if not are_plain((args, kwargs)):
                where = f"arguments of {self.name!r}"
                self.annotations.check_sent(args, kwargs, arrives=_arrives, where=where)
        except RecursionError:
            pass  # JSON cannot hold them either, and sending them says so

    @property
    def awaiting(self) -> Any:
        return self.app.awaiting

    adelay = awaited(delay)
    aapply_async = awaited(apply_async)


def _arrives(value: Any) -> Any:
    """Return what a receiver reads of `value`. Raises TypeError, ValueError, RecursionError."""
    return from_json(to_json(value))


class Register(Protocol):
    """What `TaskApp.task(…)` returns: it makes a task of a function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


# --- which functions can be tasks ----------------------------------------------------------------


def name_of(function: Any) -> str:
    """Return the name of a task without one: that of its function, or of a partial's.

    Raises ConfigError if it has none.
    """
    if isinstance(function, Task):
        return function.name
    if not callable(function):
        raise ConfigError(f"a task must be a function, not {type(function).__name__}")
    while isinstance(function, partial) and not hasattr(function, "__qualname__"):
        function = function.func
    try:
        return f"{module_name(function.__module__)}.{function.__qualname__}"
    except AttributeError:
        kind = type(function).__name__
        raise ConfigError(
            f"a task of type {kind} has no name of its own: give it one, name={kind.lower()!r}"
        ) from None


def is_async(name: str, function: Any) -> bool:
    """Return whether `function` is to be awaited.

    Raises ConfigError for one that only makes something that would never run.
    """
    called = _called(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        what = "a generator" if inspect.isgeneratorfunction(called) else "an async generator"
        raise ConfigError(
            f"task {name!r} is {what} function, and nothing would run it: return a list instead "
            "of `yield`, or send one task for each item"
        )
    if inspect.iscoroutinefunction(called):
        return True
    if getattr(called, "__globals__", None) is vars(contextlib):
        raise ConfigError(f"task {name!r} is a context manager: write a task that uses it")
    inner = called
    for _ in range(MOST_WRAPPERS):
        inner = _called(getattr(inner, "__wrapped__", None))
        if inspect.iscoroutinefunction(inner):
            raise ConfigError(
                f"task {name!r} wraps a coroutine function, and is none: make the wrapper "
                "`async def` and await what it wraps; of one that runs the coroutine itself, "
                "delete `__wrapped__`"
            )
    return False


def _called(function: Any) -> Any:
    """Return the function that is run by calling `function`, which may be an object of a class."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, staticmethod):
        return _called(function.__func__)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    call = getattr(type(function), "__call__", None)  # noqa: B004
    return call if inspect.isfunction(call) else function


_NEVER_RUN: dict[type, str] = {
    types.CoroutineType: "a coroutine, which has not run: make the task `async def` and await it",
    types.GeneratorType: "a generator, which has not run: return a list of it",
    types.AsyncGeneratorType: "an async generator, which has not run: return a list of it",
}


def check_returned(name: str, result: Any) -> None:
    """Raise TypeError if task `name` returned what still has to be run: it would be lost.

    A Retry that it returned is raised.
    """
    if isinstance(result, Retry):
        raise result
    what = _NEVER_RUN.get(type(result))
    if what is not None:
        if isinstance(result, types.CoroutineType):
            result.close()  # or Python warns of it later, and names no task
        raise TypeError(f"{name} returned {what}")


def _has_dependencies(signature: inspect.Signature) -> bool:
    return any(isinstance(one.default, Dependency) for one in signature.parameters.values())


def _positional_counts(signature: inspect.Signature | None) -> range:
    """Return how many positional arguments are right if there are no others."""
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


# --- the tasks named celery.* --------------------------------------------------------------------
# Every app has them, because Celery's clients send them. `celery.map` and `celery.starmap` call
# another task, here and now, with one item after the other: they run as that task would, with its
# options, in its pool, with what it requires.


def builtin_task(app: App, name: str) -> Task | None:
    """Return the built-in task called `name`, None if there is none."""
    function = _FUNCTIONS.get(name)
    if function is None:
        return None
    return Task(app=app, name=name, function=function, options=TaskOptions(bind=True))


def map_task(app: App, message: TaskMessage) -> Task:
    """Return the task that a `celery.map` or `celery.starmap` message asks for.

    Raises UnknownTask, MessageError.
    """
    called = message.kwargs.get("task")
    check_signature(called, where=f"{message.task}: task")
    task = app.get_task(called["task"])  # type: ignore[index]
    if kind_of(called) is not None:  # type: ignore[arg-type]
        raise MessageError(f"{message.task}: {task.name!r} is not a single task")
    options = msgspec.structs.replace(task.options, bind=True)
    function = _mapping(task, star=message.task == STARMAP)
    return Task(app=app, name=message.task, function=function, options=options)


def _mapping(called: Task, *, star: bool) -> Callable[..., Any]:
    def calls(context: Any, it: Sequence[Any]) -> list[tuple[Any, ...]]:
        before: tuple[Any, ...] = ()
        if called.options.bind:
            own = copy.copy(context)
            own.task = called
            before = (own,)
        return [(*before, *(item if star else (item,))) for item in it]

    def checked(result: Any) -> Any:
        check_returned(called.name, result)
        return result

    def call_each(context: Any, task: object, it: Sequence[Any]) -> list[Any]:  # noqa: ARG001
        return [checked(called.run(*args)) for args in calls(context, it)]

    async def await_each(context: Any, task: object, it: Sequence[Any]) -> list[Any]:  # noqa: ARG001
        return [checked(await called.run(*args)) for args in calls(context, it)]

    return await_each if called.is_async else call_each


def _accumulate(_: Any, *args: Any, index: int | None = None, **__: Any) -> Any:
    return args if index is None else args[index]


def _backend_cleanup(context: Any) -> None:
    results = context.task.app.results
    if results is not None:
        results.cleanup()


def _chunks(context: Any, task: Any, it: Sequence[Any], n: int) -> None:
    from blimp.queue.canvas.signature import chunks, signature

    context.replace(chunks(signature(task), it, n))


def _group(
    context: Any,
    tasks: Sequence[Any],
    result: object = None,  # noqa: ARG001
    group_id: str | None = None,  # noqa: ARG001
    partial_args: Sequence[Any] = (),
    **_: object,
) -> None:
    from blimp.queue.canvas.signature import group, signature

    context.replace(group(signature(one).clone(partial_args) for one in tasks))


def _chord(
    context: Any, header: Any, body: Any, partial_args: Sequence[Any] = (), **_: object
) -> None:
    from blimp.queue.canvas.signature import chord, signature

    tasks = header["kwargs"]["tasks"] if isinstance(header, dict) else header
    parts = [signature(one).clone(partial_args) for one in tasks]
    context.replace(chord(parts, signature(body)))


def _chain(_: Any, *__: Any, **___: Any) -> None:
    raise NotImplementedError("chain is not a real task")


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    GATHER: _accumulate,
    "celery.backend_cleanup": _backend_cleanup,
    "celery.chunks": _chunks,
    "celery.group": _group,
    "celery.chord": _chord,
    "celery.chain": _chain,
}
