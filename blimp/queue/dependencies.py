"""What a task's function gets from its worker, by parameter: see `Depends` in options.py.

A plain function's are opened by the same coroutines as an `async def` one's: nothing that they
call waits then, so they are run to their end at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from contextlib import AsyncExitStack
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError
from blimp.queue.extensions import Extension
from blimp.queue.options import Dependency
from blimp.queue.protocol.annotated import parameters_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

NOT_RUN = (
    GeneratorType, CoroutineType, AsyncGeneratorType, contextlib._AsyncGeneratorContextManager,
)  # fmt: skip
CLOSED_BY_S = 10.0  # as long as running tasks have by default when a worker stops


class Dependencies:
    """Those of one task. Raises ConfigError for what could not be opened for it."""

    def __init__(
        self,
        where: str,
        signature: inspect.Signature,
        *,
        is_async: bool,
        is_bound: bool,
        kept: Callable[[], Kept],
    ) -> None:
        self._kept = kept
        self._is_async = is_async
        self.signature = _without(where, signature, is_bound=is_bound)
        self._sources = _sources_of(where, signature)
        for name, source in self._sources.items():
            if source.is_async and not is_async:
                raise ConfigError(
                    f"{where}: {name!r} depends on a coroutine or an async generator, and a plain "
                    "function does not await: make one of them as the other is"
                )

    def call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        is_direct: bool,
    ) -> Any:
        """Call `function`, or return its coroutine, with what it depends on.

        is_direct: a caller may give that all the same, as a test does; a message may not.
        """
        if not is_direct and (given := next(filter(self._sources.__contains__, kwargs), None)):
            name = getattr(function, "__qualname__", "the task")
            raise TypeError(f"{name}() got an unexpected keyword argument {given!r}")
        called = self._call(function, args, kwargs)
        return called if self._is_async else _at_once(called)

    async def _call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        raised: list[BaseException] = []
        stack: AsyncExitStack[bool] = AsyncExitStack()
        try:
            async with stack:
                try:
                    opened: dict[Any, Any] = {}
                    values = {
                        name: await source.value(stack, opened, self._kept())
                        for name, source in self._sources.items()
                        if name not in kwargs
                    }
                    result = function(*args, **kwargs, **values)
                    return await result if self._is_async else result
                except BaseException as error:
                    raised.append(error)
                    raise
            raise raised.pop()  # a dependency took the error for itself: the task failed
        finally:
            raised.clear()  # the error has this frame: only the collector would find the pair


class _Source:
    """What one parameter depends on, and what that depends on itself. One for each `Depends`."""

    def __init__(self, where: str, dependency: Dependency) -> None:
        factory = dependency.factory
        self.is_kept = dependency.per == "worker"
        self._factory = factory
        self._opens_async = self._awaits = False
        inner = getattr(factory, "__wrapped__", None)
        if inner is not None and getattr(factory, "__globals__", None) is vars(contextlib):
            self._opens_async = inspect.isasyncgenfunction(inner)
        elif _is(inspect.isgeneratorfunction, factory):
            self._factory = contextlib.contextmanager(factory)
        elif _is(inspect.isasyncgenfunction, factory):
            self._opens_async, self._factory = True, contextlib.asynccontextmanager(factory)
        else:
            self._awaits = _is(inspect.iscoroutinefunction, factory)
        self.key = (_hashable(factory), dependency.per)
        self._where = where = f"{where}, {getattr(factory, '__qualname__', repr(factory))}()"
        signature = parameters_of(factory)
        self._needs = {} if signature is None else _sources_of(where, signature)
        for name, one in {} if signature is None else signature.parameters.items():
            variable = one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
            if name not in self._needs and one.default is one.empty and not variable:
                raise ConfigError(f"{where}: nothing gives it its parameter {name!r}")
            if name in self._needs and one.kind is one.POSITIONAL_ONLY:
                raise ConfigError(f"{where}: {name!r} cannot be given by name")
        for name, source in self._needs.items():
            if self.is_kept and not source.is_kept:
                raise ConfigError(
                    f"{where}: is made once per worker, and {name!r} ends with each call"
                )
        self.is_async: bool = (
            self._opens_async
            or self._awaits
            or any(source.is_async for source in self._needs.values())
        )

    async def value(self, stack: AsyncExitStack, opened: dict[Any, Any], kept: Kept) -> Any:
        """Return its value: the same for all of one call."""
        if self.key not in opened:
            if not self.is_kept:
                opened[self.key] = await self.open(stack, opened, kept)
            elif self.is_async:
                opened[self.key] = await kept.in_loop(self)
            else:
                opened[self.key] = kept.here(self)
        return opened[self.key]

    async def open(self, stack: AsyncExitStack, opened: dict[Any, Any], kept: Kept) -> Any:
        """Make another one. `stack` closes it."""
        needs = {
            name: await source.value(stack, opened, kept) for name, source in self._needs.items()
        }
        made = self._factory(**needs)
        if self._awaits:
            made = await made
        # What is made may be a context although its factory does not look like it: of a partial,
        # or of a wrapper.
        if isinstance(made, contextlib._GeneratorContextManager):
            return stack.enter_context(made)
        if self._opens_async:
            return await stack.enter_async_context(made)
        if isinstance(made, NOT_RUN):
            what = type(made).__name__.lstrip("_")
            if isinstance(made, CoroutineType):
                made.close()  # or Python warns of it later, and names no task
            raise TypeError(f"{self._where}: made a {what}, which nothing would run or open")
        return made


class Kept:
    """What is made once, at its first use, and closed at the end: in the order reversed.

    A plain one is made once for the process, and shared by its threads; of others each loop has
    its own, which only that loop uses. What could not be made is tried again at the next use.
    """

    def __init__(self) -> None:
        self.workers = 0  # of this process, that use it
        self._lock = threading.Lock()
        self._making: dict[Any, threading.Lock] = {}
        self._values: dict[Any, Any] = {}
        self._ends = contextlib.ExitStack()
        self._loops: dict[AbstractEventLoop, dict[Any, _Held]] = {}

    def here(self, source: _Source) -> Any:
        with self._lock:
            making = self._making.setdefault(source.key, threading.Lock())
        with making:
            if source.key not in self._values:
                stack = AsyncExitStack()
                value = _at_once(_opened(stack, source, self))
                with self._lock:
                    self._ends.callback(lambda: _at_once(stack.aclose()))
                    self._values[source.key] = value
            return self._values[source.key]

    async def in_loop(self, source: _Source) -> Any:
        held = self._of_loop()
        if source.key not in held or held[source.key].is_over:
            held[source.key] = _Held(source, self, held)
        return await asyncio.shield(held[source.key].made)

    def close(self) -> None:
        """Close what was made for the process. Raises the last error of those that do not."""
        with self._lock:
            ends, self._values = self._ends.pop_all(), {}
        ends.close()

    async def aclose(self) -> None:
        """Close what was made in the running loop. Raises the last error of those that do not."""
        held = self._of_loop()
        async with AsyncExitStack() as ends:
            while held:
                key = next(iter(held))
                ends.push_async_callback(held.pop(key).end)

    def _of_loop(self) -> dict[Any, _Held]:
        with self._lock:
            for loop in [loop for loop in self._loops if loop.is_closed()]:
                del self._loops[loop]  # it has ended what it held
            return self._loops.setdefault(asyncio.get_running_loop(), {})


async def _opened(stack: AsyncExitStack, source: _Source, kept: Kept) -> Any:
    return await source.open(stack, {}, kept)


class _Held:
    """One value that a loop keeps.

    It is opened and closed in a task of its own: a timeout or a task group that it is inside of
    must end where it began, and the job that is the first to ask may be cancelled.
    """

    def __init__(self, source: _Source, kept: Kept, held: dict[Any, _Held]) -> None:
        self._held = held
        self.made = asyncio.get_running_loop().create_future()
        self.made.add_done_callback(lambda made: made.cancelled() or made.exception())
        self._ends = asyncio.Event()
        self._task = asyncio.create_task(self._hold(source, kept))

    @property
    def is_over(self) -> bool:
        """Whether it could not be made, or has ended by itself: what it made is of no use."""
        failed = self.made.done() and (self.made.cancelled() or self.made.exception() is not None)
        return failed or self._task.done()

    async def end(self) -> None:
        self._ends.set()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def _hold(self, source: _Source, kept: Kept) -> None:
        try:
            async with AsyncExitStack() as stack:
                value = await source.open(stack, {}, kept)
                if self._held.get(source.key) is self:  # now what it needs is there, before it
                    self._held[source.key] = self._held.pop(source.key)
                self.made.set_result(value)
                await self._ends.wait()
        except BaseException as error:
            if self.made.done():
                raise
            if isinstance(error, Exception):
                self.made.set_exception(error)
            else:
                self.made.cancel()
                raise


class KeptCloser(Extension):
    """Closes at the end of a worker what was made once in it, each loop's in that loop.

    First what belongs to a loop, once its jobs have ended: that may need what is the process's.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._kept: Kept = worker.app.kept
        self._kept.workers += 1
        worker.pools.loop_ends.append((self._kept.aclose, CLOSED_BY_S))

    def stopped(self) -> None:
        self._kept.workers -= 1
        if self._kept.workers:  # another of this process has them still
            return
        end = _in_thread(self._kept.close)
        wait([end], timeout=CLOSED_BY_S)
        if not end.done():
            self._worker.log.error("dependencies do not close", after_s=CLOSED_BY_S)
        elif (error := end.exception()) is not None:
            self._worker.log.error("dependency does not close", exc_info=error)


def _in_thread(function: Callable[[], None]) -> Future[None]:
    """Call it in a thread that cannot keep the process from ending."""
    end: Future[None] = Future()

    def call() -> None:
        try:
            function()
            end.set_result(None)
        except BaseException as error:
            end.set_exception(error)

    threading.Thread(target=call, name="close", daemon=True).start()
    return end


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine returns that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("what a plain function depends on waited for a loop")


def _is(kind: Callable[[Any], bool], factory: Any) -> bool:
    if inspect.isclass(factory):
        return False  # calling it makes an instance
    return kind(factory) or kind(getattr(type(factory), "__call__", None))  # noqa: B004


def _hashable(factory: Any) -> Any:
    try:
        hash(factory)
    except TypeError:
        return id(factory)
    return factory


def _sources_of(where: str, signature: inspect.Signature) -> dict[str, _Source]:
    return {
        name: _Source(where, one.default)
        for name, one in signature.parameters.items()
        if isinstance(one.default, Dependency)
    }


def _without(where: str, signature: inspect.Signature, *, is_bound: bool) -> inspect.Signature:
    """Return the signature for senders. Raises ConfigError if their arguments would not fit it."""
    own: list[inspect.Parameter] = []
    before = ""
    for name, one in signature.parameters.items():
        if isinstance(one.default, Dependency):
            if one.kind is one.POSITIONAL_ONLY or (is_bound and not own):
                raise ConfigError(
                    f"{where}: {name!r} depends on something, and is given by name: make it a "
                    "parameter that can be, after the task's context"
                )
            if one.kind is not one.KEYWORD_ONLY:
                before = name
            continue
        if before and one.kind in (one.POSITIONAL_OR_KEYWORD, one.VAR_POSITIONAL):
            raise ConfigError(
                f"{where}: {before!r} depends on something, and stands before {name!r}, which a "
                "sender gives by its place: put it last"
            )
        own.append(one)
    return signature.replace(parameters=own)
