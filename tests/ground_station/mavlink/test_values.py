"""What a station's numbers mean to the ship: axes, signs and units of setpoints and commands."""

import asyncio
import math
from typing import Any

import msgspec
import pytest
from pymavlink.dialects.v20 import all as dialect

from blimp.types import Attitude
from ground_station.mavlink.setpoints import TTL_S
from tests.faults.fuzz_mavlink import Bench, Twin, twin
from tests.ground_station.mavlink.test_vehicle import NAN, OFFBOARD, TOOK, acks, command, fly, send

FORCE = 21196
SEA_M = 3.0  # the twin's home above the sea


@pytest.fixture(scope="module")
def standing() -> Twin:
    """It points east, and flies at 1.5 m."""
    found = twin()
    ship = msgspec.structs.replace(
        found.seen.ship,
        attitude_rad=Attitude(roll=0.0, pitch=0.0, yaw=math.pi / 2.0),
        position_ned_m=(4.0, 5.0, -1.5),
        altitude_m=1.5,
        mode="ALTHOLD",
    )
    return found._replace(seen=msgspec.structs.replace(found.seen, ship=ship))


def local(frame: int, mask: int, **fields: float) -> Any:
    names = ("x", "y", "z", "vx", "vy", "vz", "afx", "afy", "afz", "yaw", "yaw_rate")
    given = [fields.get(name, 0.0) for name in names]
    return dialect.MAVLink_set_position_target_local_ned_message(0, 1, 1, frame, mask, *given)


def over_ground(frame: int, alt: float) -> Any:
    north = 360143000 + 90  # a metre, in degrees times 1e7
    return dialect.MAVLink_set_position_target_global_int_message(
        0, 1, 1, frame, 0x0DF8, north, -756679000, alt, *[0.0] * 8
    )


def sought(**arguments: float) -> Any:
    return pytest.approx(arguments, abs=0.02)


V, P = 0x0DC7, 0x09F8  # type masks: a velocity, a place with a yaw


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (local(1, V, vx=0.1, vy=0.2, vz=0.3),
         sought(north_mps=0.1, east_mps=0.2, up_mps=-0.3, seconds=TTL_S)),
        (local(8, V, vx=0.1), sought(north_mps=0.0, east_mps=0.1, up_mps=0.0, seconds=TTL_S)),
        (local(8, V, vy=0.1), sought(north_mps=-0.1, east_mps=0.0, up_mps=0.0, seconds=TTL_S)),
        (local(1, P, x=1.0, y=2.0, z=-3.0, yaw=math.pi / 2.0),
         sought(north_m=1.0, east_m=2.0, altitude_m=3.0, yaw_deg=90.0)),
        (over_ground(6, 2.0), sought(north_m=1.0, east_m=0.0, altitude_m=2.0)),
        (over_ground(5, 5.0), sought(north_m=1.0, east_m=0.0, altitude_m=5.0 - SEA_M)),
    ],
)  # fmt: skip
def test_a_setpoint_is_flown_in_its_axes_and_units(
    standing: Twin, message: Any, arguments: Any
) -> None:
    async def flight(bench: Bench) -> None:
        await send(bench, message)
        await send(bench, command(*OFFBOARD))
        assert bench.ship.asked[-1][1] == arguments

    fly(standing, flight)


def test_only_fresh_setpoints_of_the_station_that_has_the_ship_are_flown(standing: Twin) -> None:
    async def flight(bench: Bench) -> None:
        await send(bench, local(1, V, vx=0.1), system=254, address="b")
        await send(bench, command(*OFFBOARD))
        await send(bench, local(1, V, vx=0.1))
        bench.clock.advance(TTL_S + 0.01)
        await send(bench, command(*OFFBOARD))
        assert acks(bench, 176) == [1, 1]
        await send(bench, local(1, V, vx=0.1))
        await send(bench, command(*OFFBOARD))
        assert acks(bench, 176)[2:] == [0]
        holder = bench.stations.holder
        assert holder is not None
        bench.stations.give(holder._replace(system=77))
        while "offboard ends: station 255 has not the ship" not in bench.texts:
            await asyncio.sleep(0.001)

    fly(standing, flight)


@pytest.mark.parametrize(
    ("axes", "arguments"),
    [
        ((1000, -500, 500, 200), sought(forward_percent=100.0, right_percent=-50.0, up_percent=0.0,
                                        turn_percent=20.0, seconds=TTL_S)),
        ((0, 0, 1000, 0), sought(forward_percent=0.0, right_percent=0.0, up_percent=100.0,
                                 turn_percent=0.0, seconds=TTL_S)),
    ],
)  # fmt: skip
def test_sticks_push_their_way(standing: Twin, axes: tuple[int, ...], arguments: Any) -> None:
    async def flight(bench: Bench) -> None:
        sticks = dialect.MAVLink_manual_control_message(1, *axes, 0)
        await send(bench, sticks, system=254, address="b")  # has not the ship
        await send(bench, command(*TOOK))
        await send(bench, sticks, system=254, address="b")
        assert bench.ship.asked[-1][0] == "arm"
        await send(bench, sticks)
        assert bench.ship.asked[-1] == ("stick", arguments)
        asked = len(bench.ship.asked)
        loiter = msgspec.structs.replace(standing.seen.ship, mode="LOITER")
        bench.system.seen = msgspec.structs.replace(standing.seen, ship=loiter)
        await send(bench, sticks)
        assert len(bench.ship.asked) == asked

    fly(standing, flight)


def reposition(frame: int, alt: float, *, latitude: int = 360143000) -> Any:
    return dialect.MAVLink_command_int_message(
        1, 1, frame, 192, 0, 0, -1.0, 0.0, 0.0, NAN, latitude, -756679000, alt
    )


@pytest.mark.parametrize(
    ("message", "result", "asked"),
    [
        (command(22, *[NAN] * 6, 2.5), 0, ("takeoff", sought(altitude_m=2.5))),
        (command(22, 0, 0, 0, 0, 36.1, -75.6, 2.5), 2, None),  # it is flown straight up
        (reposition(6, 2.5), 0, ("goto", sought(north_m=0.0, east_m=0.0, altitude_m=2.5))),
        (reposition(5, 5.5), 0, ("goto", sought(north_m=0.0, east_m=0.0, altitude_m=2.5))),
        (reposition(6, 2.5, latitude=910000000), 2, None),
        (command(192, -1.0, 0, 0, NAN, 36.0143, -75.6679, 2.5), 8, None),  # not exact
        (command(400, 0, 0, 0, 0, 0, 0, 0), 0, ("disarm", {})),
        (command(400, 1, FORCE, 0, 0, 0, 0, 0), 0, ("arm", {"force": True})),
        (command(400, 1, 7, 0, 0, 0, 0, 0), 0, ("arm", {})),
        (command(400, 1, 0, 0, 0, 0, 0, 0, target=0), 2, None),  # to all systems
        (command(176, NAN, 4, 3, 0, 0, 0, 0), 2, None),
    ],
)  # fmt: skip
def test_a_command_asks_for_what_its_parameters_say(
    standing: Twin, message: Any, result: int, asked: Any
) -> None:
    async def flight(bench: Bench) -> None:
        await send(bench, message)
        assert [one.result for one in bench.read("COMMAND_ACK")] == [result]
        assert (bench.ship.asked[-1] if bench.ship.asked else None) == asked
        assert bench.ship.stops == 0

    fly(standing, flight)


def test_a_place_that_is_not_on_earth_is_refused_as_that(standing: Twin) -> None:
    async def flight(bench: Bench) -> None:
        await send(bench, reposition(6, 2.5, latitude=910000000))
        assert "latitude 91, longitude -75.6679: no place on Earth" in "".join(bench.texts)

    fly(standing, flight)


@pytest.mark.parametrize("target", [1, 0])
@pytest.mark.parametrize("words", [(400, 0, FORCE), (185, 1, 0)])
def test_anybodys_stop_ends_what_is_under_way(
    standing: Twin, words: tuple[int, ...], target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def flight(bench: Bench) -> None:
        async def never(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(bench.ship, "command", never)
        await send(bench, command(*TOOK))
        stop = command(words[0], *words[1:], 0, 0, 0, 0, 0, target=target)
        await send(bench, stop, system=254, address="b")
        await bench.turn()
        assert bench.ship.stops == 1
        assert [one.result for one in bench.read("COMMAND_ACK")] in ([6, 0], [0, 6])

    fly(standing, flight)


def test_it_arms_only_with_its_fence_in_force(
    standing: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def flight(bench: Bench) -> None:
        fence = {"zones": [{"circle": [0.0, 0.0, 9.0]}]}
        monkeypatch.setattr(bench.vehicle.parts.missions, "fence_arguments", lambda: fence)
        await send(bench, command(*TOOK))
        assert bench.ship.asked == [("geofence", fence), ("arm", {})]
        ordered = bench.ship.command

        async def refused(name: str, arguments: Any, **more: Any) -> Any:
            reply = await ordered(name, arguments, **more)
            is_fence = name == "geofence"
            return msgspec.structs.replace(reply, state="REFUSED" if is_fence else reply.state)

        monkeypatch.setattr(bench.ship, "command", refused)
        bench.clock.advance(1.0)
        await send(bench, command(400, 1, 7, 0, 0, 0, 0, 0))
        assert acks(bench, 400) == [0, 2]
        assert bench.ship.asked[2:] == [("geofence", fence)]

    fly(standing, flight)
