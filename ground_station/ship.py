"""A ship flown from a Python program, by coroutines: docs/python.md.

Each method is one action of `ground`, with its name, units, limits and patience. What comes back is
a `Reply`; what the ship refuses is raised. Nothing blocks the event loop, and a stop waits for
nothing else.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from blimp.actions import ACTIONS
from blimp.errors import (
    BlimpError,
    ConfigError,
    ControlUnknown,
    Expired,
    Interrupted,
    LinkError,
    MissionError,
    NotInControl,
    OutcomeUnknown,
    Refused,
    Superseded,
    TaskFailed,
)
from blimp.geofence import Rally, Zone
from blimp.tasks.authority import CONTROL_TTL_S
from blimp.tasks.reply import Reply
from blimp.types import SensorStatus, Snapshot, TrajectoryPoint
from blimp.web.outcome import Outcome
from ground_station.following import AIRFRAME_S, OUTAGE_S, CommandListener
from ground_station.session import FOR_EVERYBODY, Session
from ground_station.trajectory import AHEAD_S, chunks, read_curve

if TYPE_CHECKING:  # missions and airframes take a tenth of the start of `ground ping`
    from collections.abc import AsyncGenerator

    from blimp.ability import Ability
    from blimp.airframe import Airframe
    from blimp.parameters import Parameter
    from blimp.queue.resources import Grant
    from ground_station.flyer import MissionEvent
    from ground_station.mission_file import Mission
    from ground_station.ship_in_lockstep import Simulated

SETPOINT_S = 0.5  # as the page's sticks: without a newer one the ship stays where it is
MAX_HZ = 100.0
HEARD_S = 5.0
KEY = "setpoints"  # of the stream: of its setpoints only the newest begins

SendVelocity = Callable[[float, float, float], Awaitable[None]]


class Transport(Protocol):
    """The way to one ship, and the time in which it flies. Used from one event loop."""

    @property
    def vehicle(self) -> str: ...

    async def command(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float,
        coalesce: str | None = None,
        listener: CommandListener | None = None,
    ) -> Reply:
        """Send a command once; return how it ended, TIMEOUT if that is not known in time.

        coalesce: supersedes the waiting commands with this key, and passes all others. listener:
        hears of it on its way. Raises LinkError, LinkLost.
        """
        ...

    async def send(self, name: str, arguments: dict[str, Any], *, timeout_s: float) -> str:
        """Send a command once, and wait for nothing; return its id."""
        ...

    async def push(
        self, key: str, arguments: dict[str, Any], *, ttl_s: float, task: str = "velocity"
    ) -> Reply | None:
        """Send a setpoint, a velocity or another task; return its reply if the ship refuses it."""
        ...

    def ready_to_stop(self) -> None: ...

    def estop(self) -> Awaitable[Reply]: ...

    async def result(self, id: str) -> Reply: ...

    def control(
        self, *, pilot: str | None, ttl_s: float, wait_s: float
    ) -> AbstractAsyncContextManager[None]: ...

    async def airframe(self, *, timeout_s: float = AIRFRAME_S) -> Airframe: ...

    async def snapshot(self, after: Snapshot | None) -> Snapshot | None:
        """Return the newest snapshot, once there is another than `after`; None at the end."""
        ...

    def now_s(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Ship:
    """One ship. Made by `connect` or `lockstep`; used in one event loop, by any of its tasks.

    A method that is awaited sends its command once, in the order of the calls. It returns when the
    ship has done it. Raises Refused with the ship's reason (NotInControl if another pilot has the
    ship), Expired, Superseded, Interrupted, TaskFailed, OutcomeUnknown if no end is heard in time,
    LinkLost if the broker is unreachable for longer than `outage_s` meanwhile, LinkError if it does
    not take the command. A task that is cancelled stops waiting: what it has sent is neither taken
    back nor sent again.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._orders = 0  # commands that move the ship

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        vehicle: str | None = None,
        *,
        broker: str | None = None,
        signing_key_file: Path | None = None,
        outage_s: float = OUTAGE_S,
    ) -> AsyncIterator[Self]:
        """Find a ship as `ground` does, and connect to it.

        vehicle, broker: None for the one that the environment names, or that runs here.
        outage_s: how long the broker may be unreachable while a command is under way.
        Raises LinkError for a ship that is not there, ConfigError if it could be several.
        """
        from ground_station.ship_on_broker import BrokerTransport  # redis-py: not for lockstep

        async with BrokerTransport.open(
            vehicle=vehicle, broker=broker, signing_key_file=signing_key_file, outage_s=outage_s
        ) as transport:
            yield cls(transport)

    @classmethod
    @asynccontextmanager
    async def of(
        cls,
        session: Session,
        *,
        present: Callable[[], bool] = lambda: True,
        grant: Grant | None = None,
    ) -> AsyncIterator[Self]:
        """Connect to the ship of a session of `ground`, which need not be there.

        present: see `Session.heartbeat`. grant: of the control under which it is commanded; None
        for that which this user has kept.
        """
        from ground_station.ship_on_broker import BrokerTransport

        async with BrokerTransport.of(session, present=present, grant=grant) as transport:
            yield cls(transport)

    @classmethod
    @asynccontextmanager
    async def lockstep(
        cls, simulated: Simulated, *, beside: Ship | None = None
    ) -> AsyncIterator[Self]:
        """Fly a `blimp.ship.Lockstep` by the same program, as fast as it computes.

        Its time passes while a method of the ship is awaited, and only then. beside: a ship whose
        time this one shares. Raises ConfigError for one that is not in lockstep.
        """
        from ground_station.ship_in_lockstep import LockstepTransport

        other = None if beside is None else beside._transport
        if other is not None and not isinstance(other, LockstepTransport):
            raise ConfigError(f"{other.vehicle} is not in lockstep, so no ship can share its time")
        yield cls(LockstepTransport(simulated, beside=other))

    @property
    def vehicle(self) -> str:
        """The ship's name."""
        return self._transport.vehicle

    # --- looking --------------------------------------------------------------------------

    async def ping(self) -> Reply:
        """Ask the flight process for a sign of life, through the queue."""
        return await self._do("ping")

    async def sensor(self, name: str) -> SensorStatus:
        """Return one sensor's newest value, its unit, its age and its health."""
        reply = await self._do("sensor", {"name": name})
        return msgspec.convert(reply.result, SensorStatus)

    async def limits(self) -> Ability:
        """Return what the ship can do, and what its battery has left for a mission."""
        from blimp.ability import Ability

        return msgspec.convert((await self._do("limits")).result, Ability)

    async def parameters(self) -> dict[str, Parameter]:
        """Return the numbers of the airframe that flies, by their names: "limits.speed_mps"."""
        from blimp.parameters import parameters

        airframe = await self.airframe()
        return {one.path: one for one in parameters(airframe)}

    async def airframe(self, *, timeout_s: float = AIRFRAME_S) -> Airframe:
        """Return what the ship flies. Raises LinkError, or TaskError if it does not say."""
        return await self._transport.airframe(timeout_s=timeout_s)

    async def result(self, id: str) -> Reply:
        """Return what became of an earlier command; its state is TIMEOUT while it has no end."""
        return await self._transport.result(id)

    async def state(self) -> Snapshot:
        """Return what the ship says of itself now. Raises LinkError if it is not heard."""
        try:
            async with asyncio.timeout(HEARD_S):
                found = await self._transport.snapshot(None)
        except TimeoutError:
            raise LinkError(f"{self.vehicle} is not heard within {HEARD_S:g} s") from None
        if found is None:
            raise LinkError(f"the connection to {self.vehicle} is closed")
        return found

    async def telemetry(self, hz: float = 10.0) -> AsyncGenerator[Snapshot, None]:
        """Yield the newest snapshot, at most `hz` (to 100) times a second, until it is closed.

        The ship sends 10 to 20 a second. None comes while it, or its broker, is silent. They go on
        by themselves when it is back.
        """
        if not 0.0 < hz <= MAX_HZ:
            raise ConfigError(f"telemetry: hz is {hz:g}, must be above 0, to {MAX_HZ:g}")
        found: Snapshot | None = None
        while (found := await self._transport.snapshot(found)) is not None:
            due_s = self.now_s + 1.0 / hz
            yield found
            await self.sleep(due_s - self.now_s)

    @property
    def now_s(self) -> float:
        """Seconds on a monotonic clock that passes as the ship flies: simulated, in lockstep."""
        return self._transport.now_s()

    async def sleep(self, seconds: float) -> None:
        """Wait, in the time in which the ship flies."""
        await self._transport.sleep(seconds)

    # --- flying ---------------------------------------------------------------------------

    async def arm(self, *, force: bool = False) -> Reply:
        """Allow the propellers to turn. force: skip the checks, which works on the bench only."""
        return await self._do("arm", {"force": True} if force else {})

    async def disarm(self) -> Reply:
        """Stop the propellers. In the air the ship refuses it."""
        return await self._do("disarm")

    async def mode(self, name: str) -> Reply:
        """Change the flight mode, one of `blimp.types.Mode`."""
        return await self._do("mode", {"name": name})

    async def takeoff(self, altitude_m: float) -> Reply:
        """Climb from the pad to an altitude and stay there."""
        return await self._do("takeoff", {"altitude_m": altitude_m})

    async def goto(
        self,
        north_m: float,
        east_m: float,
        altitude_m: float,
        yaw_deg: float | None = None,
        speed_mps: float | None = None,
    ) -> Reply:
        """Fly to a place, metres from the pad, and stay there.

        yaw_deg: the heading to turn to, clockwise from north. speed_mps: None for its fastest.
        """
        arguments = {
            "north_m": north_m, "east_m": east_m, "altitude_m": altitude_m, "yaw_deg": yaw_deg,
            "speed_mps": speed_mps,
        }  # fmt: skip
        return await self._do("goto", arguments)

    async def velocity(
        self, north_mps: float, east_mps: float, up_mps: float, seconds: float
    ) -> Reply:
        """Fly at a velocity for a time, then stay there."""
        arguments = _velocity(north_mps, east_mps, up_mps, seconds)
        return await self._do("velocity", arguments)

    @asynccontextmanager
    async def velocities(self, *, ttl_s: float = SETPOINT_S) -> AsyncIterator[SendVelocity]:
        """Fly by a stream of velocities, by the function that is yielded: north, east, up, in m/s.

        Each replaces the one before, and ends by itself after `ttl_s`. The function returns when
        the ship has accepted it, or has not answered within `ttl_s`, and raises what it refuses. At
        the end of the block the ship stays where it is, unless another command was sent since.
        """
        if not ttl_s > 0.0:
            raise ConfigError(f"velocities: ttl_s is {ttl_s:g}, must be above 0")
        pushed = None  # the number of orders after the newest setpoint

        async def send(north_mps: float, east_mps: float, up_mps: float) -> None:
            nonlocal pushed
            self._orders += 1
            pushed = self._orders
            arguments = _velocity(north_mps, east_mps, up_mps, ttl_s)
            refused = await self._transport.push(KEY, arguments, ttl_s=ttl_s)
            if refused is not None:
                pushed = None  # it may fly for somebody else
                checked(refused)

        try:
            yield send
        finally:
            if pushed == self._orders:
                stop = _velocity(0.0, 0.0, 0.0, 0.0)
                await self._do("velocity", stop, coalesce=KEY)

    async def trajectory(
        self, points: str | Path | Sequence[TrajectoryPoint], *, name: str | None = None
    ) -> Reply:
        """Fly a path in time, then stay at its end.

        points: in order of time; or the path of a CSV file, as `ground trajectory` takes it. They
        are sent ahead of the ship, so any number may be. name: of the trajectory, up to 40 letters.
        Raises MissionError for a file that is none.
        """
        rows: Any = points
        if isinstance(points, str | Path):
            rows = read_curve(Path(points)).points()
        parts = chunks(name or f"path-{uuid.uuid4().hex[:8]}", msgspec.to_builtins(rows))
        if not parts:
            raise ConfigError("trajectory: no points")
        began_s = self.now_s
        for part in parts[:-1]:
            await self.sleep(began_s + part["points"][0][0] - AHEAD_S - self.now_s)
            await self._do("trajectory", part)
        return await self._do("trajectory", parts[-1])

    async def stick(
        self,
        *,
        forward_percent: float = 0.0,
        right_percent: float = 0.0,
        up_percent: float = 0.0,
        turn_percent: float = 0.0,
        seconds: float,
    ) -> Reply:
        """Push the ship by hand, in STABILIZE or ALTHOLD; returns at once, and replaces the last.

        Shares of its greatest force; `up_percent` of the climb in ALTHOLD, `turn_percent` of the
        turn to the right.
        """
        arguments = {
            "forward_percent": forward_percent, "right_percent": right_percent,
            "up_percent": up_percent, "turn_percent": turn_percent, "seconds": seconds,
        }  # fmt: skip
        return await self._do("stick", arguments)

    async def follow(
        self,
        kind: str,
        *,
        distance_m: float = 2.0,
        size_m: float = 0.28,
        seconds: float = 60.0,
    ) -> Reply:
        """Fly to what the camera sees, and keep a distance to it for a time.

        kind: a colour, "tag-7", or a name of your own detector. distance_m: 0 flies into it.
        size_m: its diameter, by which its distance is known. Raises Refused if it finds none.
        """
        arguments = {"kind": kind, "distance_m": distance_m, "size_m": size_m, "seconds": seconds}
        return await self._do("follow", arguments)

    async def hold(self) -> Reply:
        """Hold height and heading. It needs no position, so the wind moves the ship."""
        return await self._do("hold")

    async def land(self) -> Reply:
        """Land at this place and disarm."""
        return await self._do("land")

    async def return_to_pad(self) -> Reply:
        """Fly back to the pad, or to a nearer rally point."""
        return await self._do("return")

    async def mission(
        self,
        mission: str | Mission,
        *,
        first: int = 1,
        on_leg: Callable[[int], object] = lambda _: None,
    ) -> Reply:
        """Fly a mission: the path of a file, a built-in name, or one that was read.

        first: the leg to begin with. on_leg: called with the number of each leg before it is sent.

        A leg whose end says nothing about the ship is sent again: docs/missions.md. Raises
        MissionError if this ship cannot fly it, and as its legs do: a note names the leg, and one
        says whether the ship holds. It sends no hold on the pad, nor if another pilot or command
        flies the ship.
        """
        from ground_station.flyer import Flyer
        from ground_station.mission_check import fitted
        from ground_station.mission_file import load_mission

        file = mission if isinstance(mission, str) else mission.name
        loaded = load_mission(mission) if isinstance(mission, str) else mission
        limits = await self._do("limits")
        said: list[str] = []
        flown = fitted(file, loaded, limits.result, say=said.append)
        if not 1 <= first <= len(flown.legs):
            raise MissionError(f"{file}: no leg {first}: it has {len(flown.legs)}")

        def on_event(event: MissionEvent) -> None:
            if event.stage == "started":
                self._orders += 1
                on_leg(event.leg)

        flyer = Flyer(self._transport, flown, first=first, on_event=on_event)
        ended = await flyer.fly()
        try:
            if flyer.error is not None:
                raise flyer.error
            last = checked(flyer.reply or limits)
        except BlimpError as error:
            number, legs = len(ended.reports) + first - 1, len(flown.legs)
            error.add_note(f"leg {number} of {legs} ({flown.legs[number - 1].do}) of {flown.name}")
            if flyer.held:
                error.add_note(flyer.held)
            raise
        result = {"name": flown.name, "legs": len(flown.legs), "said": said}
        return msgspec.structs.replace(last, task="mission", result=result)

    async def estop(self) -> Reply:
        """Stop every output at once, past every queue, by all roads; only `arm` undoes it.

        It goes out beside whatever else waits, and is repeated until it is confirmed, also if the
        task is cancelled.
        """
        return checked(await self.press())

    @staticmethod
    async def estop_all(
        *, broker: str | None = None, signing_key_file: Path | None = None
    ) -> dict[str, Outcome]:
        """Stop every ship of this machine and of the broker, as `ground estop` without a name does.

        Raises OutcomeUnknown, naming each ship that has not confirmed it; LinkError without a ship.
        """
        from ground_station.ship_on_broker import stop_all  # redis-py: not for lockstep

        return await asyncio.to_thread(stop_all, broker=broker, signing_key_file=signing_key_file)

    # --- the bench ------------------------------------------------------------------------

    async def motor(self, name: str, percent: float, seconds: float) -> Reply:
        """Turn one motor, in MANUAL or on the bench. percent: -100 to 100 of full throttle."""
        arguments = {"name": name, "percent": percent, "seconds": seconds}
        return await self._do("motor", arguments)

    async def servo(self, name: str, deg: float, seconds: float | None = None) -> Reply:
        """Turn one servo to an angle, in MANUAL or on the bench.

        seconds: return when they are over; None to return at once, and keep the angle for 10 s.
        """
        arguments = {"name": name, "deg": deg, "seconds": seconds}
        return await self._do("servo", arguments)

    async def wires(self) -> Reply:
        """Push each output for moments, in MANUAL or on the bench, the ship on a string or held.

        Raises Refused, with what is wired otherwise than the airframe says and the cure.
        """
        return await self._do("wires")

    async def payload(
        self,
        name: str | None = None,
        *,
        channel: int | None = None,
        deg: float | None = None,
        pulse_us: float | None = None,
    ) -> Reply:
        """Turn a servo that steers nothing: by name or channel (from 1), to an angle or a pulse."""
        arguments = {"name": name, "channel": channel, "deg": deg, "pulse_us": pulse_us}
        return await self._do("payload", arguments)

    async def photo(self, every_s: float | None = None, count: int | None = None) -> Reply:
        """Take a photograph; it waits on the ship until `ground photo get` or `watch` fetches it.

        every_s: take more, so long after each other. count: how many; None for until `photo_stop`.
        """
        return await self._do("photo", {"every_s": every_s, "count": count})

    async def photo_stop(self) -> Reply:
        """Take no more of the photographs that were asked for at intervals."""
        return await self._do("photo_stop")

    async def geofence(
        self,
        zones: Sequence[Zone] = (),
        *,
        ceiling_m: float | None = None,
        floor_m: float | None = None,
        rally: Sequence[Rally] = (),
    ) -> Reply:
        """Limit the next flight, on the ground: the whole fence; what is left out has no limit.

        Zones and rally points are in metres from the pad, see `blimp.geofence`.
        """
        arguments = {
            "zones": msgspec.to_builtins(tuple(zones)), "ceiling_m": ceiling_m, "floor_m": floor_m,
            "rally": msgspec.to_builtins(tuple(rally)),
        }  # fmt: skip
        return await self._do("geofence", arguments)

    async def set_parameter(self, name: str, value: float) -> Reply:
        """Set one number of the airframe, on a ship that is disarmed; it is kept."""
        return await self._do("param", {"name": name, "value": value})

    # --- who flies ------------------------------------------------------------------------

    def control(
        self, *, pilot: str | None = None, ttl_s: float = CONTROL_TTL_S, wait_s: float = 0.0
    ) -> AbstractAsyncContextManager[None]:
        """Be the ship's only pilot during the block: the commands of all others are refused.

        pilot: the name that others see; None for user@host. ttl_s: a program that dies blocks the
        others for so long. wait_s: for how long to wait for them. Control that this user took by
        `ground control take` is used, and kept at the end. A block inside another one changes
        nothing: the outer one ends control. Raises NotAuthorised naming who has it.
        """
        return self._transport.control(pilot=pilot, ttl_s=ttl_s, wait_s=wait_s)

    async def _do(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        coalesce: str | None = None,
    ) -> Reply:
        """Send a command, without the arguments that are None; return its reply."""
        if name not in FOR_EVERYBODY:
            self._orders += 1
        given = {key: value for key, value in (arguments or {}).items() if value is not None}
        timeout_s = ACTIONS[name].timeout_s(given)
        return checked(
            await self._transport.command(name, given, timeout_s=timeout_s, coalesce=coalesce)
        )

    # --- for faces, which say themselves what a reply says --------------------------------

    def press(self) -> Awaitable[Reply]:
        """Stop as `estop` does: the call itself presses, also if nobody waits for its reply."""
        self._orders += 1
        return self._transport.estop()

    async def command(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float,
        coalesce: str | None = None,
        listener: CommandListener | None = None,
    ) -> Reply:
        """Send a command once; return how it ended: see `Transport.command`."""
        if name not in FOR_EVERYBODY:
            self._orders += 1
        return await self._transport.command(
            name, arguments, timeout_s=timeout_s, coalesce=coalesce, listener=listener
        )

    async def send(self, name: str, arguments: dict[str, Any], *, timeout_s: float) -> str:
        """Send a command once, and wait for nothing; return its id."""
        self._orders += 1
        return await self._transport.send(name, arguments, timeout_s=timeout_s)

    async def push(
        self, setpoints: Sequence[tuple[str, str, dict[str, Any]]], *, ttl_s: float
    ) -> Reply | None:
        """Send setpoints (key, task, arguments), each of which supersedes those of its key.

        Returns the first reply that refuses one.
        """
        self._orders += 1
        replies = await asyncio.gather(
            *(
                self._transport.push(key, arguments, ttl_s=ttl_s, task=task)
                for key, task, arguments in setpoints
            )
        )
        return next((reply for reply in replies if reply is not None), None)


def checked(reply: Reply) -> Reply:
    """Return a reply that says SUCCESS. Raises what any other says, see `Ship`."""
    name = reply.task.removeprefix("blimp.")
    reason = reply.reason or reply.state.lower()
    match reply.state:
        case "SUCCESS":
            return reply
        case "REFUSED" if reply.kind == NotInControl.__name__:
            raise NotInControl(reason)
        case "REFUSED":
            raise Refused(reason)
        case "EXPIRED":
            raise Expired(f"{name}: {reason}")
        case "SUPERSEDED":
            raise Superseded(f"{name}: {reason}")
        case "INTERRUPTED":
            raise Interrupted(f"{name}: {reason}")
        case "FAILURE" if reply.kind == ControlUnknown.__name__:
            raise ControlUnknown(f"{name}: {reason}")
        case "FAILURE":
            raise TaskFailed(f"{name}: {reason}", kind=reply.kind)
        case "TIMEOUT":
            raise OutcomeUnknown(f"{name}: {reason}", id=reply.id)


def _velocity(north_mps: float, east_mps: float, up_mps: float, seconds: float) -> dict[str, Any]:
    return {
        "north_mps": north_mps, "east_mps": east_mps, "up_mps": up_mps, "seconds": seconds,
    }  # fmt: skip
