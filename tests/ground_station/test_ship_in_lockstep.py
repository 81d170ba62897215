"""A program's ship in lockstep: the same methods, at the pace of the computer."""

import asyncio
from collections.abc import Iterator

import pytest

from blimp.errors import (
    ConfigError,
    Expired,
    Interrupted,
    MissionError,
    OutcomeUnknown,
    Refused,
    Superseded,
)
from blimp.geofence import Zone
from blimp.ship import Lockstep
from blimp.tasks.reply import Reply, ReplyState
from blimp.types import TrajectoryPoint
from ground_station.mission_file import parse_mission
from ground_station.ship import Ship, checked
from ground_station.trajectory import CHUNK

pytestmark = pytest.mark.long  # seconds of computing each


@pytest.fixture
def twin() -> Iterator[Lockstep]:
    with Lockstep("twin", seed=1) as simulated:
        yield simulated


def test_a_flight_of_every_action(twin: Lockstep) -> None:
    async def fly() -> None:
        async with Ship.lockstep(twin) as ship:
            assert (await ship.ping()).result["boot_id"] == "lockstep-1"
            assert (await ship.sensor("baro")).unit == "Pa"
            assert (await ship.parameters())["limits.speed_mps"].unit == "m/s"
            with pytest.raises(Refused, match="made with"):
                await ship.set_parameter("limits.speed_mps", 0.5)
            await ship.arm()
            reply = await ship.takeoff(2.0)
            assert (reply.state, reply.task) == ("SUCCESS", "blimp.takeoff")
            assert reply.result["altitude_m"] == 2.0
            await ship.goto(1.0, 0.0, 2.0, yaw_deg=90.0, speed_mps=0.4)
            assert twin.truth.position_ned_m[0] == pytest.approx(1.0, abs=0.5)
            began_s = ship.now_s
            await ship.velocity(0.0, 0.2, 0.0, 2.0)
            assert ship.now_s - began_s == pytest.approx(2.0, abs=0.2)
            await ship.hold()
            assert (await ship.state()).mode == "HOLD"
            await ship.mode("LOITER")
            await ship.return_to_pad()
            await ship.land()
            await ship.disarm()
            assert twin.truth.on_ground
            await ship.arm()
            await ship.mode("MANUAL")
            await ship.motor("tail", 10.0, 0.5)
            await ship.servo("tilt", 20.0, 0.5)
            stopped = await ship.estop()
            assert (stopped.task, (await ship.state()).killed) == ("blimp.estop", True)

    asyncio.run(fly())


def test_a_path_within_a_fence_a_push_by_hand_and_a_servo(twin: Lockstep) -> None:
    path = [
        TrajectoryPoint(0.1 * k, 0.01 * k, 0.0, 2.0, 0.1, 0.0, 0.0) for k in range(2 * CHUNK + 1)
    ]

    async def fly() -> None:
        async with Ship.lockstep(twin) as ship:
            assert (await ship.limits()).name == "twin"
            fence = await ship.geofence([Zone(circle=(0.0, 0.0, 20.0))], ceiling_m=10.0)
            assert fence.result["zones"] == 1
            await ship.arm()
            await ship.takeoff(2.0)
            with pytest.raises(Refused, match="outside"):
                await ship.goto(25.0, 0.0, 2.0)
            began_s = ship.now_s
            with pytest.raises(ConfigError, match="no points"):
                await ship.trajectory([])
            await ship.trajectory(path)
            assert ship.now_s - began_s == pytest.approx(path[-1].t_s, abs=0.5)
            assert twin.truth.position_ned_m[0] == pytest.approx(path[-1].north_m, abs=0.3)
            with pytest.raises(Refused, match="works only in STABILIZE and ALTHOLD"):
                await ship.stick(forward_percent=20.0, seconds=1.0)
            await ship.mode("ALTHOLD")
            assert (await ship.stick(forward_percent=20.0, seconds=1.0)).result["seconds"] == 1.0
            with pytest.raises(Refused, match="no payload servo 'hook'"):
                await ship.payload("hook", deg=30.0)
            await ship.land()

    asyncio.run(fly())


def test_what_the_ship_refuses_is_raised_with_its_reason(twin: Lockstep) -> None:
    async def fly() -> None:
        async with Ship.lockstep(twin) as ship:
            with pytest.raises(Refused, match=r"altitude_m is 500, must be within 0\.5 to 30 m"):
                await ship.takeoff(500.0)
            with pytest.raises(Refused, match="not armed"):
                async with ship.velocities() as send:
                    await send(0.1, 0.0, 0.0)
            for wrong in (0.0, 200.0, float("nan")):
                with pytest.raises(ConfigError, match="hz is"):
                    await anext(ship.telemetry(wrong))
            with pytest.raises(ConfigError, match="ttl_s is 0"):
                async with ship.velocities(ttl_s=0.0):
                    pass

    asyncio.run(fly())


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("REFUSED", Refused), ("EXPIRED", Expired), ("SUPERSEDED", Superseded),
        ("INTERRUPTED", Interrupted), ("TIMEOUT", OutcomeUnknown),
    ],
)  # fmt: skip
def test_each_end_that_is_no_success_is_an_error_of_its_own(
    state: ReplyState, error: type[Exception]
) -> None:
    with pytest.raises(error, match="the reason"):
        checked(Reply(id="7", task="blimp.goto", state=state, reason="the reason"))


def test_the_same_seed_flies_the_same_way_with_several_tasks_at_once() -> None:
    async def fly(simulated: Lockstep) -> list[float]:
        heights: list[float] = []

        async def look(ship: Ship) -> None:
            nonlocal heights
            async for state in ship.telemetry(hz=5):
                heights += [state.altitude_m]

        async with Ship.lockstep(simulated) as ship, asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(look(ship))
            await ship.arm()
            await ship.takeoff(1.0)
            await ship.sleep(1.0)
            looking.cancel()
        return [*heights, *simulated.truth.position_ned_m]

    flights = []
    for _ in range(2):
        with Lockstep("twin", seed=3, wind_mps=0.3) as simulated:
            flights.append(asyncio.run(fly(simulated)))
    assert len(flights[0]) > 20
    assert flights[0] == flights[1]  # floats compared exactly


def test_two_ships_share_their_time(twin: Lockstep) -> None:
    async def fly(other: Lockstep) -> None:
        async with Ship.lockstep(twin) as ship, Ship.lockstep(other, beside=ship) as second:
            began_s = twin.now_s, other.now_s
            await asyncio.gather(ship.sleep(1.0), second.sleep(3.0))
            assert ship.now_s == second.now_s == pytest.approx(3.0)
            assert twin.now_s - began_s[0] == pytest.approx(3.0)  # flown on, though nobody waited
            assert other.now_s - began_s[1] == pytest.approx(3.0)

    with Lockstep("twin", seed=2) as other:
        asyncio.run(fly(other))


def test_a_stream_of_velocities_ends_by_itself_and_never_over_another_command(
    twin: Lockstep,
) -> None:
    async def fly() -> None:
        async with Ship.lockstep(twin) as ship:
            await ship.arm()
            await ship.takeoff(2.0)
            async with ship.velocities(ttl_s=0.3) as send:
                await send(0.3, 0.0, 0.0)
                assert (await ship.state()).mode == "VELOCITY"
                await ship.sleep(0.5)
                assert (await ship.state()).mode == "LOITER"  # without a newer one
                await send(0.3, 0.0, 0.0)
            assert (await ship.state()).mode == "LOITER"
            async with ship.velocities() as send:
                await send(0.1, 0.0, 0.0)
                landing = asyncio.create_task(ship.land())
                await ship.sleep(1.0)
            assert (await ship.state()).mode == "LAND"
            await landing
            assert twin.truth.on_ground

    asyncio.run(fly())


def test_a_mission_whose_leg_is_replaced_ends_without_a_command_and_names_the_leg(
    twin: Lockstep,
) -> None:
    legs = "".join(
        f"[[leg]]\n{leg}\n"
        for leg in (
            'do = "arm"', 'do = "takeoff"\naltitude_m = 2', 'do = "hold"\nseconds = 3',
            'do = "goto"\nnorth_m = 9\neast_m = 0\naltitude_m = 2', 'do = "land"',
        )
    )  # fmt: skip

    async def fly() -> None:
        mission = parse_mission(f'name = "out"\n{legs}', where="out.toml")
        async with Ship.lockstep(twin) as ship:
            flying = asyncio.create_task(ship.mission(mission))
            while twin.truth.position_ned_m[0] < 1.0:
                await ship.sleep(0.5)
            await ship.mode("LOITER")
            with pytest.raises(Refused) as raised:
                await flying
            assert raised.value.__notes__ == ["leg 4 of 5 (goto) of out"]
            assert (await ship.state()).mode == "LOITER"
            with pytest.raises(MissionError, match="no leg 6: it has 5"):
                await ship.mission(mission, first=6)
            await ship.land()
            reply = await ship.mission("hop")
            assert (reply.task, reply.result["legs"]) == ("mission", 4)

    asyncio.run(fly())
