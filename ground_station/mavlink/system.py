"""One ship as a system of MAVLink: its airframe and newest snapshot, who has it, what it sends.

The parts (commands, missions, setpoints, parameters, files) know it, and it knows none of them.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from blimp.actions import ACTIONS
from blimp.airframe import Airframe
from blimp.errors import BlimpError, NotInControl
from blimp.tasks.authority import CONTROL_TTL_S
from blimp.tasks.reply import Reply
from blimp.types import Snapshot
from ground_station.mavlink import telemetry
from ground_station.mavlink.link import Links
from ground_station.mavlink.peer import Peer
from ground_station.mavlink.stations import Station, Stations, name_of
from ground_station.mavlink.telemetry import Seen
from ground_station.mavlink.wire import AUTOPILOT, Encoder, Message
from ground_station.ship import Ship

RELEASE_S = 60.0  # a station is lost for so long: others may take the ship
NOTICE, WARNING, CRITICAL, INFO = 5, 4, 2, 6  # MAV_SEVERITY
SAME_TEXT_S = 1.0  # a text is not repeated within
# A 57,600 baud radio carries about 100 texts a second, beside the telemetry.
TEXTS_WITHIN_S, TEXTS_OF_ONE, TEXTS_OF_ALL = 1.0, 10, 20
MAX_TASKS = 64  # commands and answers at once
ACCEPTED, BUSY, DENIED, UNSUPPORTED, FAILED, IN_PROGRESS, CANCELLED, INT_ONLY = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    8,
)  # fmt: skip  MAV_RESULT
Answer = tuple[int, str]  # a MAV_RESULT, and words for people
OK: Answer = (ACCEPTED, "")

# Who sent the message that is being answered, also in the tasks that it starts
_ASKER: ContextVar[Station | None] = ContextVar("asker", default=None)

log = logging.getLogger("ground_station")


def answer_of(reply: Reply) -> Answer:
    """Return how a command of the ship ended, as MAVLink says it."""
    words = reply.reason or reply.state.lower()
    match reply.state:
        case "SUCCESS":
            return OK
        case "REFUSED":
            return DENIED, words
        case "SUPERSEDED":
            return CANCELLED, words
        case _:
            return FAILED, words


class System:
    """Used in one event loop. number: of the system. seen: None before its first snapshot."""

    def __init__(self, *, ship: Ship, stations: Stations, encoder: Encoder, links: Links) -> None:
        self.ship = ship
        self.number = encoder.system
        self.stations = stations
        self.links = links
        self.airframe: Airframe | None = None
        self.seen: Seen | None = None
        self.streams = telemetry.Streams()
        self._encoder = encoder
        self._control: AsyncExitStack | None = None
        self._taking = asyncio.Lock()
        self._acted_s = 0.0
        self._texts: dict[str, float] = {}
        self._text_id = 0
        self._asked: list[tuple[Station, float]] = []  # texts that stations' messages led to
        self._tasks: set[asyncio.Task[Any]] = set()
        self._flown_by: list[Callable[[], None]] = []

    # --- telling --------------------------------------------------------------------------

    def send(self, sent: Message, peer: Peer | None = None, *, component: int = AUTOPILOT) -> None:
        """Send to one peer, or to all of them, as this component of the system."""
        try:
            data = self._encoder.pack(sent, component)
        except (struct.error, ValueError, OverflowError, TypeError) as error:
            log.warning("%s: %s is not sent: %s", self.ship.vehicle, sent.get_type(), error)
            return
        if peer is None:
            self.links.send(data)
        else:
            peer.sent(len(data))
            peer.send(data)

    def say(self, words: str, severity: int = WARNING) -> None:
        """Show words on every station; not again what was just said.

        What a message of a station leads to is bounded for it and for all of them: the ship's own
        words keep their place on a slow link.
        """
        now_s = self.ship.now_s
        if words and now_s - self._texts.get(words, -SAME_TEXT_S) >= SAME_TEXT_S:
            self._texts = {k: v for k, v in self._texts.items() if now_s - v < SAME_TEXT_S}
            asker = _ASKER.get()
            if asker is not None and not self._may_say(asker, now_s):
                return
            self._texts[words] = now_s
            self._text_id = self._text_id % 65535 + 1
            for piece in telemetry.statustexts(severity, words, id=self._text_id):
                self.send(piece)

    @contextmanager
    def answering(self, station: Station, found: Message) -> Iterator[None]:
        """Say what a message leads to as an answer to its sender."""
        token = _ASKER.set(station)
        try:
            yield
        except Exception:  # what anybody may send must not end the links of all others
            log.exception("%s: %s", self.ship.vehicle, found)
        finally:
            _ASKER.reset(token)

    def _may_say(self, asker: Station, now_s: float) -> bool:
        """Count a text that a station's message leads to; False for one too many in a second."""
        since_s = now_s - TEXTS_WITHIN_S
        self._asked = [one for one in self._asked if one[1] > since_s]
        its = sum(station == asker for station, _ in self._asked)
        if its >= TEXTS_OF_ONE or len(self._asked) >= TEXTS_OF_ALL:
            return False
        self._asked.append((asker, now_s))
        return True

    def start(
        self, work: Coroutine[Any, Any, object], *, is_stop: bool = False
    ) -> asyncio.Task[Any] | None:
        """Do something beside; what fails is said. Too much at once is dropped, but no stop."""
        if len(self._tasks) >= MAX_TASKS and not is_stop:
            work.close()
            self.say("too many requests at once: one is dropped")
            return None
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # one that ended before its first step
        return task

    async def _guarded(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except BlimpError as error:
            self.say(str(error))
        except Exception:  # as in `hear`
            log.exception("%s: MAVLink", self.ship.vehicle)

    # --- acting ---------------------------------------------------------------------------

    def flown_by(self, end: Callable[[], None]) -> None:
        """Have `end` called when something else is to fly the ship: a mission's, a stream's."""
        self._flown_by.append(end)

    def take_over(self) -> None:
        """End what flew the ship until now: another command flies it, or will in a moment."""
        for end in self._flown_by:
            end()

    async def may_act(self, station: Station) -> str:
        """Take the ship's control for a station; return why it may not have it, "" if it has."""
        async with self._taking:
            why = self.stations.refusal(station)
            if why:
                return why
            if self._control is None:
                own = AsyncExitStack()
                pilot = f"mavlink-{station.system}"
                try:
                    await own.enter_async_context(
                        self.ship.control(pilot=pilot, ttl_s=CONTROL_TTL_S, wait_s=0.0)
                    )
                except BlimpError as error:
                    return str(error)
                self._control = own
            if self.stations.holder != station:
                self.stations.give(station)
                self.say(f"{name_of(station)} has the ship", INFO)
            self._acted_s = self.ship.now_s
            return ""

    def has(self, station: Station) -> bool:
        """Whether a station has the ship now, so that its streams are flown."""
        if self._control is None or self.stations.holder != station:
            return False
        self._acted_s = self.ship.now_s
        return True

    async def command(self, name: str, arguments: dict[str, Any]) -> Reply:
        """Send one command under the control that is held. Raises LinkError."""
        timeout_s = ACTIONS[name].timeout_s(arguments)
        reply = await self.ship.command(name, arguments, timeout_s=timeout_s)
        await self.note(reply)
        return reply

    async def note(self, reply: Reply) -> None:
        """Give up a control that another pilot has taken, so that the next command asks again."""
        if reply.kind == NotInControl.__name__:
            await self.release()

    async def release(self) -> None:
        """Release control; with a goodbye if its station is still there."""
        own, self._control = self._control, None
        if own is not None:
            await own.aclose()

    async def refresh(self) -> None:
        """Ask the ship for its airframe; say what keeps it from answering."""
        try:
            self.airframe = await self.ship.airframe()
        except BlimpError as error:
            self.say(f"no airframe: {error}")

    async def review(self, ship: Snapshot) -> None:
        """Release control of a ship that nobody uses, or whose station is lost for long."""
        idle_s = self.ship.now_s - self._acted_s
        lost = self.stations.lost_s > RELEASE_S
        if self._control is not None and (lost or (not ship.armed and idle_s > CONTROL_TTL_S)):
            await self.release()
            self.say("control of the ship is released", INFO)

    async def close(self) -> None:
        """End what was started, and release control."""
        for task in list(self._tasks):
            task.cancel()
        await self.release()
