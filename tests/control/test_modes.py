from math import pi, radians
from typing import Any

import msgspec
import pytest

from blimp.ability import brakes
from blimp.control.failsafe import Action
from blimp.control.modes.auto import Auto
from blimp.control.modes.descend import Descend
from blimp.control.modes.driven import DrivenDown
from blimp.control.modes.hold import Hold
from blimp.control.modes.idle import Idle
from blimp.control.modes.land import Land
from blimp.control.modes.loiter import Loiter, heading_rad
from blimp.control.modes.manual import Manual, Order
from blimp.control.modes.mode import FlightMode, Ship
from blimp.control.modes.nose import Nose
from blimp.control.modes.rtl import SAFE_ALTITUDE_M, ReturnToPad
from blimp.control.modes.sticks import Stick, Sticks
from blimp.control.modes.table import MODES
from blimp.control.modes.velocity import Velocity
from blimp.control.pilot import Pilot
from blimp.geofence import Geofence
from blimp.rotation import from_euler, wrap_pi
from blimp.types import (
    Contact,
    EstimateHealth,
    Mode,
    OutcomeState,
    QuantityHealth,
    Setpoint,
    VehicleState,
)
from tests.control.parts import Bench, a_ship, at, twin, weight

DT_S = 0.02
LIMITS = twin().limits


def perfect(
    mode: FlightMode, state: VehicleState, seconds: float, *, turns: bool = True
) -> tuple[VehicleState, Setpoint]:
    """Fly `mode` with a ship that is at once where and how it should be."""
    setpoint = Setpoint()
    for _ in range(round(seconds / DT_S)):
        setpoint = mode.update(state, dt_s=DT_S)
        place = tuple(
            now + v * DT_S if wish is None else wish
            for wish, now, v in zip(
                setpoint.position_ned_m,
                state.position_ned_m,
                setpoint.velocity_ned_mps,
                strict=True,
            )
        )
        yaw = setpoint.yaw_rad if turns and setpoint.yaw_rad is not None else 0.0
        state = VehicleState(
            t_s=state.t_s + DT_S,
            position_ned_m=(place[0], place[1], place[2]),
            velocity_ned_mps=setpoint.velocity_ned_mps,
            attitude=from_euler(0.0, 0.0, yaw),
        )
    return state, setpoint


# --- HOLD ---------------------------------------------------------------------------------------


def test_hold_brakes_first_and_then_keeps_the_place_where_it_stopped() -> None:
    hold = Hold(at(5.0, 0.0, 3.0))
    moving = at(5.5, 0.0, 3.0, velocity_ned_mps=(0.5, 0.0, 0.0))
    setpoint = hold.update(moving, dt_s=DT_S)
    assert setpoint.position_ned_m == (None, None, -3.0)
    assert setpoint.velocity_ned_mps == (0.0, 0.0, 0.0)
    setpoint = hold.update(at(6.0, 0.0, 3.0), dt_s=DT_S)
    assert setpoint.position_ned_m == (6.0, 0.0, -3.0)
    in_gusts = Hold(moving)
    for _ in range(402):  # they keep it moving: 8 s are enough
        setpoint = in_gusts.update(moving, dt_s=DT_S)
    assert setpoint.position_ned_m == (5.5, 0.0, -3.0)


def test_hold_without_a_position_keeps_height_and_heading_alone() -> None:
    state = at(0.0, 0.0, 3.0, attitude=from_euler(0.0, 0.0, 1.0), position_valid=False)
    setpoint = Hold(state).update(state, dt_s=DT_S)
    assert setpoint.position_ned_m == (None, None, -3.0)
    assert setpoint.yaw_rad == pytest.approx(1.0)


def test_a_held_ship_that_is_driven_off_turns_its_nose_into_the_wind() -> None:
    def held(ship: Ship, off_m: float, seconds: float) -> tuple[str, float | None]:
        """Return what it says, and the heading it asks for, so long beside its place."""
        hold = Hold(at(0.0, 0.0, 3.0), ship=ship)
        setpoint = hold.update(at(0.0, 0.0, 3.0), dt_s=DT_S)
        for _ in range(round(seconds / DT_S)):
            setpoint = hold.update(at(0.0, off_m, 3.0), dt_s=DT_S)
            assert setpoint.position_ned_m == (0.0, 0.0, -3.0)
        return hold.note, setpoint.yaw_rad

    weak = a_ship(wind_mps=(0.0, 0.5), steers=True)  # from the west
    note, yaw_rad = held(weak, 0.3, 30.0)
    assert note.startswith("driven off its place")
    assert yaw_rad == pytest.approx(-0.5 * pi)
    assert held(weak, 0.2, 30.0) == ("", 0.0)  # gusts do that
    assert held(weak, 0.3, 2.0) == ("", 0.0)
    strong = a_ship(wind_mps=(0.0, 0.5), steers=False)  # as strong from the side
    assert held(strong, 0.3, 30.0) == ("", 0.0)


# --- LOITER -------------------------------------------------------------------------------------


def test_goto_turns_before_it_moves_off_and_ends_done() -> None:
    leg = Loiter(at(0.0, 0.0, 3.0), ship=a_ship(), target_ned_m=(0.0, 10.0, -3.0))
    setpoint = leg.update(at(0.0, 0.0, 3.0), dt_s=DT_S)
    assert setpoint.velocity_ned_mps == (0.0, 0.0, 0.0)
    state, setpoint = perfect(leg, at(0.0, 0.0, 3.0), 60.0)
    assert leg.done
    assert leg.fraction == 1.0
    assert state.position_ned_m == pytest.approx((0.0, 10.0, -3.0), abs=0.05)
    assert setpoint.yaw_rad == pytest.approx(pi / 2, abs=0.1)
    assert leg.result["east_m"] == 10.0


def test_goto_with_a_heading_keeps_it() -> None:
    leg = Loiter(
        at(0.0, 0.0, 3.0),
        ship=a_ship(),
        target_ned_m=(10.0, 0.0, -3.0),
        yaw_rad=heading_rad(270.0),
    )
    _, setpoint = perfect(leg, at(0.0, 0.0, 3.0), 60.0)
    assert setpoint.yaw_rad == pytest.approx(-pi / 2)


def test_a_ship_that_cannot_turn_moves_off_all_the_same() -> None:
    leg = Loiter(at(0.0, 0.0, 3.0), ship=a_ship(), target_ned_m=(-10.0, 0.0, -3.0))
    perfect(leg, at(0.0, 0.0, 3.0), 60.0, turns=False)
    assert leg.done


def test_goto_is_not_done_while_the_position_is_lost() -> None:
    leg = Loiter(at(0.0, 0.0, 3.0), ship=a_ship(), target_ned_m=(0.0, 0.0, -3.0))
    for _ in range(200):
        leg.update(at(0.0, 0.0, 3.0, position_valid=False), dt_s=DT_S)
    assert not leg.done


def test_a_ship_weak_sideways_crabs_on_the_leg_and_lies_into_the_wind_at_its_end() -> None:
    ship = a_ship(wind_mps=(0.0, 0.3))  # blowing to the east
    leg = Loiter(at(0.0, 0.0, 3.0), ship=ship, target_ned_m=(10.0, 0.0, -3.0))
    _, setpoint = perfect(leg, at(0.0, 0.0, 3.0), 12.0)
    assert setpoint.yaw_rad == pytest.approx(-radians(23.2), abs=0.02)  # atan(0.3 / 0.7)
    _, setpoint = perfect(leg, at(10.0, 0.0, 3.0), 60.0)
    assert setpoint.yaw_rad == pytest.approx(-pi / 2, abs=0.02)


def test_a_nose_that_need_not_follow_stays() -> None:
    strong = a_ship(wind_mps=(0.0, 0.3), steers=False)
    assert Nose(ship=strong, yaw_rad=0.4).follow(0.0, 0.0, 1.0) == pytest.approx(0.4)
    calm = a_ship(wind_mps=(0.05, 0.0))
    assert Nose(ship=calm, yaw_rad=0.4).follow(0.0, 0.0, 1.0) == pytest.approx(0.4)


def test_a_nose_turns_no_faster_than_the_ship_and_the_short_way() -> None:
    nose = Nose(ship=a_ship(), yaw_rad=radians(170.0))
    first = nose.follow(-1.0, -0.3, 1.0)  # to 197 degrees, over the seam
    assert wrap_pi(first - radians(170.0)) == pytest.approx(0.7 * LIMITS.yaw_rate_radps)


# --- VELOCITY -----------------------------------------------------------------------------------


def test_velocity_ramps_ages_out_and_loiters_where_it_ended() -> None:
    mode = Velocity(
        at(0.0, 0.0, 3.0), ship=a_ship(), velocity_ned_mps=(0.5, 0.0, -0.2), seconds=10.0
    )
    _, setpoint = perfect(mode, at(0.0, 0.0, 3.0), 1.0)
    assert setpoint.velocity_ned_mps[0] == pytest.approx(
        0.5 / 0.5385 * LIMITS.acceleration_mps2 * 1.0, rel=0.05
    )
    assert int(mode.number) == Mode.VELOCITY
    state, setpoint = perfect(mode, at(0.0, 0.0, 3.0), 9.5)
    assert mode.done
    assert int(mode.number) == Mode.LOITER
    assert setpoint.velocity_ned_mps == (0.0, 0.0, 0.0)
    assert setpoint.position_ned_m[2] is not None
    assert -LIMITS.max_altitude_m <= setpoint.position_ned_m[2] < -3.0
    assert state.altitude_m > 3.5


def test_velocity_never_asks_for_a_place_below_the_ground() -> None:
    mode = Velocity(
        at(0.0, 0.0, 0.5), ship=a_ship(), velocity_ned_mps=(0.0, 0.0, 0.3), seconds=30.0
    )
    _, setpoint = perfect(mode, at(0.0, 0.0, 0.5), 20.0)
    assert setpoint.position_ned_m[2] == 0.0


def test_velocity_never_asks_for_a_place_above_the_fence_and_begins_again_from_rest() -> None:
    ship = a_ship()
    ship.area.fence = Geofence(ceiling_m=4.0)
    start = at(altitude_m=3.0)
    mode = Velocity(start, ship=ship, velocity_ned_mps=(0.5, 0.0, -0.3), seconds=60.0)
    state, setpoint = perfect(mode, start, 20.0)
    assert setpoint.position_ned_m[2] == -4.0
    mode.resume(state)
    assert mode.update(state, dt_s=DT_S).velocity_ned_mps[0] < 0.05


# --- RTL ----------------------------------------------------------------------------------------


def test_return_rises_to_the_safe_altitude_and_then_flies_home() -> None:
    mode = ReturnToPad(at(8.0, 6.0, 0.8), ship=a_ship())
    state = at(8.0, 6.0, 0.8)
    while state.altitude_m < SAFE_ALTITUDE_M - 0.1:
        state, _ = perfect(mode, state, DT_S)
        assert state.position_ned_m[:2] == pytest.approx((8.0, 6.0))
    state, _ = perfect(mode, state, 80.0)
    assert mode.done
    assert state.position_ned_m == pytest.approx((0.0, 0.0, -SAFE_ALTITUDE_M), abs=0.05)


def test_return_from_above_keeps_its_height() -> None:
    mode = ReturnToPad(at(5.0, 0.0, 6.0), ship=a_ship())
    state, _ = perfect(mode, at(5.0, 0.0, 6.0), 60.0)
    assert mode.done
    assert state.altitude_m == pytest.approx(6.0, abs=0.05)


# --- LAND ---------------------------------------------------------------------------------------


def descend(
    land: Land, *, seconds: float, floor_m: float = 0.0, against: tuple[tuple[str, float], ...] = ()
) -> tuple[VehicleState, float]:
    """Sink as commanded until the floor stops the ship; return the state and the last speed."""
    state, speed = at(1.0, 1.0, 3.0), 0.0
    for _ in range(round(seconds / DT_S)):
        setpoint = land.update(state, dt_s=DT_S)
        if setpoint.idle:
            break
        sink = setpoint.velocity_ned_mps[2]
        height = max(floor_m, state.altitude_m - sink * DT_S)
        stopped = height == floor_m
        if not stopped:
            speed = sink
        state = at(
            1.0, 1.0, height, t_s=state.t_s + DT_S,
            velocity_ned_mps=(0.0, 0.0, 0.0 if stopped else sink), against=against,
        )  # fmt: skip
        if land.done:
            break
    return state, speed


def lies(land: Land, state: VehicleState, *, seconds: float = 9.0) -> None:
    """The motors stop on trial, and the ship stays where it is."""
    for _ in range(round(seconds / DT_S)):
        assert not land.landed
        assert land.update(state, dt_s=DT_S).idle
        if land.done:
            return


def test_a_heavy_ship_comes_down_slowly_touches_down_and_is_let_go() -> None:
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship(heaviness_kg=0.005))
    state, speed = descend(land, seconds=60.0)
    lies(land, state, seconds=4.0)
    assert land.landed
    assert not land.held
    assert speed <= LIMITS.touchdown_mps
    assert land.update(state, dt_s=DT_S).idle
    assert land.note == ""


def test_a_light_ship_is_pushed_down_and_stays_armed_saying_so() -> None:
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship(heaviness_kg=-0.006))
    state, _ = descend(land, seconds=60.0)
    assert land.held
    assert not land.landed
    setpoint = land.update(state, dt_s=DT_S)
    assert not setpoint.idle
    assert setpoint.position_ned_m[2] is not None
    assert setpoint.position_ned_m[2] > 0.0  # below the ground: pushed down
    assert "light by about 6.0 g" in land.note
    assert "disarm" in land.note


def test_a_ship_that_weighed_itself_heavy_and_rises_on_trial_has_lost_ballast() -> None:
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship(heaviness_kg=0.02))
    state, _ = descend(land, seconds=60.0)
    assert land.update(state, dt_s=DT_S).idle
    for k in range(200):
        land.update(at(1.0, 1.0, 0.0015 * k), dt_s=DT_S)
    assert land.held
    assert not land.update(at(1.0, 1.0, 0.3), dt_s=DT_S).idle


def test_ballast_lost_on_the_way_down_is_felt_before_the_trial() -> None:
    ship = msgspec.structs.replace(a_ship(), weight=lambda: weight(felt_kg=-0.025))
    land = Land(at(1.0, 1.0, 3.0), ship=ship)
    state, _ = descend(land, seconds=60.0)
    lies(land, state)
    assert "felt 25 g light" in land.doubt  # hook-and-loop feet hide it
    assert land.result["heaviness_g"] == -25.0
    assert not land.landed
    assert not land.update(at(1.0, 1.0, 0.3), dt_s=DT_S).idle  # they gave way: held down


def test_ballast_that_stops_the_ship_on_its_way_down_is_felt() -> None:
    felt = [0.005]
    ship = msgspec.structs.replace(a_ship(), weight=lambda: weight(felt_kg=felt[0]))
    land = Land(at(1.0, 1.0, 1.2), ship=ship)
    for _ in range(round(1.5 / DT_S)):
        land.update(at(1.0, 1.0, 1.2), dt_s=DT_S)  # it hangs until it is pushed
    felt[0] = -0.025
    state, _ = descend(land, seconds=60.0)
    lies(land, state)
    assert "felt 25 g light" in land.doubt


def test_a_ship_not_weighed_yet_weighs_itself_before_it_comes_down() -> None:
    """Landed right after a take-off it was let go on feet that hid that it was light."""
    weighed = [False]
    ship = msgspec.structs.replace(a_ship(), weight=lambda: weight(weighed=weighed[0]))
    land = Land(at(1.0, 1.0, 2.0), ship=ship, weigh=True)
    for _ in range(round(6.0 / DT_S)):
        assert land.update(at(1.0, 1.0, 2.0), dt_s=DT_S).velocity_ned_mps[2] == 0.0
    weighed[0] = True
    for _ in range(round(3.0 / DT_S)):
        setpoint = land.update(at(1.0, 1.0, 2.0), dt_s=DT_S)
    assert setpoint.velocity_ned_mps[2] == pytest.approx(LIMITS.column_mps)


def test_a_ship_that_cannot_weigh_itself_stays_armed_on_feet_that_hold() -> None:
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship(weighed=False), weigh=True)
    state, _ = descend(land, seconds=80.0)  # it waits, and comes down
    lies(land, state)
    assert not land.landed
    assert "not weighed" in land.doubt


def test_a_ship_whose_feet_do_not_hold_it_is_pressed_down() -> None:
    """Neither weighed nor light, the wind blew it off along the ground with its motors idle."""
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship(weighed=False))
    state, _ = descend(land, seconds=80.0)
    lies(land, state)
    assert land.doubt
    for east_m in (0.4, 1.6):  # the noise of a position, and what its feet let it swing
        assert land.update(at(1.0, east_m, 0.0), dt_s=DT_S).idle
    setpoint = land.update(at(1.0, 2.2, 0.0), dt_s=DT_S)
    assert not setpoint.idle
    assert setpoint.press_n is not None
    assert setpoint.press_n > 0.0
    assert land.held
    assert not land.doubt


def test_an_estimate_below_the_ground_ends_the_landing_and_is_no_rise_on_its_way_back() -> None:
    """The barometer sinks and nothing else sees the ground: it braked there, and flew up."""
    land = Land(at(1.0, 1.0, 0.5), ship=a_ship(heaviness_kg=0.005))
    land.update(at(1.0, 1.0, 0.2), dt_s=DT_S)
    below = [-0.01 * k for k in range(16, 70)]
    for altitude_m in below:
        under = at(1.0, 1.0, altitude_m, velocity_ned_mps=(0.0, 0.0, 0.4))
        setpoint = land.update(under, dt_s=DT_S)
    assert setpoint.idle
    lies(land, at(1.0, 1.0, 0.0), seconds=4.0)  # rest sets it right
    assert land.landed


def test_what_a_ship_feels_after_it_has_stood_is_the_ground() -> None:
    """Its height wandered off after touchdown: before, 107 g light, and held down for good."""
    felt = [0.005]
    ship = msgspec.structs.replace(a_ship(), weight=lambda: weight(felt_kg=felt[0]))
    land = Land(at(1.0, 1.0, 0.6, velocity_ned_mps=(0.0, 0.0, 0.2)), ship=ship)
    land.update(at(1.0, 1.0, 0.6, velocity_ned_mps=(0.0, 0.0, 0.2)), dt_s=DT_S)
    for _ in range(round(1.0 / DT_S)):
        land.update(at(1.0, 1.0, 0.3), dt_s=DT_S)  # it stands; its ranger is blind
    felt[0] = -0.107
    land.update(at(1.0, 1.0, 0.45, velocity_ned_mps=(0.0, 0.0, -0.08)), dt_s=DT_S)
    pushed = Land(at(1.0, 1.0, 0.45), ship=ship, pushed=True)  # after a blind descent
    pushed.update(at(1.0, 1.0, 0.45, velocity_ned_mps=(0.0, 0.0, -0.08)), dt_s=DT_S)
    for one in (land, pushed):
        for _ in range(round(6.0 / DT_S)):
            one.update(at(1.0, 1.0, 0.3), dt_s=DT_S)
        assert not one.held


def test_a_ship_held_down_is_never_pushed_up_however_deep_it_believes_to_be() -> None:
    """Its barometer sank: before, it flew up to where that said the ground is."""
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship(heaviness_kg=-0.006))
    descend(land, seconds=60.0)
    for altitude_m in (0.0, -0.2, -0.5, -8.0):
        sinks = at(1.0, 1.0, altitude_m, velocity_ned_mps=(0.0, 0.0, 0.4))
        setpoint = land.update(sinks, dt_s=DT_S)
        assert setpoint.press_n is not None
        assert setpoint.press_n > 0.006 * 9.8  # more than its lift


def held(**ship: Any) -> Land:
    """A twin 6 g light that has touched down."""
    land = Land(
        at(1.0, 1.0, 3.0), ship=msgspec.structs.replace(a_ship(heaviness_kg=-0.006), **ship)
    )
    descend(land, seconds=60.0)
    assert land.held
    return land


def stand(land: Land, seconds: float, altitude_m: float = 0.0) -> Setpoint:
    for _ in range(round(seconds / DT_S)):
        setpoint = land.update(at(1.0, 1.0, altitude_m), dt_s=DT_S)
    return setpoint


def test_a_ship_held_down_says_by_how_much_and_for_how_long() -> None:
    land = held(push_n=lambda: 1.0, pushes_n=lambda: 0.34, lasts_s=lambda: 3600.0)
    press_n = stand(land, 5.0).press_n
    assert press_n == pytest.approx(0.006 * 9.81 + 0.3, abs=0.01)  # its lift and a margin
    assert "held down by thrust of 0.34 N for about 60 min of its battery" in land.note


def test_a_thrust_that_is_not_given_holds_nothing_down_and_is_not_said_to() -> None:
    """The lift motor was left out as broken: 0.0 N, and "held down by thrust" for minutes."""
    land = held(pushes_n=lambda: 0.0)
    assert "held down by thrust" in land.note  # what is about to be done
    stand(land, 5.0)
    assert "cannot be held down: thrust gives 0 N and it lifts 0.059 N" in land.note
    unknown = held(pushes_n=lambda: None)  # broken, it is said, and driven all the same
    stand(unknown, 5.0)
    assert "held" not in unknown.note
    assert "said to be broken" in unknown.note


def test_a_ship_that_comes_off_the_ground_is_pressed_harder() -> None:
    land = held()
    before_n = stand(land, 1.0).press_n
    assert stand(land, 1.0, altitude_m=0.4).press_n is None  # flown down, at a speed
    after_n = stand(land, 1.0).press_n
    assert before_n is not None
    assert after_n == pytest.approx(1.5 * before_n)


def test_a_ship_that_came_off_the_ground_is_not_pressed_before_it_lies_still() -> None:
    """Pressed with all its thrust at 0.2 m, one touched down at 0.56 m/s."""
    land = held()
    stand(land, 1.0, altitude_m=0.4)
    for altitude_m, mps in ((0.19, -0.05), (0.15, 0.2), (0.05, 0.3)):
        sinks = at(1.0, 1.0, altitude_m, velocity_ned_mps=(0.0, 0.0, mps))
        setpoint = land.update(sinks, dt_s=DT_S)
        assert setpoint.press_n is None
        assert 0.0 < setpoint.velocity_ned_mps[2] <= twin().limits.touchdown_mps
    for k in range(100):  # a gust moves it now and then
        gust = at(1.0, 1.0, 0.0, velocity_ned_mps=(0.0, 0.0, 0.08 if k % 3 == 0 else 0.0))
        setpoint = land.update(gust, dt_s=0.1)
    assert setpoint.press_n is not None


def test_a_height_that_wanders_with_the_weather_is_no_rise() -> None:
    """Pressed with all there is after two minutes, a ship emptied its battery for nothing."""
    land = held()
    press_n = stand(land, 1.0).press_n
    for k in range(300):
        assert stand(land, 1.0, altitude_m=0.001 * k).press_n == press_n
    assert stand(land, 1.0, altitude_m=0.6).press_n is None


def test_a_ship_that_no_thrust_brings_down_says_so() -> None:
    ship = msgspec.structs.replace(a_ship(heaviness_kg=-0.15), push_n=lambda: 1.2)
    land = Land(at(1.0, 1.0, 3.0), ship=ship)
    assert land.note == ""
    stand(land, 5.0, altitude_m=3.0)
    assert "cannot be brought down" in land.note
    assert "with 1.2 N at the most, and it lifts 1.5 N" in land.note
    assert not land.done


def test_a_push_that_drives_over_the_ground_is_no_more_than_its_feet_grip() -> None:
    """Its tilt servo stayed at 28 degrees: pressed by 0.5 N it drove 40 m through the hall."""
    land = held(grips_n=lambda: 0.2)
    assert stand(land, 10.0).press_n == 0.2
    slides = held(grips_n=lambda: 0.01)  # but no less than what holds it down
    assert stand(slides, 10.0).press_n == pytest.approx(1.25 * 0.006 * 9.807, abs=1e-3)


def test_a_jump_of_the_estimate_on_trial_is_no_rise() -> None:
    """A ship 34 g heavy "rose" by 0.1 m for a moment, and was held down for good."""
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship(heaviness_kg=0.0003))
    state, _ = descend(land, seconds=25.0)
    for k in range(450):
        jumps = k % 60 < 8
        mps = -0.12 if jumps else 0.0
        state = at(1.0, 1.0, 0.12 if jumps else 0.0, velocity_ned_mps=(0.0, 0.0, mps))
        assert land.update(state, dt_s=DT_S).idle
        assert not land.held


def test_a_sensor_that_says_not_down_keeps_the_ship_armed_and_is_named() -> None:
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship())
    state, _ = descend(land, seconds=60.0, against=(("baro", 7.6),))
    lies(land, state, seconds=10.0)
    assert (land.landed, land.done) == (False, True)
    assert "baro says 7.6 m" in land.note
    assert land.update(at(1.0, 1.0, 0.0), dt_s=DT_S).idle
    assert not land.update(at(1.0, 1.0, 1.0), dt_s=DT_S).idle  # it rises: pressed down
    assert land.held


def test_a_blind_descent_ends_idle_for_a_heavy_ship_and_never_for_a_light_one() -> None:
    blind = at(0.0, 0.0, 3.0, height_valid=False)
    heavy = Descend(blind, ship=a_ship(heaviness_kg=0.005))
    light = Descend(blind, ship=a_ship(heaviness_kg=-0.005))
    unknown = Descend(blind, ship=a_ship(heaviness_kg=0.0003))
    for mode in (heavy, light, unknown):
        assert not mode.update(blind, dt_s=DT_S).idle
        for _ in range(round(120.0 / 0.1)):
            mode.update(blind, dt_s=0.1)
    assert heavy.update(blind, dt_s=DT_S).idle
    assert "motors idle" in heavy.note
    assert not light.update(blind, dt_s=DT_S).idle
    assert not unknown.update(blind, dt_s=DT_S).idle
    assert "estop" in light.note
    press_n = light.update(blind, dt_s=DT_S).press_n  # for good, by more than it may lift
    assert press_n is not None
    assert press_n > 0.005 * 9.81 + 0.1
    assert press_n == pytest.approx(unknown._press_n + 0.0053 * 9.81, abs=1e-3)
    assert light.update(at(0.0, 0.0, 3.0), dt_s=DT_S).press_n is None  # it sees again


def test_the_last_stage_idles_and_pushes_only_what_rises_without_thrust() -> None:
    mode = Idle(ship=a_ship())
    rising = at(0.0, 0.0, 5.0, velocity_ned_mps=(0.0, 0.0, -0.3))
    assert mode.update(rising, dt_s=20.0).idle
    assert "motors idle" in mode.note
    assert not mode.update(rising, dt_s=6.0).idle
    assert "it is light: pushed down" in mode.note  # no longer "motors idle"
    slowly = Idle(ship=a_ship())  # whose climb as estimated swings about a tenth
    for k in range(60):
        mps = -0.03 if k % 4 == 0 else -0.12
        setpoint = slowly.update(at(0.0, 0.0, 5.0, velocity_ned_mps=(0.0, 0.0, mps)), dt_s=1.0)
    assert not setpoint.idle
    sunk = Idle(ship=a_ship())
    doubted = Idle(ship=a_ship())
    for _ in range(100):
        assert sunk.update(at(0.0, 0.0, 0.0), dt_s=0.1).idle
        doubted.update(at(0.0, 0.0, 0.0, against=(("baro", 7.6),)), dt_s=0.1)
        mode.update(at(0.0, 0.0, 0.0), dt_s=0.1)
    assert sunk.landed
    assert not doubted.landed
    assert not mode.landed, "light, it is held down"


def climbs(mode: Idle, mps: float, seconds: float) -> Setpoint:
    for _ in range(round(seconds / DT_S)):
        setpoint = mode.update(falling(6.0, -mps), dt_s=DT_S)
    return setpoint


def test_thrust_that_drove_a_ship_up_is_turned_round_until_it_is_named() -> None:
    """Main motors stuck in reverse drove a light ship up, and idle let it rise past 15 m."""
    named = [False]
    mode = Idle(ship=msgspec.structs.replace(a_ship(), astray=lambda: named[0], push_n=lambda: 1.1))
    assert climbs(mode, 1.1, 0.5).idle
    assert climbs(mode, 0.8, 3.9).idle
    assert climbs(mode, 0.8, 0.5).press_n == -1.1  # it slows without thrust, and rises on
    assert mode.update(falling(6.0, 0.3), dt_s=DT_S).idle  # fast enough
    assert mode.update(falling(6.0, 0.1), dt_s=DT_S).press_n == -1.1
    named[0] = True  # the mixer knows now how each output pushes
    after = mode.update(falling(6.0, 0.1), dt_s=DT_S)
    assert (after.press_n, after.idle) == (None, False)
    assert after.velocity_ned_mps[2] > 0.0


def test_thrust_is_not_turned_round_for_long_if_that_is_worse() -> None:
    mode = Idle(ship=a_ship())
    climbs(mode, 1.1, 0.5)
    assert climbs(mode, 0.8, 4.5).press_n is not None
    worse = climbs(mode, 1.2, 0.1)
    assert (worse.press_n, worse.idle) == (None, False)
    useless = Idle(ship=a_ship())
    climbs(useless, 1.1, 0.5)
    assert climbs(useless, 0.8, 4.5).press_n is not None
    assert climbs(useless, 0.8, 5.0).press_n is None  # no slower in 5 s
    blind = Idle(ship=a_ship())
    climbs(blind, 1.1, 0.5)
    assert climbs(blind, 0.8, 4.5).press_n is not None
    unseen = at(0.0, 0.0, 6.0, velocity_ned_mps=(0.0, 0.0, -0.8), height_valid=False)
    assert blind.update(unseen, dt_s=DT_S).press_n is None
    light = Idle(ship=a_ship())  # idle made it no slower: its own lift
    assert climbs(light, 0.8, 6.0).idle


def falling(altitude_m: float, mps: float) -> VehicleState:
    return at(0.0, 0.0, altitude_m, velocity_ned_mps=(0.0, 0.0, mps))


def test_the_last_stage_brakes_a_ship_that_its_weight_would_have_touch_down_hard() -> None:
    """Of a heavy `gtmab` whose side motor runs by itself all slept, and it fell at 0.7 m/s."""
    astray = msgspec.structs.replace(a_ship(), astray=lambda: True)
    mode = Idle(ship=astray)
    assert mode.update(falling(1.5, 0.7), dt_s=DT_S).idle  # awake, what runs by itself drives it
    assert mode.update(falling(0.9, 0.25), dt_s=DT_S).idle
    brakes_so = mode.update(falling(0.9, 0.7), dt_s=DT_S)
    assert not brakes_so.idle
    assert brakes_so.velocity_ned_mps[2] == twin().limits.touchdown_mps
    assert not mode.update(falling(0.8, 0.25), dt_s=DT_S).idle  # on to what it may touch down at
    assert mode.update(falling(0.7, 0.19), dt_s=DT_S).idle
    nameless = Idle(ship=a_ship())  # anything may be wrong: thrust might push it down
    assert nameless.update(falling(0.9, 0.7), dt_s=DT_S).idle


def test_the_last_stage_ends_a_brake_that_makes_it_faster() -> None:
    mode = Idle(ship=msgspec.structs.replace(a_ship(), astray=lambda: True))
    assert not mode.update(falling(0.9, 0.5), dt_s=DT_S).idle
    mode.update(falling(0.8, 0.61), dt_s=DT_S)
    assert mode.update(falling(0.7, 0.61), dt_s=DT_S).idle


@pytest.mark.parametrize("drag_scale", [0.5, 1.0, 2.0])
def test_the_last_stage_pushes_soon_what_rises_faster_than_drag_lets_it(drag_scale: float) -> None:
    """A height that is wrong: the climb began 1.2 m/s fast, and does not end with the thrust."""
    ship = a_ship()
    linear, quadratic = (drag_scale * one for one in brakes(ship.airframe, 2))
    mass_kg = 1.2 * ship.airframe.hull.volume_m3 + ship.airframe.aero.added_mass_kg[2]
    driven, wrong, rises_mps, idle_s = Idle(ship=ship), Idle(ship=ship), 1.2, 0.0
    for _ in range(int(20.0 / DT_S)):
        assert driven.update(at(0.0, 0.0, 5.0, velocity_ned_mps=(0, 0, -rises_mps)), dt_s=DT_S).idle
        rises_mps -= DT_S * rises_mps * (linear + quadratic * rises_mps) / mass_kg
        idle_s += (
            DT_S * wrong.update(at(0.0, 0.0, 5.0, velocity_ned_mps=(0, 0, -1.2)), dt_s=DT_S).idle
        )
    assert idle_s < 10.0
    assert "it is light: pushed down" in wrong.note


@pytest.mark.parametrize(("rises", "held"), [(True, True), (False, False)])
def test_a_ship_that_may_be_light_is_tried_and_not_let_go(rises: bool, held: bool) -> None:
    """Weighed 0.3 g heavy and 0.4 g light, one was disarmed as landed, and rose to 11.7 m."""
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship(heaviness_kg=0.0003))
    state, _ = descend(land, seconds=25.0)
    assert (land.landed, land.held) == (False, False)
    for k in range(410):
        setpoint = land.update(state, dt_s=DT_S)
        if land.done:
            break
        assert setpoint.idle
        state = at(1.0, 1.0, 0.0015 * k if rises else 0.0)
    assert (land.held, land.landed) == (held, False)
    assert ("weighs 0.3 g: light with a probability of 38" in land.note) is not held


def test_a_ship_that_rises_on_trial_is_not_let_go_while_raw_heights_say_that_it_lies_there() -> (
    None
):
    """Ballast lost on trial, it was 0.45 m up before two of three families had seen that."""
    land = Land(at(carried=True), ship=a_ship(), down=True)
    for k in range(500):
        climb = (0.0, 0.0, -0.075 if k < 100 else -0.12)
        rises = at(altitude_m=0.0015 * k, velocity_ned_mps=climb, carried=True)
        assert land.update(rises, dt_s=DT_S).idle
        assert not land.landed
    assert "its height says" in land.doubt


def test_a_barometer_that_is_wrong_by_a_metre_still_lets_it_land() -> None:
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship())
    state, _ = descend(land, seconds=90.0, floor_m=1.0)
    lies(land, state)
    assert land.landed
    assert state.altitude_m == pytest.approx(1.0)


@pytest.mark.parametrize("carried", [True, False])
def test_a_barometer_that_rises_on_the_ground_presses_no_ship_where_others_say_down(
    carried: bool,
) -> None:
    """A heavy ship pushed itself onto the ground with all its thrust, said to be light."""
    land = Land(at(1.0, 1.0, 0.1), ship=a_ship())
    climb = (0.0, 0.0, -0.17)
    rising = [
        at(1.0, 1.0, 0.17 * DT_S * step, velocity_ned_mps=climb, carried=carried)
        for step in range(round(20.0 / DT_S))
    ]
    idle = [land.update(state, dt_s=DT_S).idle for state in rising]
    waits = bool(land.doubt)  # the barometer may be right: a person looks
    assert waits is carried
    assert all(idle[round(4.1 / DT_S) :]) is waits
    assert not land.landed


def test_an_idle_ship_does_not_rise_where_two_families_say_that_the_ground_carries_it() -> None:
    climb = (0.0, 0.0, -0.17)
    for carried in (True, False):
        mode = Idle(ship=a_ship())
        setpoint = Setpoint(idle=True)
        for step in range(round(40.0 / DT_S)):
            climbs = at(altitude_m=0.17 * DT_S * step, velocity_ned_mps=climb, carried=carried)
            setpoint = mode.update(climbs, dt_s=DT_S)
        assert setpoint.idle is carried
        assert mode.landed is carried


def test_a_ship_that_hangs_low_and_sinks_on_trial_is_not_down() -> None:
    """Before, broken outputs held it at 0.8 m, and after 3 s without motors it was let go."""
    land = Land(at(1.0, 1.0, 3.0), ship=a_ship())
    state, _ = descend(land, seconds=90.0, floor_m=0.8)
    sunk_s = 0.0
    while land.update(state, dt_s=DT_S).idle and sunk_s < 8.0:
        sunk_s += DT_S
        sink_mps = 0.0142 * sunk_s  # 5 g on 3.5 kg
        velocity = (0.0, 0.0, sink_mps)
        state = at(1.0, 1.0, 0.8 - 0.5 * sink_mps * sunk_s, velocity_ned_mps=velocity)
    assert not land.done
    assert 4.0 < sunk_s < 7.0


def test_a_light_ship_that_sinks_slowly_is_not_down() -> None:
    """Before, it was held "down" 1.5 m up, with less thrust than brought it there, and rose."""
    land = Land(at(1.0, 1.0, 1.8), ship=a_ship(heaviness_kg=-0.006))
    for step in range(round(40.0 / DT_S)):
        height_m = 1.8 - 0.03 * step * DT_S
        land.update(at(1.0, 1.0, height_m, velocity_ned_mps=(0.0, 0.0, 0.03)), dt_s=DT_S)
        assert land.phase.contact is Contact.AIRBORNE
    for _ in range(round(31.0 / DT_S)):
        land.update(at(1.0, 1.0, height_m), dt_s=DT_S)
    assert land.held


def test_the_noise_of_a_tags_height_does_not_press_a_ship_that_waits_for_a_look() -> None:
    """0.2 m above where it lay, by a tag alone, its motors started beside the person."""
    land = Land(at(), ship=a_ship(weighed=False), down=True)
    health = EstimateHealth(height=QuantityHealth(sigma=0.1))
    for step in range(1000):
        noise_m = 0.25 if step > 500 and step % 40 < 2 else 0.0
        assert land.update(at(altitude_m=noise_m, health=health), dt_s=DT_S).idle
    assert land.doubt
    assert not land.update(at(altitude_m=0.35, health=health), dt_s=DT_S).idle


def test_hanging_in_mid_air_is_not_a_landing() -> None:
    land = Land(at(0.0, 0.0, 4.0), ship=a_ship())
    for _ in range(2000):
        land.update(at(0.0, 0.0, 4.0), dt_s=DT_S)
    assert not land.done


# --- MANUAL and the rest --------------------------------------------------------------------------


def order(value: float, until_s: float, id: str = "a") -> Order:
    return Order(value=value, until_s=until_s, started_s=0.0, command_id=id)


def test_manual_orders_have_each_their_own_time_and_end_in_neutral() -> None:
    manual = Manual(airframe=twin())
    manual.order("left", order(0.5, 1.0))
    manual.order("rudder", order(-0.3, 2.0))
    assert manual.command(0.5).motors == (0.5, 0.0, 0.0)
    assert manual.command(0.5).servos == (0.0, 0.0, -0.3)
    assert manual.command(1.0).motors == (0.0, 0.0, 0.0)
    assert manual.active(1.5)
    assert not manual.active(2.0)
    manual.order("left", order(0.5, 9.0))
    manual.clear()
    assert not manual.active(3.0)


def test_manual_is_silent_since_its_last_order_ended_if_it_took_over_in_flight() -> None:
    manual = Manual(airframe=twin())
    manual.begin(10.0, in_flight=False)
    assert manual.silent_s(99.0) == 0.0
    manual.begin(10.0, in_flight=True)
    assert manual.silent_s(12.0) == 2.0
    manual.order("left", order(0.5, 20.0))
    assert manual.silent_s(15.0) == 0.0
    assert manual.silent_s(22.0) == 2.0


def test_the_blind_descent_wants_nothing_but_down() -> None:
    setpoint = Descend(ship=a_ship()).update(at(0.0, 0.0, 3.0), dt_s=DT_S)
    assert setpoint.position_ned_m == (None, None, None)
    assert setpoint.yaw_rad is None
    assert setpoint.velocity_ned_mps == (0.0, 0.0, LIMITS.touchdown_mps)


@pytest.mark.parametrize("number", sorted(MODES))
def test_every_mode_of_the_table_flies_and_resumes(number: Mode) -> None:
    ship: Ship = a_ship()
    mode = MODES[number](at(1.0, 2.0, 3.0), ship)
    assert mode.number is number
    state, setpoint = perfect(mode, at(1.0, 2.0, 3.0), 2.0)
    mode.resume(state)
    setpoint = mode.update(state, dt_s=DT_S)
    assert setpoint.actuators is None
    assert 0.0 <= mode.fraction <= 1.0
    assert isinstance(mode.result, dict)


# --- STABILIZE, ALTHOLD --------------------------------------------------------------------------


def test_stabilize_pushes_as_asked_and_keeps_the_heading_it_was_turned_to() -> None:
    mode = Sticks(at(0.0, 0.0, 3.0), ship=a_ship(), number=Mode.STABILIZE)
    mode.push(Stick(forward=0.5, right=-0.2, up=0.1, turn=0.5, until_s=1.0))
    state, setpoint = perfect(mode, at(0.0, 0.0, 3.0), 0.98)
    assert setpoint.thrust_body == (0.5, -0.2, -0.1)
    assert setpoint.position_ned_m == (None, None, None)
    turned = setpoint.yaw_rad
    assert turned == pytest.approx(0.5 * LIMITS.yaw_rate_radps, abs=0.02)
    _, setpoint = perfect(mode, state, 2.0)
    assert setpoint.thrust_body == (0.0, 0.0, -0.0)  # let go
    assert setpoint.yaw_rad == pytest.approx(turned, abs=0.01)
    assert setpoint.yaw_rate_radps == 0.0
    mode.push(Stick(forward=0.5, until_s=99.0))
    mode.resume(state)  # something else flew meanwhile
    assert mode.update(state, dt_s=DT_S).thrust_body == (0.0, 0.0, -0.0)


def test_althold_climbs_as_asked_and_keeps_the_height_it_came_to() -> None:
    mode = Sticks(at(0.0, 0.0, 3.0), ship=a_ship(), number=Mode.ALTHOLD)
    mode.push(Stick(forward=1.0, up=1.0, until_s=2.0))
    state, setpoint = perfect(mode, at(0.0, 0.0, 3.0), 1.98)
    assert setpoint.thrust_body == (1.0, 0.0, None)
    assert setpoint.velocity_ned_mps == (0.0, 0.0, -LIMITS.climb_mps)
    state, setpoint = perfect(mode, state, 5.0)
    assert setpoint.position_ned_m[2] == pytest.approx(-3.0 - 2.0 * LIMITS.climb_mps, abs=0.05)
    assert setpoint.velocity_ned_mps == (0.0, 0.0, -0.0)
    mode.push(Stick(up=-1.0, until_s=1e9))
    _, setpoint = perfect(mode, state, 60.0)
    assert setpoint.position_ned_m[2] == 0.0  # never below the ground


def test_a_heading_is_never_asked_for_far_ahead_of_the_nose() -> None:
    mode = Sticks(at(0.0, 0.0, 3.0), ship=a_ship(), number=Mode.STABILIZE)
    mode.push(Stick(turn=1.0, until_s=1e9))
    for _ in range(1000):
        setpoint = mode.update(at(0.0, 0.0, 3.0), dt_s=DT_S)  # a ship that does not turn
    assert setpoint.yaw_rad == pytest.approx(0.5)


def test_what_follows_keeps_the_heading_that_was_asked_for() -> None:
    """Not the one that the ship has at one moment, which is a little beside it."""
    pilot = Pilot(ship=a_ship())
    goto = Loiter(at(0.0, 0.0, 3.0), ship=pilot.ship, yaw_rad=1.0)
    pilot.enter(goto, reason="")
    beside = at(0.0, 0.0, 3.0, attitude=from_euler(0.0, 0.0, 1.1))
    pilot.update(beside, dt_s=0.01)
    assert pilot.heading_rad(beside) == 1.0
    turning = at(0.0, 0.0, 3.0, attitude=from_euler(0.0, 0.0, 0.5))
    assert pilot.heading_rad(turning) == pytest.approx(0.5)
    hold = Hold(beside, yaw_rad=pilot.heading_rad(beside))
    assert hold.update(beside, dt_s=0.01).yaw_rad == 1.0


def test_a_heading_that_was_asked_for_is_waited_for_but_not_for_ever() -> None:
    there = at(0.0, 0.0, 3.0)
    mode = Loiter(there, ship=a_ship(), yaw_rad=1.0)
    for _ in range(100):
        mode.update(there, dt_s=0.1)
    assert mode.fraction < 1.0
    mode.update(at(0.0, 0.0, 3.0, attitude=from_euler(0.0, 0.0, 0.9)), dt_s=0.1)
    assert mode.done
    never = Loiter(there, ship=a_ship(), yaw_rad=1.0)
    for _ in range(400):  # 15 s of turning before the leg, 20 s after it
        never.update(there, dt_s=0.1)
    assert never.done


@pytest.mark.parametrize(("heaviness_kg", "driven"), [(0.005, True), (0.017, True), (0.04, False)])
def test_a_ship_that_sinks_faster_than_its_weight_explains_is_driven(
    heaviness_kg: float, driven: bool
) -> None:
    """Of 17 g, its motors once drove it into the ground at 0.68 m/s: asked for 0.3, it sinks at
    0.34 by itself. One of 40 g sinks as fast as that, and its motors are what slows it."""
    check = DrivenDown(ship=a_ship(heaviness_kg=heaviness_kg))
    sinking = [
        at(0.0, 0.0, 2.0, velocity_ned_mps=(0.0, 0.0, mps)) for mps in (0.4, 0.47, 0.4, 0.3, 0.4)
    ]
    said = [check.update(state, 0.3, 0.02) for state in sinking]
    assert said == [False, driven, driven, False, driven]  # sooner, the second time


def test_a_ship_that_idle_makes_no_slower_is_not_driven_but_heavy() -> None:
    """Motors that have stopped drive nothing: idle to the ground, it touched down at 0.68 m/s."""
    check = DrivenDown(ship=a_ship())
    assert all(check.update(falling(2.0, 0.5), 0.3, 0.1) for _ in range(8))
    assert not [check.update(falling(1.6, 0.55), 0.3, 0.1) for _ in range(4)][-1]
    check.update(falling(1.0, 0.2), 0.3, 0.1)  # slow again
    slows = [check.update(falling(1.0, 0.6 - 0.01 * k), 0.3, 0.1) for k in range(20)]
    assert all(slows)


def test_a_ship_that_lost_its_ballast_is_not_driven_but_pushed() -> None:
    """It is still taken for heavy, and idling in turns had a good output named as broken."""
    ship = msgspec.structs.replace(a_ship(), weight=lambda: weight(felt_kg=-0.02))
    sinking = at(0.0, 0.0, 2.0, velocity_ned_mps=(0.0, 0.0, 0.5))
    assert not DrivenDown(ship=ship).update(sinking, 0.3, 0.02)
    astray = msgspec.structs.replace(ship, astray=lambda: True)  # what goes astray drives any ship
    assert DrivenDown(ship=astray).update(sinking, 0.3, 0.02)
    assert DrivenDown(ship=a_ship(heaviness_kg=0.005)).update(sinking, 0.3, 0.02)
    # Balanced, it sank with its motors idle, and a stuck one was not found before it was awake.
    assert not DrivenDown(ship=a_ship(heaviness_kg=0.0003)).update(sinking, 0.3, 0.02)


class Unsaid(FlightMode):
    """A mode of somebody who read the recipe and said nothing of what it needs."""

    number = Mode.LOITER


def test_a_mode_that_does_not_say_what_it_needs_is_refused_without_a_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MODES, Mode.LOITER, lambda state, ship: Unsaid())
    ship = Bench()
    assert ship.tell("arm").state is OutcomeState.DONE
    ship.lift(3.0)
    ship.sensors.cut.add("tag")
    ship.run(12.0)
    outcome = ship.tell("mode", name="LOITER")
    assert outcome.state is OutcomeState.REFUSED
    assert "position lost for" in outcome.reason


@pytest.mark.parametrize(
    ("action", "modes"),
    [
        (Action.HOLD, {Hold, ReturnToPad, Land, Descend, Idle}),
        (Action.RETURN, {ReturnToPad, Land, Descend, Idle}),
        (Action.LAND, {Land, Descend, Idle}),
        (Action.DESCEND, {Descend, Idle}),
        (Action.IDLE, {Idle}),
    ],
)
def test_a_mode_says_which_actions_of_the_failsafe_it_satisfies(
    action: Action, modes: set[type[FlightMode]]
) -> None:
    every: set[type[FlightMode]] = {
        Auto,
        Descend,
        Hold,
        Idle,
        Land,
        Loiter,
        Manual,
        ReturnToPad,
        Sticks,
        Velocity,
    }
    assert {mode for mode in every if mode.remedy >= action} == modes
    assert {mode for mode in every if mode.lifts} == {Loiter, ReturnToPad}
