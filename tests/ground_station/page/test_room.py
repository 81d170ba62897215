"""A ship and its viewers: who comes late knows all, who does not read is dropped."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from blimp.clock import ManualClock
from ground_station.page.room import MAX_WAITING, Room, Viewer
from ground_station.page.state import Hear, state_object
from tests.ground_station.test_view import SHIP


class Recorded:
    """A source that says what a test wants it to."""

    vehicle = "twin"
    is_live = False

    def start(self, hear: Hear) -> None:
        self.hear = hear

    def ask(self, kind: str, content: dict[str, Any]) -> None: ...

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
