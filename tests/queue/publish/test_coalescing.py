"""Of the waiting messages with one key only the newest runs."""

import threading
from typing import Any

import pytest
import redis

from blimp.errors import LinkError, MessageError, Superseded
from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import State
from blimp.queue.publish.coalescing import Coalescing
from blimp.queue.results.handle import AsyncResult
from tests.queue.conftest import DEADLINE_S, Held, working
from tests.queue.server_view import Look


@pytest.fixture
def ran(app: TaskApp) -> list[Any]:
    seen: list[Any] = []

    @app.task(name="goto", coalesce="{vehicle}")
    def goto(vehicle: str, place: int = 0) -> int:
        seen.append((vehicle, place))
        return place

    app.task(name="light", coalesce=True)(seen.append)
    app.task(name="plain")(seen.append)
    return seen


def states(*handles: AsyncResult) -> list[State]:
    return [handle.wait(DEADLINE_S).state for handle in handles]


def test_only_the_newest_of_a_key_runs(app: TaskApp, ran: list[Any], look: Look) -> None:
    goto = app.tasks["goto"]
    first, second = goto.delay("a", 1), goto.delay("a", 2)
    other, third = goto.delay("b", 3), goto.delay(vehicle="a", place=4)
    light, last_light = app.tasks["light"].delay("on"), app.tasks["light"].delay("off")
    plain = app.tasks["plain"].delay("x"), app.tasks["plain"].delay("y")
    with working(app, sync_workers=1):
        assert states(first, second, other, third) == [
            State.SUPERSEDED,
            State.SUPERSEDED,
            State.SUCCESS,
            State.SUCCESS,
        ]
        assert states(light, last_light, *plain) == [
            State.SUPERSEDED,
            State.SUCCESS,
            State.SUCCESS,
            State.SUCCESS,
        ]
        with pytest.raises(Superseded, match=f"superseded by {third.id}"):
            first.get(DEADLINE_S)
    assert sorted(ran, key=repr) == sorted([("b", 3), ("a", 4), "off", "x", "y"], key=repr)
    assert look.left_behind() == []


def test_one_that_runs_is_not_touched(app: TaskApp) -> None:
    held = Held()
    long = app.task(name="long", coalesce=True)(held.run)
    with working(app, sync_workers=1):
        first = long.delay(1)
        assert held.began.wait(DEADLINE_S)
        second, third = long.delay(2), long.delay(3)
        held.go.set()
        assert states(first, second, third) == [State.SUCCESS, State.SUPERSEDED, State.SUCCESS]


def test_a_retry_is_older_than_a_newer_command(app: TaskApp) -> None:
    tries: list[int] = []
    began, go = threading.Event(), threading.Event()

    @app.task(name="again", coalesce=True, autoretry_for=(OSError,), retry_backoff=False)
    def again(number: int) -> None:
        tries.append(number)
        began.set()
        assert go.wait(DEADLINE_S)
        if number == 1:
            raise OSError

    with working(app, sync_workers=1):
        first = again.delay(1)
        assert began.wait(DEADLINE_S)
        second = again.delay(2)
        go.set()
        assert states(first, second) == [State.SUPERSEDED, State.SUCCESS]
    assert tries == [1, 2]


def test_a_command_for_later_is_superseded_by_one_sent_after_it(
    app: TaskApp, ran: list[Any]
) -> None:
    with working(app):
        later = app.tasks["goto"].apply_async(("a", 1), countdown=0.3)
        now = app.tasks["goto"].delay("a", 2)
        assert states(now, later) == [State.SUCCESS, State.SUPERSEDED]
    assert ran == [("a", 2)]


def test_a_sender_killed_after_publishing_costs_no_message(
    app: TaskApp, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = app.tasks["light"].delay(1)
    with monkeypatch.context() as patch:
        patch.setattr(Coalescing, "remember", lambda *_: None)  # as if it had died here
        second = app.tasks["light"].delay(2)
    with working(app, sync_workers=1):
        assert states(first, second) == [State.SUCCESS, State.SUCCESS]
    assert ran == [1, 2]


def test_a_sender_killed_before_publishing_drops_no_older_message(
    app: TaskApp, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = app.tasks["light"].delay(1)

    def die(*_: object, **__: object) -> None:
        raise LinkError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(app.publisher, "publish", die)
        with pytest.raises(LinkError):
            app.tasks["light"].delay(2)
    with working(app):
        assert states(first) == [State.SUCCESS]


def test_numbers_grow_though_the_clock_stands_or_steps_back(
    app: TaskApp, server: redis.Redis
) -> None:
    coalescing = Coalescing(link=app.broker_link)
    server.set("blimp:coalesce:q:number", str(2**51))
    numbers = [coalescing.number("q", "k") for _ in range(3)]
    assert numbers == [2**51 + 1, 2**51 + 2, 2**51 + 3]


def test_what_is_remembered_late_supersedes_nothing_newer(app: TaskApp) -> None:
    coalescing = Coalescing(link=app.broker_link)
    older, newer = (
        TaskMessage(id=id, task="t", queue="q", coalesce="k", coalesce_number=number)
        for number, id in enumerate("ab", start=1)
    )
    for message in (newer, older):
        coalescing.remember(message)
    assert (coalescing.newer(older), coalescing.newer(newer)) == ("b", None)


def test_a_key_of_ones_own_by_name(app: TaskApp, ran: list[Any]) -> None:
    first = app.send_task("plain", (1,), coalesce="k")
    second = app.send_task("plain", (2,), coalesce="k")
    with working(app):
        assert states(first, second) == [State.SUPERSEDED, State.SUCCESS]


def test_a_template_that_is_not_filled_in_is_named(app: TaskApp) -> None:
    task = app.task(name="bad", coalesce="{nothing}")(lambda a: a)
    with pytest.raises(MessageError, match="do not fill it in: KeyError"):
        task.delay(1)
    with pytest.raises(MessageError, match="printable letters"):
        app.send_task("bad", (1,), coalesce="x" * 300)
