"""Arguments and results by annotation, from a sender through each pool and back."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pydantic.dataclasses
import pytest
from pydantic import BaseModel, Field, SecretStr

from blimp.errors import MessageError, ResultError, TaskFailed
from blimp.queue import Task, TaskApp, TaskContext, chord, group
from blimp.queue.protocol.annotated import to_builtins
from blimp.queue.protocol.kombu_body import from_json
from blimp.queue.protocol.message import to_json
from tests.queue.annotated_app import Colour, Place, Size, define, order
from tests.queue.conftest import DEADLINE_S, WorkerProcess, working

if TYPE_CHECKING:
    from decimal import Decimal as Unknown


@pytest.fixture
def app(url: str, start_worker: Callable[..., WorkerProcess]) -> Iterator[TaskApp]:
    start_worker(url, app="tests.queue.annotated_app:app", options="--process-workers 1")
    with define(TaskApp("annotated", broker=url, result_backend=url)) as app:
        yield app


@pytest.fixture
def alone() -> Iterator[TaskApp]:
    with TaskApp("alone", broker="memory://") as app:
        yield app


@pytest.mark.parametrize("place", ["thread", "loop", "process"])
def test_what_a_sender_gives_arrives_and_comes_back_as_what_it_was(
    app: TaskApp, place: str
) -> None:
    task = app.tasks[place]
    given, part = order(), order().parts[0]
    assert task.delay(given).get(DEADLINE_S) == given

    after = timedelta(hours=1)
    found = task.delay(given, part, part, after=after, colour=Colour.RED).get(DEADLINE_S)
    assert found.parts == [part] * 3
    assert found.colour is Colour.RED
    assert found.wait == given.wait + after


def test_what_is_not_annotated_so_is_json_also_of_a_sender_that_knows_no_task(
    app: TaskApp, url: str
) -> None:
    with TaskApp("annotated", broker=url, result_backend=url) as other:
        sent = other.send_task("thread", [order()])
        plain = sent.get(DEADLINE_S)
        assert plain["colour"] == 2
        assert plain["parts"][0]["numberOf"] == 3
        assert other.send_task("thread", [plain]).get(DEADLINE_S) == plain
    assert app.result(sent.id).get(DEADLINE_S) == order()
    assert app.result(sent.id).result == order()


def test_in_containers_bound_tasks_and_canvases(app: TaskApp) -> None:
    listed, thread = app.tasks["listed"], app.tasks["thread"]
    by = {"it": Path("x")}
    assert listed.delay([order()], by).get(DEADLINE_S) == ([Colour.GREEN], Path("x"))
    assert listed.delay([], {"it": None}).get(DEADLINE_S) == ([], None)
    assert app.tasks["size"].delay(Size.SMALL).get(DEADLINE_S) is Size.SMALL

    chained = (thread.s(order()) | app.tasks["process"].s() | thread.s()).delay()
    assert chained.get(DEADLINE_S) == order()
    both = group(thread.s(order()), app.tasks["size"].s(Size.SMALL)).delay()
    assert both.get(DEADLINE_S) == [order(), Size.SMALL]
    ended = chord([thread.s(order()), thread.s(order())])(listed.s(by))
    assert ended.get(DEADLINE_S) == ([Colour.GREEN] * 2, Path("x"))
    assert [one.get(DEADLINE_S) for one in app.send_many([thread.s(order())] * 2)] == [order()] * 2
    assert thread.map([order()]).delay().get(DEADLINE_S)[0]["price"] is not None


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "missing": (lambda plain: plain.pop("price"), "missing required field `price`"),
    "enum": (lambda plain: plain.update(colour=9), "Invalid enum value 9 - at `$.colour`"),
    "path": (lambda plain: plain.update(file=1), "Expected `Path`, got `int` - at `$.file`"),
    "pydantic": (
        lambda plain: plain["address"].update(streetName=""),
        "String should have at least 1 character",
    ),
    "nested": (lambda plain: plain["parts"][0].pop("made"), "at `$.parts[0]`"),
}


def test_what_cannot_be_made_fails_once_and_names_what_and_where(app: TaskApp) -> None:
    for place in ("thread", "loop", "process", "again"):
        for name, (spoil, reason) in WRONG.items():
            plain = to_builtins(order())
            spoil(plain)
            sent = app.tasks[place].delay(plain)
            with pytest.raises(TaskFailed) as failed:
                sent.get(DEADLINE_S)
            assert failed.value.kind == "MessageError"
            assert f"arguments of '{place}': given: " in str(failed.value), name
            assert reason in str(failed.value)
            assert sent.record.retries == 0


@dataclass
class Own:
    at: int


class Mixed(Enum):
    A = 1
    B = "b"


def untyped(given: Any) -> None: ...
def in_kwargs(**given: int) -> None: ...
def vague(given: "str | Path") -> None: ...
def unknown(given: "Unknown") -> None: ...
def nothing(given: Any) -> None: ...
def mixed(given: Mixed) -> None: ...


nothing.__annotations__["given"] = "no words"


@pytest.mark.parametrize(
    ("function", "value", "why"),
    [
        (untyped, Own(1), "its annotation names no such type"),
        (in_kwargs, Own(1), "its annotation names no such type"),
        (untyped, [{"a": (Own(1),)}], "its annotation names no such type"),
        (vague, Path("x"), "may not contain any additional types other than `None`"),
        (unknown, timedelta(1), "name 'Unknown' is not defined"),
        (nothing, Own(1), "SyntaxError"),
        (mixed, Mixed.A, "must contain either all str or all int values"),
    ],
)
def test_what_no_receiver_could_make_is_refused_at_the_call(
    alone: TaskApp, function: Callable[..., None], value: Any, why: str
) -> None:
    task = alone.task(name="it")(function)
    with pytest.raises(
        TypeError, match=r"arguments of 'it': given holds a \w+ that would not"
    ) as refused:
        task.delay(given=value)
    assert why in str(refused.value)


class Pair(NamedTuple):
    a: int


def test_what_json_has_words_for_needs_no_annotation(alone: TaskApp) -> None:
    task = alone.task(name="it")(untyped)
    for value in (Pair(1), Size.SMALL, {"a": 1}, [1], (1, 2)):
        task.delay(value)
    assert to_json([Size.SMALL, Pair(1), Place(1.0, 2.0)]) == b'["s",[1],[1.0,2.0]]'


def test_a_model_that_holds_what_json_cannot_is_refused(alone: TaskApp) -> None:
    def own(given: Own) -> None: ...

    task = alone.task(name="it")(own)
    ring: Any = Own(0)
    ring.at = ring
    for value in (Own(float("nan")), Own(object()), ring, Own("\ud800")):  # type: ignore[arg-type]
        with pytest.raises(MessageError, match="arguments of 'it': JSON cannot hold them"):
            task.delay(value)


def trip(task: Task[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Send it as `delay` does, and run what arrives."""
    task.delay(*args, **kwargs)
    return run_plain(task, *args, **kwargs)


def run_plain(task: Task[..., Any], *args: Any, **kwargs: Any) -> Any:
    found = from_json(to_json([args, kwargs]))
    return task.run(*found[0], **found[1])


def test_a_wrapper_gets_positional_and_keyword_arguments_as_they_were_sent(
    alone: TaskApp,
) -> None:
    def named(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return kwargs["tenant"], function(*args, **kwargs)

        return inner

    @alone.task(name="it")
    @named
    def it(given: Own, tenant: str) -> Own:
        return given

    assert trip(it, Own(1), tenant="t") == ("t", Own(1))


def test_an_annotation_that_msgspec_knows_nothing_of_gets_what_json_has(alone: TaskApp) -> None:
    def it(given: Iterable[Own]) -> Any:
        return given

    def bare(given: BaseModel, more: msgspec.Struct, some: Enum) -> Any:
        return given

    task = alone.task(name="it")(it)
    assert task.run([{"at": 1}]) == [{"at": 1}]
    with pytest.raises(TypeError, match="is not made from JSON"):
        task.delay([Own(1)])
    plain: Any = {"at": 1}
    assert alone.task(name="bare")(bare).run(plain, plain, 1) == plain


def test_none_is_right_where_it_is_the_default(alone: TaskApp) -> None:
    def it(given: Colour = None, after: timedelta = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013
        return given, after

    task = alone.task(name="it")(it)
    assert trip(task, None, after=None) == (None, None)
    assert trip(task, Colour.RED) == (Colour.RED, None)
    with pytest.raises(MessageError, match="arguments of 'it': given: "):
        task.run("x")


def test_a_bound_task_s_context_counts_as_no_argument(alone: TaskApp) -> None:
    def all_of(*args: Own) -> Any:
        return args[1:]

    def first(context: TaskContext, given: Own, /, *more: Own, **named: Own) -> Any:
        return given, more, named

    context: Any = object()
    task: Any = alone.task(name="all", bind=True)(all_of)  # type: ignore[arg-type]
    task.delay(Own(1))
    assert task.run(context, {"at": 1}, {"at": 2}) == (Own(1), Own(2))
    other: Any = alone.task(name="first", bind=True)(first)
    other.delay(Own(1), Own(2), given=Own(3))
    plain = {"at": 2}
    assert other.run(context, {"at": 1}, plain, given=plain) == (
        Own(1), (Own(2),), {"given": Own(2)},
    )  # fmt: skip


@dataclass
class More(Own):
    extra: int = 0


@dataclass
class Turned:
    kelvin: float

    def __post_init__(self) -> None:
        self.kelvin -= 273.15


@dataclass
class Anything:
    inner: Any


class Secret(BaseModel):
    word: SecretStr


class Float(BaseModel):
    a: float | None


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Own, More(1, 2)),
        (Turned, Turned(300.0)),
        (Anything, Anything(Own(1))),
        (Secret, Secret(word=SecretStr("hunter2"))),
        (Float, Float(a=float("nan"))),
    ],
)
def test_what_would_arrive_as_something_else_is_refused_at_the_call(
    alone: TaskApp, hint: Any, value: Any
) -> None:
    def it(given: Any) -> None: ...

    it.__annotations__["given"] = hint
    with pytest.raises(TypeError, match=r"arguments of 'it': given holds a \w+ that would not"):
        alone.task(name="it")(it).delay(value)


@pydantic.dataclasses.dataclass
class Checked:
    a: int = Field(gt=0)


class Raw(BaseModel):
    a: bytes
    when: date | None = None


def test_pydantic_is_asked_or_nothing_is_made(alone: TaskApp) -> None:
    def raw(given: Raw) -> Raw:
        return given

    def checked(given: Checked) -> Any:
        return given

    task = alone.task(name="raw")(raw)
    assert trip(task, Raw(a=b"abc", when=date(2026, 11, 28))) == Raw(
        a=b"abc", when=date(2026, 11, 28)
    )
    assert run_plain(task, {"a": b"abc", "when": date(2026, 11, 28)}).a == b"abc"
    other = alone.task(name="checked")(checked)
    assert other.run({"a": -5}) == {"a": -5}
    with pytest.raises(MessageError, match="Checked is not JSON serializable"):
        other.delay(Checked(a=1))


def test_a_replaced_task_s_result_is_not_made_by_its_own_annotation(
    url: str, tmp_path: Path
) -> None:
    with TaskApp("tests", broker=url, result_backend=f"db+sqlite:///{tmp_path}/r.sqlite") as app:
        plain = app.task(name="plain")(lambda: 5)

        @app.task(name="replaced", bind=True)
        def replaced(context: TaskContext) -> Own:
            context.replace(plain.s())

        with working(app):
            sent = replaced.delay()
            sent.wait(DEADLINE_S)
            found: Any = sent.get(DEADLINE_S)
            assert (found, sent.result) == (5, 5)


def test_a_wrong_result_is_returned_where_it_is_not_to_be_raised(url: str) -> None:
    with TaskApp("tests", broker=url, result_backend=url) as app:

        @app.task(name="wrong")
        def wrong() -> Own:
            return None  # type: ignore[return-value]

        with working(app):
            sent = wrong.delay()
            assert isinstance(sent.get(DEADLINE_S, propagate=False), ResultError)
            assert isinstance(sent.result, ResultError)
            both = group(wrong.s(), wrong.s()).delay()
            found = both.get(DEADLINE_S, propagate=False)
            assert [type(one) for one in found] == [ResultError] * 2
            with pytest.raises(ResultError):
                both.get(DEADLINE_S)
