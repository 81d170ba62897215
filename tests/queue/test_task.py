"""What may be declared as a task, and what is refused then."""

import contextlib
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from blimp.errors import ConfigError, TaskFailed
from blimp.queue import TaskApp
from tests.queue.conftest import DEADLINE_S, working


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap it as decorators do."""

    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


def add(a: int, b: int) -> int:
    return a + b


async def add_async(a: int, b: int) -> int:
    return a + b


def rows(a: int, b: int) -> Iterator[int]:
    yield a + b


async def rows_async(a: int, b: int) -> AsyncIterator[int]:
    yield a + b


class Adder:
    def __call__(self, a: int, b: int) -> int:
        return a + b

    def add(self, a: int, b: int) -> int:
        return a + b

    @staticmethod
    def static(a: int, b: int) -> int:
        return a + b

    @classmethod
    async def of_class(cls, a: int, b: int) -> int:
        return a + b


class AsyncAdder:
    async def __call__(self, a: int, b: int) -> int:
        return a + b


class Rows:
    def __call__(self, a: int, b: int) -> Iterator[int]:
        yield a + b


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (rows, "is a generator function.*return a list"),
        (rows_async, "is an async generator function.*return a list"),
        (functools.partial(rows, 1), "is a generator function"),
        (Rows(), "is a generator function"),
        (plain(add_async), "wraps a coroutine function.*make the wrapper `async def`"),
        (functools.lru_cache(add_async), "wraps a coroutine function"),
        (contextlib.contextmanager(rows), "is a context manager"),
    ],
)
@pytest.mark.parametrize("cpu_bound", [False, True])
def test_what_would_never_run_is_refused_when_it_is_declared(
    function: Any, reason: str, cpu_bound: bool
) -> None:
    app = TaskApp("tests", broker="redis://nowhere")
    several: tuple[Any, ...] = ({}, {"ignore_result": True}, {"bind": True})
    for options in several:
        with pytest.raises(ConfigError, match=f"task 'named' {reason}"):
            app.task(name="named", cpu_bound=cpu_bound, **options)(function)
    assert app.tasks == {}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Adder(), "has no name of its own: give it one, name="),
        (functools.partial(Adder(), 1), "has no name of its own"),
        ("add", "a task must be a function, not str"),
        (classmethod(add), "a task must be a function, not classmethod"),  # type: ignore[arg-type]
    ],
)
def test_what_has_no_name_or_cannot_be_called_is_refused(wrong: Any, reason: str) -> None:
    app = TaskApp("tests", broker="redis://nowhere")
    with pytest.raises(ConfigError, match=reason):
        app.task()(wrong)
    assert app.tasks == {}


def test_partials_and_wrappers_of_plain_functions_have_the_names_of_these() -> None:
    app = TaskApp("tests", broker="redis://nowhere")
    names = [app.task(one).name for one in (functools.partial(add, 1), Adder().add, Adder.static)]
    assert names == [f"{__name__}.add", f"{__name__}.Adder.add", f"{__name__}.Adder.static"]
    with pytest.raises(ConfigError, match="two tasks are named"):
        app.task(plain(add))


@pytest.mark.parametrize(
    "function",
    [
        add, plain(add), plain(plain(add)), functools.partial(add, b=2), functools.lru_cache(add),
        functools.partial(plain(add), b=2), Adder(), Adder().add, Adder.static,
        staticmethod(add), functools.partial(Adder(), b=2),
        add_async, functools.partial(add_async, b=2), AsyncAdder(), Adder.of_class,
        functools.partial(AsyncAdder(), b=2),
    ],
)  # fmt: skip
def test_whatever_can_be_called_and_comes_to_an_end_runs(app: TaskApp, function: Any) -> None:
    task = app.task(name="task")(function)
    with working(app):
        assert task.delay(1, b=2).get(DEADLINE_S) == 3


def test_a_task_of_another_app_is_that_function_here(app: TaskApp) -> None:
    other = TaskApp("other", broker="redis://nowhere")
    for name, function in (("plain", add), ("async", add_async)):
        app.task(name=name)(other.task(name=name)(function))
    with working(app):
        assert app.send_task("plain", (1, 2)).get(DEADLINE_S) == 3
        assert app.send_task("async", (1, 2)).get(DEADLINE_S) == 3


def test_an_async_wrapper_of_anything_runs(app: TaskApp) -> None:
    def wrapped(function: Any) -> Any:
        @functools.wraps(function)
        async def inner(a: int, b: int) -> Any:
            found = function(a, b)
            if inspect.iscoroutine(found):
                return await found
            if isinstance(found, AsyncIterator):
                return [one async for one in found]
            return list(found) if isinstance(found, Iterator) else found

        return inner

    tasks = [
        app.task(name=one.__name__)(wrapped(one)) for one in (add, add_async, rows, rows_async)
    ]
    with working(app):
        found = [task.delay(1, 2).get(DEADLINE_S) for task in tasks]
    assert found == [3, 3, [3], [3]]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("ignore_result", [False, True])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (add_async, "returned a coroutine, which has not run.*async def"),
        (rows, "returned a generator, which has not run.*list"),
        (rows_async, "returned an async generator, which has not run"),
    ],
)
def test_what_it_returns_that_would_never_run_is_a_failure(
    app: TaskApp, make: Any, reason: str, ignore_result: bool, is_async: bool
) -> None:
    heard: list[str] = []
    came = threading.Event()

    async def asynchronous() -> Any:
        return make(1, 2)

    function = asynchronous if is_async else lambda: make(1, 2)
    task = app.task(name="returns", ignore_result=ignore_result)(function)

    @app.task(name="heard")
    def hear(id: str) -> None:
        heard.append(id)
        came.set()

    with working(app):
        handle = task.apply_async(link_error=hear.s())
        assert came.wait(DEADLINE_S)
        if not ignore_result:
            with pytest.raises(TaskFailed, match=f"TypeError: returns {reason}"):
                handle.get(DEADLINE_S)
    assert heard == [handle.id]


def test_each_call_of_a_map_must_run(app: TaskApp) -> None:
    task = app.task(name="returns")(lambda one: add_async(one, 1))
    with working(app), pytest.raises(TaskFailed, match="returned a coroutine"):
        task.map([1, 2]).delay().get(DEADLINE_S)


def test_a_version_tells_other_arguments_apart_and_nothing_else(app: TaskApp) -> None:
    def again(a: int, b: int = 0) -> int:
        return a + b

    def marked(a: functools.partial(add, 1), b: int) -> int:  # type: ignore[valid-type]
        return b

    functions: tuple[Any, ...] = (add, plain(add), again, lambda a: a, lambda *, a: a, marked)
    made = [app.task(name=f"{number}")(one).version for number, one in enumerate(functions)]
    assert made[0] == made[1]
    assert len({*made}) == 5
    marked.__annotations__["a"] = functools.partial(add, 1)  # another object, at another address
    assert app.task(name="marked")(marked).version == made[-1]
