"""A crash in the air: who may land under power, and who comes back disarmed."""

from math import hypot, inf, nan, radians
from typing import Any

import pytest
from msgspec import structs

from blimp.control.recovery import DECIDE_S, RESTART_S, Recovery, may_recover
from blimp.rotation import euler
from blimp.ship import Lockstep
from blimp.types import (
    BaroSample,
    FlightRecord,
    Outcome,
    OutcomeState,
    PositionSample,
    RangeSample,
    SensorReadings,
)
from tests.control.parts import twin

LEFT = FlightRecord(
    t_s=0.0,
    armed=True,
    killed=False,
    airborne=True,
    height_m=3.0,
    heaviness_kg=-0.005,
    pressure_pa=101_000.0,
)
LIGHT = structs.replace(twin(), mass=structs.replace(twin().mass, heaviness_kg=-0.008))


# --- the record ----------------------------------------------------------------------------------


def test_a_light_ship_that_flew_a_moment_ago_may() -> None:
    assert may_recover(LEFT, age_s=0.0, airframe=twin())
    assert may_recover(LEFT, age_s=RESTART_S, airframe=twin())


@pytest.mark.parametrize("age_s", [RESTART_S + 0.1, 3600.0, -60.0, inf, nan])
def test_never_on_a_stale_record(age_s: float) -> None:
    assert not may_recover(LEFT, age_s=age_s, airframe=twin())


@pytest.mark.parametrize("fields", [{"armed": False}, {"killed": True}, {"airborne": False}])
def test_never_after_a_kill_nor_disarmed_nor_from_the_ground(fields: dict[str, bool]) -> None:
    always = structs.replace(twin(), resume_after_crash="always")
    assert not may_recover(structs.replace(LEFT, **fields), age_s=0.0, airframe=always)


def test_the_airframe_says_whether_a_heavy_ship_or_none_may() -> None:
    heavy = structs.replace(LEFT, heaviness_kg=0.02)
    for policy, light_may, heavy_may in (
        ("light", True, False), ("always", True, True), ("never", False, False),
    ):  # fmt: skip
        ship = structs.replace(twin(), resume_after_crash=policy)
        assert may_recover(LEFT, age_s=1.0, airframe=ship) is light_may
        assert may_recover(heavy, age_s=1.0, airframe=ship) is heavy_may
    # Of one that is hardly heavy nobody knows.
    assert may_recover(structs.replace(LEFT, heaviness_kg=0.001), age_s=1.0, airframe=twin())


# --- the sensors ---------------------------------------------------------------------------------


def judged(**samples: float) -> bool | None:
    """Return what is decided if these sensors keep saying these heights."""
    recovery = Recovery(LEFT, airframe=twin())
    decision, t_s = None, 100.0
    while decision is None:
        t_s += 0.05
        fields: dict[str, object] = {}
        for name in ("ranger", "sonar"):
            if name in samples:
                fields[name] = RangeSample(t_s=t_s, distance_m=samples[name])
        if "baro" in samples:  # 12 Pa to the metre
            pressure_pa = LEFT.pressure_pa - 12.0 * (samples["baro"] - LEFT.height_m)
            fields["baro"] = BaroSample(t_s=t_s, pressure_pa=pressure_pa, temperature_c=15.0)
        if "tag" in samples:
            position = (0.0, 0.0, -samples["tag"])
            fields["tag"] = PositionSample(t_s=t_s, position_ned_m=position, accuracy_m=0.1)
        decision = recovery.judge(SensorReadings(t_s=t_s, **fields), t_s)  # type: ignore[arg-type]
        assert t_s < 101.0 + DECIDE_S
    return decision


@pytest.mark.parametrize(
    ("samples", "is_in_air"),
    [
        ({"ranger": 2.9, "baro": 3.1}, True),
        ({"ranger": 2.9, "sonar": 2.8}, True),
        ({"tag": 7.0, "baro": 6.8}, True),
        ({"ranger": 2.9}, False),
        ({"baro": 3.0}, False),
        ({"tag": 3.0}, False),
        ({}, False),
        ({"ranger": 0.2, "baro": 3.0, "tag": 3.0}, False),  # one of them sees the ground
        ({"ranger": 0.2, "baro": 0.1, "tag": 0.0}, False),
        ({"ranger": 2.9, "baro": 0.1}, False),
        ({"ranger": 0.45, "baro": 0.45}, False),
    ],
)
def test_two_sensors_must_see_it_in_the_air_and_none_near_the_ground(
    samples: dict[str, float], is_in_air: bool
) -> None:
    assert judged(**samples) is is_in_air


def test_an_old_sample_and_a_sick_sensor_do_not_count() -> None:
    recovery = Recovery(LEFT, airframe=twin())
    ranger = RangeSample(t_s=0.0, distance_m=2.9)
    for step in range(100):
        t_s = 10.0 + 0.05 * step
        sonar = RangeSample(t_s=t_s, distance_m=2.9)
        readings = SensorReadings(t_s=t_s, ranger=ranger, sonar=sonar)
        assert not recovery.judge(readings, t_s)
        sick = structs.replace(readings, ranger=sonar, unhealthy=("ranger",))
        assert not recovery.judge(sick, t_s)


# --- the whole ship ------------------------------------------------------------------------------


def hovering(ship: Lockstep, *, altitude_m: float = 3.0) -> None:
    assert ship.command("arm").state is OutcomeState.DONE
    assert ship.complete("takeoff", within_s=60.0, altitude_m=altitude_m).state is OutcomeState.DONE
    ship.step(10.0)


@pytest.mark.long
def test_a_light_ship_comes_down_under_power_and_does_nothing_else() -> None:
    with Lockstep(LIGHT, seed=4, wind_mps=0.2) as ship:
        hovering(ship)
        ship.crash(down_s=1.5)
        assert ship.world.outputs_safe
        ship.step(2.0)
        snapshot = ship.snapshot()
        assert (snapshot.mode, snapshot.armed, snapshot.killed) == ("LAND", True, False)
        assert any(text.startswith("resumed after a crash") for text in snapshot.messages)
        for name, arguments in (
            ("takeoff", {"altitude_m": 5.0}), ("hold", {}), ("mode", {"name": "MANUAL"}),
            ("goto", {"north_m": 1.0, "east_m": 0.0, "altitude_m": 2.0}), ("return", {}),
            ("motor", {"name": "left", "percent": 50.0, "seconds": 1.0}),
        ):  # fmt: skip
            refusal: Outcome = ship.command(name, check=False, **arguments)
            assert refusal.state is OutcomeState.REFUSED, name
        ship.crash(down_s=1.0)  # on the way down, too, it goes on coming down
        ship.step(2.0)
        assert ship.snapshot().mode == "LAND"
        ship.step(60.0)
        assert ship.truth.altitude_m < 0.3
        assert ship.snapshot().mode == "LAND"


@pytest.mark.slow
def test_an_arm_gives_it_back_to_its_pilot_and_a_stop_ends_it() -> None:
    with Lockstep(LIGHT, seed=5) as ship:
        hovering(ship)
        ship.crash(down_s=1.0)
        ship.step(2.5)
        assert ship.command("arm").state is OutcomeState.DONE
        ship.step(1.0)
        assert ship.snapshot().mode == "HOLD"
        ship.crash(down_s=1.0)
        ship.step(2.0)
        assert ship.snapshot().mode == "LAND"
        ship.command("estop")
        assert ship.world.outputs_safe
        ship.crash(down_s=1.0)  # never after a kill
        ship.step(5.0)
        assert not ship.snapshot().armed
        assert ship.world.outputs_safe


def test_a_crash_does_not_undo_a_stop() -> None:
    """Nor does a start long after that is an ordinary one: only an arm does."""
    with Lockstep("twin", seed=5, bench=True) as ship:
        ship.command("estop")
        for down_s in (0.5, 12.0 * RESTART_S):
            ship.crash(down_s=down_s)
            ship.step(1.0)
            assert ship.snapshot().killed
            refused = ship.command("motor", check=False, name="tail", percent=20.0, seconds=5.0)
            assert (refused.state, refused.reason) == (
                OutcomeState.REFUSED, "killed: send arm first"
            )  # fmt: skip
            ship.step(1.0)
            assert ship.world.outputs_safe
        assert ship.command("arm", force=True).state is OutcomeState.DONE
        assert not ship.snapshot().killed
        ship.crash(down_s=1.0)
        ship.step(1.0)
        assert not ship.snapshot().killed


@pytest.mark.slow
def test_a_ship_that_nothing_has_weighed_comes_down_as_if_it_were_light() -> None:
    """What its airframe says counted: 6 g light in a take-off, it was left to rise."""
    with Lockstep("twin", seed=2) as ship:
        physics = ship.world.physics
        physics.load(-0.006 * physics.displaced_kg)
        assert ship.command("arm").state is OutcomeState.DONE
        ship.command("takeoff", check=False, altitude_m=3.0)
        ship.step(8.0)
        assert ship.snapshot().heaviness_kg is None
        ship.crash(down_s=1.5)
        ship.step(3.0)
        assert (ship.snapshot().mode, ship.armed) == ("LAND", True)


@pytest.mark.long
def test_a_heavy_ship_a_ship_on_its_pad_and_a_late_successor_come_back_disarmed() -> None:
    with Lockstep("twin", seed=7) as ship:
        hovering(ship)
        ship.crash(down_s=1.0)
        ship.step(5.0)
        said = ship.snapshot()
        assert not said.armed
        assert said.failsafe.startswith(
            "the flight process died in the air: no motor turns, it sinks"
        )
        assert said.altitude_m == pytest.approx(ship.truth.altitude_m, abs=0.3)
        assert said.altitude_m > 1.5
        ship.step(60.0)
        assert (ship.truth.altitude_m < 0.1, ship.snapshot().failsafe) == (True, "")
        assert ship.snapshot().messages[-1] == "down, without power"
    with Lockstep(LIGHT, seed=8) as ship:
        ship.command("arm")
        ship.step(1.0)
        ship.crash(down_s=1.0)
        ship.step(5.0)
        assert not ship.snapshot().armed
        assert ship.world.outputs_safe
        hovering(ship)
        ship.crash(down_s=6.0)
        ship.step(5.0)
        assert not ship.snapshot().armed
        assert ship.world.outputs_safe


@pytest.mark.slow
def test_a_ship_without_power_in_the_air_says_so_until_it_is_down_or_armed() -> None:
    with Lockstep("twin", seed=7) as ship:
        hovering(ship)
        ship.command("estop")
        ship.step(1.0)
        assert ship.snapshot().failsafe.startswith("killed in the air: no motor turns, it sinks")
        ship.crash(down_s=1.0)  # another process says the same
        ship.step(4.0)
        assert ship.snapshot().failsafe.startswith("killed in the air: no motor turns, it sinks")
        assert ship.command("arm").state is OutcomeState.DONE
        ship.step(0.5)
        assert ship.snapshot().failsafe == ""
        assert ship.command("land").state is OutcomeState.IN_PROGRESS
        ship.step(60.0)
        ship.command("estop")  # on the ground it has no further to fall
        ship.step(0.5)
        assert ship.snapshot().failsafe == ""


@pytest.mark.slow
def test_a_ship_armed_in_the_air_again_knows_where_its_nose_points() -> None:
    with Lockstep("twin", seed=2, wind_mps=0.3) as ship:
        hovering(ship)
        goal: dict[str, Any] = {"north_m": 0.0, "east_m": 0.0, "altitude_m": 3.0, "yaw_deg": 120.0}
        ship.complete("goto", within_s=60.0, **goal)
        ship.crash(down_s=1.5)
        ship.step(0.5)
        assert ship.command("arm").state is OutcomeState.DONE
        assert ship.command("takeoff", altitude_m=3.0).state is OutcomeState.IN_PROGRESS
        ship.step(20.0)
        assert ship.complete("goto", within_s=60.0, **goal).state is OutcomeState.DONE
        assert ship.snapshot().failsafe == ""
        assert euler(ship.truth.attitude)[2] == pytest.approx(radians(120.0), abs=0.3)
        assert hypot(*ship.truth.position_ned_m[:2]) < 1.0


@pytest.mark.slow
def test_with_one_sensor_left_it_comes_back_disarmed() -> None:
    with Lockstep(LIGHT, seed=9) as ship:
        hovering(ship)
        for device in ("ranger", "sonar", "tag"):
            ship.fault(device, "no_answer")
        ship.crash(down_s=1.0)
        ship.step(5.0)
        assert not ship.snapshot().armed
        assert ship.world.outputs_safe
