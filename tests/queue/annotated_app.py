"""Tasks whose arguments and results are made by annotation, in a thread, a loop and a process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from blimp.queue import TaskApp, TaskContext
from tests.queue.killed_app import BROKER


class Colour(Enum):
    RED = 1
    GREEN = 2


class Size(StrEnum):
    SMALL = "s"


class Place(NamedTuple):
    north_m: float
    east_m: float


class Part(msgspec.Struct, frozen=True, rename="camel"):
    number_of: int
    made: datetime


class Address(BaseModel):
    model_config = ConfigDict(strict=True)
    street: str = Field(alias="streetName", min_length=1)
    since: datetime
    ways: tuple[Path, ...] = ()


@dataclass
class Order:
    """One of everything."""

    id: UUID
    price: Decimal
    colour: Colour
    wait: timedelta
    file: Path
    place: Place
    parts: list[Part] = field(default_factory=list)
    address: Address | None = None
    raw: bytes = b""
    by_number: dict[int, str] = field(default_factory=dict)


def order() -> Order:
    moment = datetime(2026, 11, 28, 9, 0, 0, 123456, tzinfo=UTC)
    return Order(
        id=UUID(int=7),
        price=Decimal("1.20"),
        colour=Colour.GREEN,
        wait=timedelta(days=1, seconds=2.5),
        file=Path("/var/lib/a b"),
        place=Place(1.0, -2.5),
        parts=[Part(3, moment)],
        address=Address(streetName="Ring", since=moment, ways=(Path("x"),)),
        raw=b"\xff\x00",
        by_number={2: "two"},
    )


def turned(given: Order, *more: Part, after: timedelta = timedelta(0), **named: Colour) -> Order:
    """Fail by an attribute that a dict has not, if something was not made."""
    given.wait = given.wait + after
    given.parts = [*given.parts, *more]
    given.colour = named.get("colour", given.colour)
    assert given.address is not None
    assert given.address.street
    return given


async def turned_in_loop(
    given: Order, *more: Part, after: timedelta = timedelta(0), **named: Colour
) -> Order:
    return turned(given, *more, after=after, **named)


def listed(given: list[Order], by: dict[str, Path | None]) -> tuple[list[Colour], Path | None]:
    return [one.colour for one in given], by["it"]


def of_size(context: TaskContext, size: Size) -> Size:
    assert context.task.name == "size"
    return Size(size.value)


def define(app: TaskApp) -> TaskApp:
    """Register them."""
    places: tuple[tuple[str, Callable[..., Any], bool], ...] = (
        ("thread", turned, False), ("loop", turned_in_loop, False), ("process", turned, True),
    )  # fmt: skip
    for place, function, is_process in places:
        app.task(name=place, cpu_bound=is_process)(function)
    app.task(name="listed")(listed)
    app.task(name="size", bind=True)(of_size)
    app.task(name="again", autoretry_for=(Exception,), max_retries=9)(turned)
    return app


app = define(TaskApp("annotated", broker=BROKER, result_backend=BROKER))
