"""A ship and its viewers: who comes late knows all, who does not read is dropped."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from blimp.clock import ManualClock
from ground_station.page.room import MAX_WAITING, Room, Viewer
from ground_station.page.state import Hear, plotted, state_object
from tests.ground_station.test_view import SHIP


class Recorded:
    """A source that says what a test wants it to."""

    vehicle = "twin"
    is_live = False

    def start(self, hear: Hear) -> None:
        self.hear = hear

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

    def ask(self, kind: str, content: dict[str, Any]) -> None:
        self.asked.put_nowait((kind, content))

    def close(self) -> None: ...


def in_room(check: Callable[[Room, Recorded, ManualClock], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        source, clock = Recorded(), ManualClock(start_s=10.0)
        room = Room(source, clock=clock, loop=asyncio.get_running_loop())
        room.start()
        await asyncio.wait_for(check(room, source, clock), 30.0)
        room.close()

    asyncio.run(run())


async def kinds_of(viewer: Viewer) -> dict[str, Any]:
    found = [json.loads(text) for text in await viewer.take()]
    return {one["kind"]: one["content"] for one in found}


def test_who_comes_late_is_given_all_that_is_known_with_its_present_age() -> None:
    async def check(room: Room, source: Recorded, clock: ManualClock) -> None:
        source.hear("state", state_object(SHIP, 0.1))
        source.hear("command", {"id": "1", "command": "arm"})
        source.hear("command", {"id": "1", "command": "arm", "state": "SUCCESS"})
        source.hear("caption", {"text": "Armed"})
        await room.first_state(within_s=20.0)
        await asyncio.sleep(0)
        clock.advance(2.0)
        viewer = Viewer(role="viewer")
        room.enter(viewer)
        known = await kinds_of(viewer)
        assert known["state"]["age_s"] == 2.1
        assert known["state"]["ages"]["altitude_m"] >= 2.1
        assert all(s["age_s"] is None or s["age_s"] > 2 for s in known["state"]["sensors"].values())
        assert known["commands"] == [{"id": "1", "command": "arm", "state": "SUCCESS"}]
        assert known["caption"] == {"text": "Armed"}
        assert len(known["trail"]) == 1

    in_room(check)


def test_one_who_does_not_read_is_dropped_and_the_others_see_everything() -> None:
    async def check(room: Room, source: Recorded, clock: ManualClock) -> None:
        slow, quick = Viewer(role="viewer"), Viewer(role="viewer")
        for viewer in (slow, quick):
            room.enter(viewer)
        seen = 0
        for number in range(MAX_WAITING + 5):
            source.hear("caption", {"text": str(number)})
            seen += "caption" in await kinds_of(quick) or "caption" in await kinds_of(quick)
        assert slow.is_dropped
        assert not quick.is_dropped
        assert seen == MAX_WAITING + 5
        assert await slow.take() == []

    in_room(check)


def test_another_flight_begins_a_trail_of_its_own() -> None:
    async def check(room: Room, source: Recorded, clock: ManualClock) -> None:
        state = state_object(SHIP, 0.1)
        source.hear("state", state)
        source.hear("state", state | {"boot_id": "another", "position_ned_m": (9.0, 0.0, 0.0)})
        await room.first_state(within_s=20.0)
        viewer = Viewer(role="viewer")
        room.enter(viewer)
        assert (await kinds_of(viewer))["trail"] == [[9.0, 0.0, 0.0]]

    in_room(check)


def test_a_viewer_has_one_vote_while_it_looks_and_a_fault_begins_a_new_round() -> None:
    async def check(room: Room, source: Recorded, clock: ManualClock) -> None:
        first, second, third = viewers = [Viewer(role="viewer") for _ in range(3)]
        for viewer in viewers:
            room.enter(viewer)
        for action in ("cut-link", "kill-worker") * 50:
            room.vote(first, {"action": action})
        room.vote(second, {"action": "kill-worker"})
        room.vote(third, {"action": "cut-link"})
        room.leave(third)
        counts = {"kill-worker": 2}
        assert await source.asked.get() == ("votes", {"round": 0, "counts": counts})
        assert source.asked.empty(), "a flood of votes is one tally"
        source.hear("votes", {"round": 3, "counts": {}})  # the operator's page: a fault begins
        while room.known("votes") is None:
            await asyncio.sleep(0)
        room.vote(second, {"action": "cut-link"})
        assert await source.asked.get() == ("votes", {"round": 3, "counts": {"cut-link": 1}})
        room.leave(second)
        assert await source.asked.get() == ("votes", {"round": 3, "counts": {}})

    in_room(check)


def test_the_operators_page_believes_a_tally_of_this_round_and_within_its_limits() -> None:
    async def check(room: Room, source: Recorded, clock: ManualClock) -> None:
        relay, operator = Viewer(role="relay"), Viewer(role="operator")
        for viewer in (relay, operator):
            room.enter(viewer)
        tally = {"round": 0, "counts": {"cut-link": 2}}
        room.tally(tally)
        assert (await kinds_of(operator))["votes"] == tally
        wrong: tuple[Any, ...] = (
            {"round": 0, "counts": {"cut-link": 49}}, {"round": 0, "counts": {"cut-link": -1}},
            {"round": 0, "counts": {"gust": 1}}, {"round": "0", "counts": {}}, {"counts": {}}, {},
            {"round": 0, "counts": {"cut-link": 1}, "action": "cut-link"},
        )  # fmt: skip
        for content in wrong:
            with pytest.raises(msgspec.ValidationError):
                room.tally(content)
        assert room.known("votes") == tally
        source.hear("votes", None)
        while room.known("votes") == tally:
            await asyncio.sleep(0)
        assert room.known("votes") == {"round": 1, "counts": {}}
        room.tally(tally)  # it was under way
        assert room.known("votes") == {"round": 1, "counts": {}}
        room.tally({"round": 1, "counts": {"cut-link": 1}})
        room.leave(relay)
        assert room.known("votes") == {"round": 1, "counts": {}}, "the room is gone"

    in_room(check)


def test_the_plots_begin_with_what_was_before_of_this_flight_alone() -> None:
    async def check(room: Room, source: Recorded, clock: ManualClock) -> None:
        state = state_object(SHIP, 0.1)
        source.hear("past", [plotted(state | {"t_s": one}) for one in (1.0, 2.0)])
        for t_s in (2.1, 2.5, 2.6, 3.0):
            source.hear("state", state | {"t_s": t_s})
        await room.first_state(within_s=20.0)
        assert [one["t_s"] for one in room.past] == [1.0, 2.0, 2.5, 3.0]
        source.hear("state", state | {"t_s": 4.0, "boot_id": "another"})
        await asyncio.sleep(0)
        assert [one["t_s"] for one in room.past] == [4.0]

    in_room(check)
