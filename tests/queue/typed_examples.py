"""What type checkers see of tasks: read by mypy and pyright, never run.

Each line that must be wrong has an ignore of its own, which a checker reports if it is not needed.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, assert_type

from blimp.queue import AsyncResult, Depends, Task, TaskApp, TaskContext
from blimp.queue.django import DjangoTaskApp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

P = ParamSpec("P")
R = TypeVar("R")
app = TaskApp("typed", broker="memory://")
shop = DjangoTaskApp("typed")


class Session:
    """What a worker opens."""

    name = ""


@app.task
def add(x: int, y: int = 1) -> int:
    """A task by the bare decorator."""
    return x + y


@app.task(name="read", max_retries=1)
async def read(station: str, *, metres: float = 0.0) -> dict[str, float]:
    """A coroutine's result is what it returns."""
    return {station: metres}


@app.task(bind=True)
def work(context: TaskContext, steps: int) -> str:
    """Who sends a bound task passes no context."""
    return f"{context.message.id}: {steps}"


@app.task(bind=True, name="wait")
async def wait(context: TaskContext, steps: int) -> None:
    context.progress(1.0, steps=steps)


def logged(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return inner


@app.task(name="wrapped")
@logged
def wrapped(name: str) -> bytes:
    return name.encode()


def session() -> Iterator[Session]:
    yield Session()


async def asession() -> AsyncIterator[Session]:
    yield Session()


@contextmanager
def transaction(session: Session = Depends(session)) -> Iterator[Session]:
    yield session


@asynccontextmanager
async def atransaction(session: Session = Depends(asession)) -> AsyncIterator[Session]:
    yield session


async def fetched() -> bytes:
    return b""


@app.task(name="stored")
def stored(
    row: int,
    session: Session = Depends(session, per="worker"),
    same: Session = Depends(transaction),
    made: Session = Depends(Session),
) -> str:
    return session.name


@app.task(name="astored")
async def astored(
    row: int,
    session: Session = Depends(asession),
    same: Session = Depends(atransaction),
    raw: bytes = Depends(fetched),
) -> str:
    return session.name


def wrongly(raw: bytes = Depends(session), more: str = Depends(fetched)) -> None:  # type: ignore[assignment]
    """What is yielded or awaited must be what the parameter is."""


@shop.task
def order(item: str, *, count: int = 1) -> int:
    return len(item) * count


@shop.task(name="ship", max_retries=1)
async def ship(number: int) -> str:
    return str(number)


@shop.task(bind=True, name="bill")
def bill(context: TaskContext, number: int) -> bool:
    return context.id == str(number)


half = app.task(name="half")(partial(add.function, y=2))


def typed() -> None:
    assert_type(add.delay(1), AsyncResult[int])
    assert_type(add.delay(1, y=2).get(), int)
    assert_type(add.apply_async((1,), countdown=1.0).get(5.0), int)
    assert_type(read.delay("pad", metres=2.0).get(), dict[str, float])
    assert_type(work.delay(3).get(), str)
    assert_type(wrapped.delay("x").get(), bytes)
    assert_type(wait.delay(3), AsyncResult[None])
    assert_type(stored.delay(1).get(), str)
    assert_type(astored.delay(1).get(), str)
    assert_type(order.delay("lamp").get(), int)
    assert_type(ship.delay(3).get(), str)
    assert_type(bill.delay(3).get(), bool)
    order.delay_on_commit("lamp", count=2)
    ship.delay_on_commit(3)
    bill.delay_on_commit(3)
    bill.apply_async_on_commit((3,), using="archive", robust=True, countdown=1.0)


async def awaited() -> None:
    assert_type(await add.adelay(1), AsyncResult[int])
    assert_type(await (await read.aapply_async(("pad",))).aget(), dict[str, float])
    await add.adelay("x")  # type: ignore[arg-type]


def wrong() -> None:
    add.delay("x")  # type: ignore[arg-type]
    stored.delay("x")  # type: ignore[arg-type]
    add.delay()  # type: ignore[call-arg]
    add.delay(1, z=2)  # type: ignore[call-arg]
    read.delay("pad", 2.0)  # type: ignore[call-arg]
    work.delay(None, 3)  # type: ignore[call-arg, arg-type]
    wrapped.delay(3)  # type: ignore[arg-type]
    number: str = add.delay(1).get()  # type: ignore[assignment]
    app.task(nmae="x")  # type: ignore[call-overload]
    order.delay_on_commit(3)  # type: ignore[arg-type]
    ship.delay_on_commit()  # type: ignore[call-arg]
    bill.delay_on_commit(None, 3)  # type: ignore[call-arg, arg-type]
    bill.apply_async_on_commit((3,), in_s=1.0)  # type: ignore[call-arg]
    shop.task(nmae="x")  # type: ignore[call-overload]
    print(number)


def untyped(task: Task, result: AsyncResult) -> Any:
    """Without parameters they are of anything."""
    task.delay(1, "x", y=None)
    return result.get()
