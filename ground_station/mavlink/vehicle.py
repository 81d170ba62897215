"""One ship on MAVLink: what is heard goes to the part that knows it, snapshots become messages."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from blimp.airframe import Airframe
from blimp.config import log_directory
from blimp.errors import BlimpError, NotInControl
from blimp.tasks.authority import CONTROL_TTL_S
from blimp.tasks.reply import Reply
from ground_station.mavlink import telemetry
from ground_station.mavlink.commands import Commands
from ground_station.mavlink.ftp import Ftp
from ground_station.mavlink.link import Links
from ground_station.mavlink.logs import Logs
from ground_station.mavlink.missions import Missions
from ground_station.mavlink.parameters import Parameters
from ground_station.mavlink.peer import Peer
from ground_station.mavlink.setpoints import Streams as Demands
from ground_station.mavlink.stations import Station, Stations, name_of
from ground_station.mavlink.telemetry import Seen
from ground_station.mavlink.wire import AUTOPILOT, Encoder, Message, message
from ground_station.ship import Ship, Transport

FULL_CELL_V = 4.2
RELEASE_S = 60.0  # a station is lost for so long: others may take the ship
NOTICE, WARNING, CRITICAL, INFO = 5, 4, 2, 6  # MAV_SEVERITY
SAME_TEXT_S = 1.0  # a text is not repeated within
# A 57,600 baud radio carries about 100 texts a second, beside the telemetry.
TEXTS_WITHIN_S, TEXTS_OF_ONE, TEXTS_OF_ALL = 1.0, 10, 20
MAX_TASKS = 64  # commands and answers at once

# What changes a ship, besides commands: never for all ships at once
_ONE_SHIP = frozenset({
    "MANUAL_CONTROL", "MISSION_CLEAR_ALL", "MISSION_COUNT", "MISSION_ITEM_INT",
    "MISSION_SET_CURRENT", "PARAM_SET", "SET_POSITION_TARGET_GLOBAL_INT",
    "SET_POSITION_TARGET_LOCAL_NED",
})  # fmt: skip

# What may wait for everything else: see `Bulk`
_MAY_WAIT = ("FILE_TRANSFER_PROTOCOL", "LOG_", "MISSION_", "PARAM_")

# Who sent the message that is being answered, also in the tasks that it starts
_ASKER: ContextVar[Station | None] = ContextVar("asker", default=None)

log = logging.getLogger("ground_station")


Heard = Callable[[Peer, Station, Message], AsyncIterator[Message] | object]


class Vehicle:
    """The MAVLink system of one ship. Used in one event loop."""

    def __init__(
        self, *, transport: Transport, stations: Stations, encoder: Encoder, links: Links
    ) -> None:
        self.transport = transport
        self.ship = Ship(transport)
        self.system = encoder.system
        self.stations = stations
        self.airframe: Airframe | None = None
        self.seen: Seen | None = None
        self.streams = telemetry.Streams()
        self._encoder = encoder
        self._links = links
        self._control: AsyncExitStack | None = None
        self._taking = asyncio.Lock()
        self._acted_s = 0.0
        self._texts: dict[str, float] = {}
        self._text_id = 0
        self._asked: list[tuple[Station, float]] = []  # texts that stations' messages led to
        self._tasks: set[asyncio.Task[Any]] = set()
        self.parameters = Parameters(self)
        self.missions = Missions(self)
        self.demands = Demands(self)
        self._hears: dict[str, Heard] = {
            "HEARTBEAT": lambda _, station, __: self.stations.hear(station, is_beat=True),
            "TIMESYNC": self._timesync,
            "PING": self._ping,
            **Commands(self).hears,
            **self.parameters.hears,
            **self.missions.hears,
            **self.demands.hears,
            **Logs(self, log_directory()).hears,
            **Ftp(self, log_directory()).hears,
        }

    # --- in -------------------------------------------------------------------------------

    def hear(self, peer: Peer, found: Message) -> None:
        """Take one message, if it is for this ship."""
        station = Station(found.get_srcSystem(), found.get_srcComponent(), peer.name)
        self.stations.hear(station)
        heard = self._hears.get(found.get_type())
        target = getattr(found, "target_system", getattr(found, "target", 0))
        component = getattr(found, "target_component", 0)
        if heard is None or target not in (0, self.system) or component not in (0, AUTOPILOT):
            return
        with self._answering(station, found):
            if target == 0 and found.get_type() in _ONE_SHIP:
                self.say(f"{found.get_type()}: sent to all systems: name one")
            elif found.get_type().startswith(_MAY_WAIT):
                self._ask_whether_it_hears(peer)
                self._links.bulk.add(peer, _Answers(self, peer, station, found, heard))
            else:
                heard(peer, station, found)

    @contextmanager
    def _answering(self, station: Station, found: Message) -> Iterator[None]:
        """Say what a message leads to as an answer to its sender."""
        token = _ASKER.set(station)
        try:
            yield
        except Exception:  # what anybody may send must not end the links of all others
            log.exception("%s: %s", self.transport.vehicle, found)
        finally:
            _ASKER.reset(token)

    def _ask_whether_it_hears(self, peer: Peer) -> None:
        """Ask a peer whose address may be another one's for what only it can answer."""
        if peer.is_to_be_asked():
            time_usec, seq = peer.question
            asked = {"time_usec": time_usec, "seq": seq}
            self.send(message("ping", **asked, target_system=0, target_component=0), peer)

    def _timesync(self, peer: Peer, _: Station, asked: Message) -> None:
        if asked.tc1 == 0:
            now_ns = int(1e9 * self.transport.now_s())
            self.send(message("timesync", tc1=now_ns, ts1=asked.ts1), peer)

    def _ping(self, peer: Peer, station: Station, asked: Message) -> None:
        if asked.target_system == 0:
            more = {"target_system": station.system, "target_component": station.component}
            self.send(message("ping", time_usec=asked.time_usec, seq=asked.seq, **more), peer)
        elif (asked.time_usec, asked.seq) == peer.question:
            peer.prove()

    # --- out ------------------------------------------------------------------------------

    def send(self, sent: Message, peer: Peer | None = None) -> None:
        """Send to one peer, or to all of them."""
        try:
            data = self._encoder.pack(sent)
        except (struct.error, ValueError, OverflowError, TypeError) as error:
            log.warning("%s: %s is not sent: %s", self.transport.vehicle, sent.get_type(), error)
            return
        if peer is None:
            self._links.send(data)
        else:
            peer.sent(len(data))
            peer.send(data)

    def say(self, words: str, severity: int = WARNING) -> None:
        """Show words on every station; not again what was just said.

        What a message of a station leads to is bounded for it and for all of them: the ship's own
        words keep their place on a slow link.
        """
        now_s = self.transport.now_s()
        if words and now_s - self._texts.get(words, -SAME_TEXT_S) >= SAME_TEXT_S:
            self._texts = {k: v for k, v in self._texts.items() if now_s - v < SAME_TEXT_S}
            asker = _ASKER.get()
            if asker is not None and not self._may_say(asker, now_s):
                return
            self._texts[words] = now_s
            self._text_id = self._text_id % 65535 + 1
            for piece in telemetry.statustexts(severity, words, id=self._text_id):
                self.send(piece)

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
            log.exception("%s: MAVLink", self.transport.vehicle)

    # --- acting ---------------------------------------------------------------------------

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
                        self.transport.control(pilot=pilot, ttl_s=CONTROL_TTL_S, wait_s=0.0)
                    )
                except BlimpError as error:
                    return str(error)
                self._control = own
            if self.stations.holder != station:
                self.stations.give(station)
                self.say(f"{name_of(station)} has the ship", INFO)
            self._acted_s = self.transport.now_s()
            return ""

    def has(self, station: Station) -> bool:
        """Whether a station has the ship now, so that its streams are flown."""
        if self._control is None or self.stations.holder != station:
            return False
        self._acted_s = self.transport.now_s()
        return True

    async def command(self, name: str, arguments: dict[str, Any], *, within_s: float) -> Reply:
        """Send one command under the control that is held. Raises LinkError."""
        reply = await self.transport.command(name, arguments, timeout_s=within_s)
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

    # --- running --------------------------------------------------------------------------

    async def run(self) -> None:
        """Send what the ship tells of itself, until the connection ends."""
        try:
            before: Seen | None = None
            async for snapshot in self.ship.telemetry(hz=telemetry.MAX_HZ):
                if self.airframe is None or (before and before.ship.boot_id != snapshot.boot_id):
                    await self.refresh()
                    if self.airframe is None:
                        continue
                battery = self.airframe.battery
                self.seen = Seen(
                    snapshot, self.airframe.home, self.missions.is_active,
                    FULL_CELL_V * battery.cells, battery.empty_v,
                )  # fmt: skip
                self._tell_news(before, self.seen)
                for name in self.streams.due(self.transport.now_s()):
                    self.send(telemetry.STREAMS[name][0](self.seen))
                self.missions.tell()
                before = self.seen
                await self._review(self.seen)
        finally:
            for task in list(self._tasks):
                task.cancel()
            await self.release()

    async def refresh(self) -> None:
        """Ask the ship for its airframe; say what keeps it from answering."""
        try:
            self.airframe = await self.transport.airframe()
        except BlimpError as error:
            self.say(f"no airframe: {error}")

    async def _review(self, seen: Seen) -> None:
        """Release control of a ship that nobody uses, or whose station is lost for long."""
        idle_s = self.transport.now_s() - self._acted_s
        lost = self.stations.lost_s > RELEASE_S
        if self._control is not None and (lost or (not seen.ship.armed and idle_s > CONTROL_TTL_S)):
            await self.release()
            self.say("control of the ship is released", INFO)

    def _tell_news(self, before: Seen | None, now: Seen) -> None:
        known = before.ship if before else None
        if known is not None and now.ship.failsafe != known.failsafe:
            self.say(f"failsafe: {now.ship.failsafe or 'over'}", CRITICAL)
        if known is not None and now.ship.killed and not known.killed:
            self.say("emergency stop: every output is off", CRITICAL)
        old = known.messages if known else ()
        for text in now.ship.messages[_overlap(old, now.ship.messages) :]:
            self.say(text, NOTICE)


class _Answers:
    """What one request that may wait is answered with: see `Job` of `Bulk`."""

    def __init__(
        self, vehicle: Vehicle, peer: Peer, station: Station, found: Message, heard: Heard
    ) -> None:
        self._vehicle, self._peer, self._station = vehicle, peer, station
        self._found, self._heard = found, heard
        self._answers: AsyncIterator[Message] | None = None

    async def step(self) -> bool:
        with self._vehicle._answering(self._station, self._found):
            if self._answers is None:
                answers = self._heard(self._peer, self._station, self._found)
                if not isinstance(answers, AsyncIterator):
                    return False
                self._answers = answers
            sent = await anext(self._answers, None)
            if sent is not None:
                self._vehicle.send(sent, self._peer)
                return True
        return False


def _overlap(old: tuple[str, ...], new: tuple[str, ...]) -> int:
    """Return how many of the `new` messages were the last of the `old`."""
    return next((k for k in range(len(new), 0, -1) if old[len(old) - k :] == new[:k]), 0)
