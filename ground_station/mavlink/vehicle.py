"""One ship on MAVLink: what is heard goes to the part that knows it, snapshots become messages."""

from collections.abc import AsyncIterator, Callable

from blimp.config import log_directory
from ground_station.mavlink import telemetry
from ground_station.mavlink.camera import CameraComponent
from ground_station.mavlink.commands import Commands, Parts
from ground_station.mavlink.ftp import Ftp
from ground_station.mavlink.logs import Logs
from ground_station.mavlink.missions import Missions
from ground_station.mavlink.parameters import Parameters
from ground_station.mavlink.peer import Peer
from ground_station.mavlink.setpoints import Demands
from ground_station.mavlink.stations import Station
from ground_station.mavlink.system import CRITICAL, NOTICE, System
from ground_station.mavlink.telemetry import Seen
from ground_station.mavlink.wire import AUTOPILOT, CAMERA, Message, message

FULL_CELL_V = 4.2

# What changes a ship, besides commands: never for all ships at once
_ONE_SHIP = frozenset({
    "MANUAL_CONTROL", "MISSION_CLEAR_ALL", "MISSION_COUNT", "MISSION_ITEM_INT",
    "MISSION_SET_CURRENT", "PARAM_SET", "SET_POSITION_TARGET_GLOBAL_INT",
    "SET_POSITION_TARGET_LOCAL_NED",
})  # fmt: skip

# What may wait for everything else: see `Bulk`
_MAY_WAIT = ("FILE_TRANSFER_PROTOCOL", "LOG_", "MISSION_", "PARAM_")

Heard = Callable[[Peer, Station, Message], AsyncIterator[Message] | object]


class Vehicle:
    """The parts of one ship's system, and what each hears. Used in one event loop."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.parts = parts = Parts(
            system, Missions(system), Demands(system), Parameters(system), CameraComponent(system)
        )
        self._hears: dict[str, Heard] = {
            "HEARTBEAT": lambda _, station, __: system.stations.hear(station, is_beat=True),
            "TIMESYNC": self._timesync,
            "PING": self._ping,
            **Commands(parts).hears,
            **parts.parameters.hears,
            **parts.missions.hears,
            **parts.demands.hears,
            **Logs(system, log_directory()).hears,
            **Ftp(system, log_directory()).hears,
        }

    def hear(self, peer: Peer, found: Message) -> None:
        """Take one message, if it is for this ship."""
        system = self.system
        station = Station(found.get_srcSystem(), found.get_srcComponent(), peer.name)
        system.stations.hear(station)
        heard = self._hears.get(found.get_type())
        target = getattr(found, "target_system", getattr(found, "target", 0))
        component = getattr(found, "target_component", 0)
        known = (0, AUTOPILOT, CAMERA) if self.parts.camera.chip else (0, AUTOPILOT)
        if heard is None or target not in (0, system.number) or component not in known:
            return
        with system.answering(station, found):
            if target == 0 and found.get_type() in _ONE_SHIP:
                system.say(f"{found.get_type()}: sent to all systems: name one")
            elif found.get_type().startswith(_MAY_WAIT):
                self._ask_whether_it_hears(peer)
                system.links.bulk.add(peer, _Answers(system, peer, station, found, heard))
            else:
                heard(peer, station, found)

    def _ask_whether_it_hears(self, peer: Peer) -> None:
        """Ask a peer whose address may be another one's for what only it can answer."""
        if peer.is_to_be_asked():
            time_usec, seq = peer.question
            asked = {"time_usec": time_usec, "seq": seq}
            self.system.send(message("ping", **asked, target_system=0, target_component=0), peer)

    def _timesync(self, peer: Peer, _: Station, asked: Message) -> None:
        if asked.tc1 == 0:
            now_ns = int(1e9 * self.system.ship.now_s)
            self.system.send(message("timesync", tc1=now_ns, ts1=asked.ts1), peer)

    def _ping(self, peer: Peer, station: Station, asked: Message) -> None:
        if asked.target_system == 0:
            more = {"target_system": station.system, "target_component": station.component}
            self.system.send(
                message("ping", time_usec=asked.time_usec, seq=asked.seq, **more), peer
            )
        elif (asked.time_usec, asked.seq) == peer.question:
            peer.prove()

    async def run(self) -> None:
        """Send what the ship tells of itself, until the connection ends."""
        system = self.system
        try:
            before: Seen | None = None
            async for snapshot in system.ship.telemetry(hz=telemetry.MAX_HZ):
                if system.airframe is None or (before and before.ship.boot_id != snapshot.boot_id):
                    await system.refresh()
                    if system.airframe is None:
                        continue
                battery = system.airframe.battery
                system.seen = Seen(
                    snapshot, system.airframe.home, self.parts.flown_by(),
                    FULL_CELL_V * battery.cells, battery.empty_v,
                )  # fmt: skip
                self._tell_news(before, system.seen)
                for name in system.streams.due(system.ship.now_s):
                    system.send(telemetry.STREAMS[name][0](system.seen))
                self.parts.missions.tell()
                self.parts.camera.tell()
                before = system.seen
                await system.review(snapshot)
        finally:
            await system.close()

    def _tell_news(self, before: Seen | None, now: Seen) -> None:
        known = before.ship if before else None
        if known is not None and now.ship.failsafe != known.failsafe:
            self.system.say(f"failsafe: {now.ship.failsafe or 'over'}", CRITICAL)
        if known is not None and now.ship.killed and not known.killed:
            self.system.say("emergency stop: every output is off", CRITICAL)
        old = known.messages if known else ()
        for text in now.ship.messages[_overlap(old, now.ship.messages) :]:
            self.system.say(text, NOTICE)


class _Answers:
    """What one request that may wait is answered with: see `Job` of `Bulk`."""

    def __init__(
        self, system: System, peer: Peer, station: Station, found: Message, heard: Heard
    ) -> None:
        self._system, self._peer, self._station = system, peer, station
        self._found, self._heard = found, heard
        self._answers: AsyncIterator[Message] | None = None

    async def step(self) -> bool:
        with self._system.answering(self._station, self._found):
            if self._answers is None:
                answers = self._heard(self._peer, self._station, self._found)
                if not isinstance(answers, AsyncIterator):
                    return False
                self._answers = answers
            sent = await anext(self._answers, None)
            if sent is not None:
                self._system.send(sent, self._peer)
                return True
        return False


def _overlap(old: tuple[str, ...], new: tuple[str, ...]) -> int:
    """Return how many of the `new` messages were the last of the `old`."""
    return next((k for k in range(len(new), 0, -1) if old[len(old) - k :] == new[:k]), 0)
