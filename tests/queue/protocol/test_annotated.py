"""Arguments and results by annotation, from a sender through each pool and back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from blimp.errors import MessageError, ResultError, TaskFailed
from blimp.queue import TaskApp, chord, group
from blimp.queue.protocol.annotated import to_builtins
from blimp.queue.protocol.message import to_json
from tests.queue.annotated_app import Colour, Order, Part, Place, Size, define, order, turned
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


def test_a_store_that_keeps_no_names_gives_the_sender_what_it_was(url: str, tmp_path: Path) -> None:
    store = f"db+sqlite:///{tmp_path}/results.sqlite"
    with TaskApp("annotated", broker=url, result_backend=store) as app:
        thread = app.task(name="thread")(turned)
        with working(app):
            assert thread.delay(order()).get(DEADLINE_S) == order()
            both = group(thread.s(order()), thread.s(order())).delay()
            assert both.get(DEADLINE_S) == [order()] * 2


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


def test_a_result_that_is_not_what_its_task_says_is_an_error_that_says_so(url: str) -> None:
    with TaskApp("annotated", broker=url, result_backend=url) as app:

        def broken() -> Order:
            return {"id": 1}  # type: ignore[return-value]

        app.task(name="broken")(broken)
        with working(app):
            sent = app.tasks["broken"].delay()
            with pytest.raises(ResultError, match=r"result of broken: .*`\$\.id`"):
                sent.get(DEADLINE_S)


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
        TypeError, match=f"arguments of 'it': given is a {type(value).__name__}, "
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


class Looped:
    """What is neither a model nor JSON."""


@pytest.mark.parametrize("value", [object(), {1, 2}, Looped(), Own, 1j])
def test_what_is_no_model_stays_refused(alone: TaskApp, value: Any) -> None:
    with pytest.raises(MessageError, match="is not JSON serializable"):
        alone.task(name="it")(untyped).delay(value)


def test_a_model_that_holds_what_json_cannot_is_refused(alone: TaskApp) -> None:
    def own(given: Own) -> None: ...

    task = alone.task(name="it")(own)
    ring: Any = Own(0)
    ring.at = ring
    for value in (Own(float("nan")), Own(object()), ring, Own("\ud800")):  # type: ignore[arg-type]
        with pytest.raises(MessageError, match="arguments of 'it': JSON cannot hold them"):
            task.delay(value)


def test_a_call_in_place_makes_nothing(alone: TaskApp) -> None:
    def own(given: Own) -> int:
        return given.at

    task = alone.task(name="it")(own)
    assert task(Own(3)) == 3
    assert task.run({"at": 4}) == 4
    assert Part.__name__ in repr(order())
