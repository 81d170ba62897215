from math import cos, pi, sin

import pytest
from msgspec import structs

from blimp.constants import AIR_DENSITY_KGM3
from blimp.control.bounds import FELT, lifts
from blimp.control.controller import Controller
from blimp.control.swing import SwingDamper
from blimp.control.wind import WindObserver
from blimp.rotation import from_euler, wrap_pi
from blimp.types import EstimateHealth, QuantityHealth, Setpoint, VehicleState, Wrench
from tests.control.parts import GRAVITY_MPS2, at, gtmab, twin

SHIP = twin()
LIMIT_N = (0.9, 0.3, 0.9)
YAW_LIMIT_NM = 0.8
FREE = (0, 0, 0, 0, 0, 0)
DT_S = 0.01


def controller() -> Controller:
    return Controller(airframe=SHIP, force_limit_n=LIMIT_N, yaw_limit_nm=YAW_LIMIT_NM)


def ask(
    control: Controller,
    state: VehicleState,
    setpoint: Setpoint,
    *,
    saturated: tuple[int, int, int, int, int, int] = FREE,
    achieved: Wrench | None = None,
) -> Wrench:
    return control.update(
        state, setpoint, dt_s=DT_S, achieved=achieved or Wrench(), saturated=saturated
    )


def test_at_its_place_a_ship_asks_for_its_heaviness_alone() -> None:
    wrench = ask(controller(), at(0.0, 0.0, 3.0), Setpoint(position_ned_m=(0.0, 0.0, -3.0)))
    heaviness_n = SHIP.mass.heaviness_kg * GRAVITY_MPS2
    assert wrench.force_body_n == pytest.approx((0.0, 0.0, -heaviness_n), abs=1e-9)
    assert wrench.torque_body_nm == (0.0, 0.0, 0.0)


def test_a_propeller_weaker_in_reverse_lifts_by_all_that_it_has() -> None:
    control = Controller(
        airframe=SHIP, force_limit_n=LIMIT_N, yaw_limit_nm=YAW_LIMIT_NM, heave_n=(0.9, 1.6)
    )
    up = ask(control, at(0.0, 0.0, 0.0), Setpoint(velocity_ned_mps=(0.0, 0.0, -9.0)))
    down = ask(control, at(0.0, 0.0, 9.0), Setpoint(velocity_ned_mps=(0.0, 0.0, 9.0)))
    assert (up.force_body_n[2], down.force_body_n[2]) == (-1.6, 0.9)


def test_a_push_up_climbs_no_faster_than_the_bound_and_teaches_no_weight_below_it() -> None:
    push = Setpoint(thrust_body=(0.0, 0.0, -0.2), climb_mps=0.1)
    slow, fast = controller(), controller()
    for _ in range(100):
        free = ask(slow, at(0.0, 0.0, 3.0), push)
        bound = ask(fast, at(0.0, 0.0, 3.0, velocity_ned_mps=(0.0, 0.0, -0.5)), push)
    assert free == ask(controller(), at(0.0, 0.0, 3.0), structs.replace(push, climb_mps=None))
    assert bound.force_body_n[2] > 0.5
    pushes = structs.replace(push, climb_mps=None)
    assert ask(fast, at(0.0, 0.0, 3.0), pushes) == free  # braking is no weight
    for _ in range(100):
        ask(fast, at(0.0, 0.0, 3.0), structs.replace(push, climb_mps=-0.1))
    assert ask(fast, at(0.0, 0.0, 3.0), pushes).force_body_n[2] > free.force_body_n[2] + 0.01
    climbing = Setpoint(velocity_ned_mps=(0.0, 0.0, -0.4))
    held = ask(controller(), at(0.0, 0.0, 3.0), structs.replace(climbing, climb_mps=0.0))
    assert held.force_body_n[2] > ask(controller(), at(0.0, 0.0, 3.0), climbing).force_body_n[2]


def test_a_place_to_the_north_is_ahead_or_to_the_left_by_heading() -> None:
    setpoint = Setpoint(position_ned_m=(0.3, 0.0, -3.0))
    ahead = ask(controller(), at(0.0, 0.0, 3.0), setpoint)
    assert ahead.force_body_n[0] > 0.05
    assert ahead.force_body_n[1] == pytest.approx(0.0, abs=1e-9)
    east = at(0.0, 0.0, 3.0, attitude=from_euler(0.0, 0.0, pi / 2))
    left = ask(controller(), east, setpoint)
    assert left.force_body_n[1] < -0.05
    assert left.force_body_n[0] == pytest.approx(0.0, abs=1e-6)


def test_a_pitched_ship_turns_its_wish_into_its_own_axes() -> None:
    pitched = at(0.0, 0.0, 3.0, attitude=from_euler(0.0, 0.3, 0.0))
    wrench = ask(controller(), pitched, Setpoint(position_ned_m=(0.0, 0.0, -3.0)))
    lift = SHIP.mass.heaviness_kg * GRAVITY_MPS2
    assert wrench.force_body_n == pytest.approx((lift * 0.29552, 0.0, -lift * 0.95534), abs=1e-4)


def test_acceleration_is_paid_for_with_the_added_mass() -> None:
    ahead = Setpoint(acceleration_ned_mps2=(0.05, 0.0, 0.0))
    wrench = ask(controller(), at(0.0, 0.0, 3.0), ahead)
    mass_kg = 1.225 * SHIP.hull.volume_m3 + SHIP.mass.heaviness_kg + SHIP.aero.added_mass_kg[0]
    assert wrench.force_body_n[0] == pytest.approx(0.05 * mass_kg, rel=1e-3)


@pytest.mark.parametrize("yaw_deg", [170.0, -170.0, 5.0])
@pytest.mark.parametrize("wish_deg", [-175.0, 179.0, -5.0])
def test_yaw_goes_the_short_way_round(yaw_deg: float, wish_deg: float) -> None:
    """An old accident: a heading error over the seam turned the ship all the way round."""
    yaw, wish = yaw_deg * pi / 180.0, wish_deg * pi / 180.0
    state = at(0.0, 0.0, 3.0, attitude=from_euler(0.0, 0.0, yaw))
    wrench = ask(controller(), state, Setpoint(yaw_rad=wish))
    assert wrench.torque_body_nm[2] * wrap_pi(wish - yaw) > 0.0


def test_demands_are_bounded_however_far_the_place() -> None:
    wrench = ask(
        controller(),
        at(0.0, 0.0, 3.0),
        Setpoint(position_ned_m=(1e4, -1e4, 1e4), yaw_rad=pi),
    )
    fx, fy, fz = wrench.force_body_n
    assert abs(fx) <= LIMIT_N[0]
    assert abs(fy) <= LIMIT_N[1]
    assert abs(fz) <= LIMIT_N[2]
    assert abs(wrench.torque_body_nm[2]) <= YAW_LIMIT_NM
    control, limits = controller(), SHIP.limits
    for altitude_m, asked_mps in ((99.0, limits.descent_mps), (-99.0, -limits.climb_mps)):
        ask(control, at(altitude_m=altitude_m), Setpoint(position_ned_m=(None, None, 0.0)))
        assert control.asked_mps == pytest.approx(1.3 * asked_mps)
    turning = at(altitude_m=3.0, rates_body_radps=(0.0, 0.0, limits.yaw_rate_radps))
    torque_nm = ask(controller(), turning, Setpoint(yaw_rate_radps=99.0)).torque_body_nm[2]
    assert torque_nm < 0.2 * YAW_LIMIT_NM, "it turns as fast as it may: drag alone"


@pytest.mark.parametrize("axis", [0, 1])
def test_a_speed_that_nobody_asked_for_is_braked_and_wind_is_leant_against(axis: int) -> None:
    moving = [0.0, 0.0, 0.0]
    moving[axis] = 0.3
    brake = ask(controller(), at(altitude_m=3.0, velocity_ned_mps=tuple(moving)), Setpoint())
    assert brake.force_body_n[axis] < -0.05
    assert brake.force_body_n[1 - axis] == pytest.approx(0.0, abs=1e-6)
    control = controller()
    control.wind.north_mps, control.wind.east_mps = moving[:2]
    lean = ask(control, at(altitude_m=3.0), Setpoint())
    assert lean.force_body_n[axis] == pytest.approx(-control.wind.drag(axis, 0.3), rel=0.05)


def test_the_speed_ahead_is_that_along_the_nose() -> None:
    east = from_euler(0.0, 0.0, pi / 2)
    state = at(attitude=east, velocity_ned_mps=(0.1, 0.4, 0.0))
    assert controller().forward_mps(state) == pytest.approx(0.4)
    assert controller().forward_mps(structs.replace(state, position_valid=False)) == 0.0


def test_a_stuck_ship_does_not_wind_up() -> None:
    """Held for a minute against saturated actuators, the integral must not have grown."""
    control = controller()
    setpoint = Setpoint(position_ned_m=(0.0, 0.0, -5.0))
    for _ in range(6000):
        ask(control, at(0.0, 0.0, 3.0), setpoint, saturated=(0, 0, -1, 0, 0, 0))
    level = ask(control, at(0.0, 0.0, 3.0), Setpoint(position_ned_m=(0.0, 0.0, -3.0)))
    heaviness_n = SHIP.mass.heaviness_kg * GRAVITY_MPS2
    assert level.force_body_n[2] == pytest.approx(-heaviness_n, abs=0.01)


def test_a_ship_as_light_as_its_thrust_holds_down_is_held_at_its_height() -> None:
    """It stood a quarter of a metre too high, and gave up its place for its height."""
    control, lift_n = controller(), 0.9 * LIMIT_N[2]
    mass_kg = AIR_DENSITY_KGM3 * SHIP.hull.volume_m3 + SHIP.aero.added_mass_kg[2]
    down_m, down_mps, wrench = -3.0, 0.0, Wrench()
    for _ in range(12_000):
        state = at(0.0, 0.0, -down_m, velocity_ned_mps=(0.0, 0.0, down_mps))
        setpoint = Setpoint(position_ned_m=(0.0, 0.0, -3.0))
        wrench = ask(control, state, setpoint, achieved=wrench)
        drag_n = control._drag(2, down_mps)
        down_mps += DT_S * (wrench.force_body_n[2] - lift_n - drag_n) / mass_kg
        down_m += DT_S * down_mps
    assert down_m == pytest.approx(-3.0, abs=0.02)
    assert abs(down_mps) < 0.01


def test_without_a_position_the_horizontal_force_fades() -> None:
    control = controller()
    target = at(0.0, 0.0, 3.0)
    for _ in range(1000):
        ask(control, target, Setpoint(velocity_ned_mps=(0.3, 0.0, 0.0)))
    blind = at(0.0, 0.0, 3.0, position_valid=False)
    setpoint = Setpoint(position_ned_m=(5.0, 5.0, -3.0))
    first = ask(control, blind, setpoint).force_body_n[0]
    for _ in range(4000):
        last = ask(control, blind, setpoint).force_body_n[0]
    assert first > 0.05
    assert abs(last) < 0.1 * first


def test_without_a_heading_it_neither_brakes_nor_leans_against_the_wind() -> None:
    control = controller()
    moving = structs.replace(at(0.0, 0.0, 3.0), velocity_ned_mps=(0.5, 0.0, 0.0))
    setpoint = Setpoint(position_ned_m=(0.0, 0.0, -3.0))
    ask(control, moving, setpoint)
    lost = structs.replace(moving, position_valid=False)
    assert ask(control, lost, setpoint).force_body_n[0] < -0.01
    lost = structs.replace(lost, heading_valid=False)
    assert ask(control, lost, setpoint).force_body_n[:2] == pytest.approx((0.0, 0.0), abs=1e-9)


def test_without_an_attitude_only_the_vertical_is_driven() -> None:
    lost = at(1.0, 1.0, 3.0, attitude=from_euler(0.5, 0.5, 2.0), attitude_valid=False)
    wrench = ask(controller(), lost, Setpoint(position_ned_m=(0.0, 0.0, -1.0), yaw_rad=0.0))
    assert wrench.force_body_n[:2] == (0.0, 0.0)
    assert wrench.force_body_n[2] > 0.0
    assert wrench.torque_body_nm == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("weight_kg", [0.017, -0.006])
def test_without_a_height_the_push_is_what_drag_leaves_of_the_weight(weight_kg: float) -> None:
    """It was what the last climb had taken: a ship 17 g heavy was pushed on to 0.51 m/s, one that
    was light and had not been weighed rose for good."""
    blind = at(0.0, 0.0, 3.0, height_valid=False)
    sink = Setpoint(velocity_ned_mps=(0.0, 0.0, 0.2))
    drag_n = 0.2 * (SHIP.aero.linear_drag[2] + 0.2 * SHIP.aero.quadratic_drag[2])
    rough_n = GRAVITY_MPS2 * FELT * AIR_DENSITY_KGM3 * SHIP.hull.volume_m3
    control = controller()
    unweighed_n = ask(control, blind, sink).force_body_n[2]
    file_n = GRAVITY_MPS2 * SHIP.mass.heaviness_kg
    assert unweighed_n == pytest.approx(drag_n + rough_n - file_n, abs=1e-6)
    held = Wrench(force_body_n=(0.0, 0.0, -GRAVITY_MPS2 * weight_kg))
    level = Setpoint(position_ned_m=(0.0, 0.0, -3.0))
    for _ in range(3000):
        ask(control, at(0.0, 0.0, 3.0), level, achieved=held)
    weighed_n = ask(control, blind, sink).force_body_n[2]
    assert weighed_n == pytest.approx(drag_n - GRAVITY_MPS2 * weight_kg, abs=1e-3)


def test_a_ship_that_does_not_sink_as_asked_spends_nothing_on_place_and_heading() -> None:
    off_course = at(0.0, 0.0, 3.0, rates_body_radps=(0.0, 0.0, 0.2))
    setpoint = Setpoint(position_ned_m=(5.0, 5.0, 0.0), yaw_rad=1.0)
    free = ask(controller(), off_course, setpoint)
    pressed = controller().update(
        off_course, setpoint, dt_s=DT_S, achieved=Wrench(), saturated=FREE, height_first=True
    )
    assert min(abs(free.force_body_n[0]), abs(free.torque_body_nm[2])) > 0.01
    assert pressed.force_body_n == (0.0, 0.0, free.force_body_n[2])
    assert 0.0 < pressed.torque_body_nm[2] < 0.4 * YAW_LIMIT_NM  # whatever the gyro says


def test_a_ship_that_circles_to_sink_does_not_spin_up() -> None:
    """Before, the torque was open: a round hull with little drag turned faster than its gyro reads.

    Its attitude was lost on a healthy flight, 3.5 % light.
    """
    ship = controller()
    turning = at(0.0, 0.0, 5.0, rates_body_radps=(0.0, 0.0, 2.0 * SHIP.limits.yaw_rate_radps))
    setpoint = Setpoint(position_ned_m=(0.0, 0.0, -5.0), yaw_rad=0.0)
    wrench = ship.update(
        turning, setpoint, dt_s=DT_S, achieved=Wrench(), saturated=FREE, height_first=True
    )
    assert wrench.torque_body_nm[2] < 0.0


def test_a_first_weighing_holds_nothing_of_what_the_airframe_says() -> None:
    """It counted as weighed while half of it still was: 6 g light, believed heavy, let go."""
    control = controller()
    light = Wrench(force_body_n=(0.0, 0.0, 0.006 * GRAVITY_MPS2))
    level = Setpoint(position_ned_m=(0.0, 0.0, -3.0))
    while not control.weight.weighed:
        ask(control, at(0.0, 0.0, 3.0), level, achieved=light)
    assert control.weight.mean_kg == pytest.approx(-0.006, abs=1e-4)
    on_ground = controller()
    for _ in range(2000):
        ask(on_ground, at(0.0, 0.0, 3.0, on_ground=True), level, achieved=light)
    assert not on_ground.weight.weighed, "the ground carries it"


def test_a_ship_may_be_let_go_from_a_thousandth_of_its_displacement_on() -> None:
    """A third of that is the error of what level flight shows."""
    sure_n = 0.001 * AIR_DENSITY_KGM3 * SHIP.hull.volume_m3 * GRAVITY_MPS2
    level = Setpoint(position_ned_m=(0.0, 0.0, -3.0))
    for share, may in ((0.9, False), (1.5, True)):
        control = controller()
        given = Wrench(force_body_n=(0.0, 0.0, -share * sure_n))
        while not control.weight.weighed:
            ask(control, at(0.0, 0.0, 3.0), level, achieved=given)
        assert control.weight.may_let_go is may
        assert control.weight.evidence == "weighed in level flight"


def test_what_it_felt_far_off_its_weight_makes_that_uncertain() -> None:
    """Ballast that falls shows within seconds, before level flight has shown it."""
    control, light = controller(), Wrench(force_body_n=(0.0, 0.0, 0.04 * GRAVITY_MPS2))
    assert control.weight.evidence == "not weighed yet"
    assert 0.3 < control.weight.p_light() < 0.7
    heavy = Wrench(force_body_n=(0.0, 0.0, -0.005 * GRAVITY_MPS2))
    level = Setpoint(position_ned_m=(0.0, 0.0, -3.0))
    for _ in range(2000):
        ask(control, at(0.0, 0.0, 3.0), level, achieved=heavy)
    assert control.weight.p_light() < 1e-3
    down = Setpoint(velocity_ned_mps=(0.0, 0.0, 0.3))
    for _ in range(200):
        ask(control, at(0.0, 0.0, 3.0), down, achieved=light)
    assert control.weight.mean_kg == pytest.approx(0.005, abs=1e-4), "that was no level flight"
    assert control.weight.p_light() > 0.1


def test_a_fault_that_is_named_takes_back_what_was_weighed_under_it() -> None:
    control = controller()
    level, given = Setpoint(position_ned_m=(0.0, 0.0, -3.0)), -0.01 * GRAVITY_MPS2
    for down_n, seconds in ((given, 30.0), (3.0 * given, 4.0)):
        for _ in range(round(seconds / DT_S)):
            wrench = Wrench(force_body_n=(0.0, 0.0, down_n))
            ask(control, at(0.0, 0.0, 3.0), level, achieved=wrench)
    assert control.weight.level_kg > 0.015
    control.correct()
    assert control.weight.level_kg == pytest.approx(0.01, abs=2e-4)
    for _ in range(round(10.0 / DT_S)):  # a broken output gives what nobody knows
        control.update(
            at(0.0, 0.0, 3.0), level, dt_s=DT_S, achieved=Wrench(), saturated=FREE, weighs=False
        )
    assert control.weight.level_kg == pytest.approx(0.01, abs=2e-4)


def test_a_fault_of_an_output_that_does_not_lift_leaves_the_weight_as_felt() -> None:
    """A ship 5 g heavy whose side motor was named in its take-off fell at 0.68 m/s."""
    control = controller()
    level = Setpoint(position_ned_m=(0.0, 0.0, -3.0))
    sinks = at(0.0, 0.0, 3.0, velocity_ned_mps=(0.0, 0.0, 0.1))
    for _ in range(100):
        before_n = ask(control, sinks, level).force_body_n[2]
    control.correct(lifts=False)
    assert ask(control, sinks, level).force_body_n[2] == pytest.approx(before_n, abs=0.01)
    control.correct(lifts=True)
    assert ask(control, sinks, level).force_body_n[2] > before_n + 0.05


def test_the_bound_on_sinking_does_not_wind_the_integral_up() -> None:
    """A heavy ship that climbs is asked to sink: its weight, learnt on the way up, was lost."""
    control = controller()
    climbs = at(0.0, 0.0, 2.0, velocity_ned_mps=(0.0, 0.0, -0.3))
    level = at(0.0, 0.0, 2.0, velocity_ned_mps=(0.0, 0.0, 0.25))
    sink = Setpoint(velocity_ned_mps=(0.0, 0.0, 0.25), sink_mps=0.3)
    before_n = ask(control, level, sink).force_body_n[2]
    for _ in range(300):
        ask(control, climbs, sink)
    assert ask(control, level, sink).force_body_n[2] == pytest.approx(before_n, abs=0.01)


@pytest.mark.parametrize(
    ("ship", "names", "lifting"),
    [
        ("gtmab", ("left", "right"), False),
        ("gtmab", ("left", "lift"), True),
        ("twin", ("tail",), False),
        ("twin", ("left",), True),  # turned by a servo
        ("twin", ("tilt",), True),
    ],
)
def test_which_outputs_lift(ship: str, names: tuple[str, ...], lifting: bool) -> None:
    assert lifts(gtmab() if ship == "gtmab" else SHIP, names) is lifting


def test_thrust_and_weight_sink_no_faster_than_asked_whatever_the_estimate_says() -> None:
    """Rangers stuck at 1 m, say: the ship that seems to hang is pushed into the ground."""
    control = controller()
    hangs = at(0.0, 0.0, 1.0)
    sink = Setpoint(velocity_ned_mps=(0.0, 0.0, 0.25))
    slow = structs.replace(sink, sink_mps=0.3)
    free = [ask(control, hangs, sink).force_body_n[2] for _ in range(100)][-1]
    control = controller()
    bound = [ask(control, hangs, slow).force_body_n[2] for _ in range(100)][-1]
    drag_n = 0.3 * (SHIP.aero.linear_drag[2] + 0.3 * SHIP.aero.quadratic_drag[2])
    least_n = drag_n - SHIP.mass.heaviness_kg * GRAVITY_MPS2
    assert free > 2.0 * least_n
    assert bound < 2.0 * least_n


def test_the_swing_is_not_taken_for_speed() -> None:
    """Rolling about the common centre moves the hull, not the ship: no sideways force."""
    mass_kg = 1.225 * SHIP.hull.volume_m3 + SHIP.mass.heaviness_kg
    depth_m = SHIP.mass.center_of_gravity_m[2] * mass_kg / (mass_kg + SHIP.aero.added_mass_kg[1])
    roll_rate = 0.5
    swinging = at(
        0.0,
        0.0,
        3.0,
        rates_body_radps=(roll_rate, 0.0, 0.0),
        velocity_ned_mps=(0.0, roll_rate * depth_m, 0.0),
    )
    wrench = ask(controller(), swinging, Setpoint())
    assert wrench.force_body_n[1] == pytest.approx(0.0, abs=1e-6)


# --- wind --------------------------------------------------------------------------------


@pytest.mark.parametrize("yaw", [0.0, 1.0, -2.5])
def test_the_wind_is_found_from_the_force_it_takes_to_hold_against_it(yaw: float) -> None:
    true_north, true_east = 0.2, -0.25
    c, s = cos(yaw), sin(yaw)
    observer = WindObserver(aero=SHIP.aero, mass_kg=(2.16, 3.48), limit_mps=0.7)
    wind = (c * true_north + s * true_east, c * true_east - s * true_north)
    force = (observer.drag(0, -wind[0]), observer.drag(1, -wind[1]))
    for _ in range(12_000):
        observer.update(
            force_n=force,
            velocity_mps=(0.0, 0.0),
            heading=(c, s),
            yaw_rate_radps=0.0,
            dt_s=DT_S,
        )
    assert observer.north_mps == pytest.approx(true_north, abs=0.01)
    assert observer.east_mps == pytest.approx(true_east, abs=0.01)


def test_the_wind_estimate_is_bounded_and_rests_while_turning() -> None:
    observer = WindObserver(aero=SHIP.aero, mass_kg=(2.16, 3.48), limit_mps=0.7)

    def push(yaw_rate_radps: float) -> None:
        observer.update(
            force_n=(5.0, 5.0),
            velocity_mps=(0.0, 0.0),
            heading=(1.0, 0.0),
            yaw_rate_radps=yaw_rate_radps,
            dt_s=0.1,
        )

    push(0.4)
    assert (observer.north_mps, observer.east_mps) == (0.0, 0.0)
    for _ in range(1000):
        push(0.0)
    assert observer.north_mps**2 + observer.east_mps**2 <= 0.49 + 1e-9
    observer.reset()
    assert (observer.north_mps, observer.east_mps) == (0.0, 0.0)


def test_wind_is_unknown_before_flight_has_shown_it_and_it_ages_without_a_position() -> None:
    control, hold = controller(), Setpoint(position_ned_m=(0.0, 0.0, -3.0))
    pushed = Wrench(force_body_n=(0.1, 0.0, 0.0))
    for step in range(900):
        state = structs.replace(at(0.0, 0.0, 3.0), t_s=step * DT_S)
        assert control.wind_ned_mps() is None or step > 590
        ask(control, state, hold, achieved=pushed)
    wind = control.wind_ned_mps()
    assert wind is not None
    assert wind[0] < -0.05, "it takes thrust ahead to stay"
    assert control.wind_age_s(9.0) == pytest.approx(0.01, abs=1e-6)
    blind = structs.replace(state, t_s=12.0, position_valid=False)
    ask(control, blind, hold, achieved=pushed)
    assert control.wind_age_s(12.0) == pytest.approx(3.01, abs=1e-6)
    control.reset()
    assert (control.wind_ned_mps(), control.wind_age_s(12.0)) == (None, None)


def damped(swing_damping: float = 0.15) -> SwingDamper:
    ship = gtmab()
    gains = structs.replace(ship.gains, swing_damping=swing_damping)
    return SwingDamper(
        airframe=structs.replace(ship, gains=gains),
        ship_kg=0.1249,
        mass_kg=(0.1715, 0.1715),
        force_limit_n=(0.035, 0.035),
    )


def test_thrust_opposes_the_way_that_the_thrusters_swing() -> None:
    # Below the centre of the swing: nose up swings them ahead, and right side down to the left.
    fx, fy = damped().update(0.05, 0.05, DT_S)
    assert fx == pytest.approx(-0.0057, rel=0.05)  # 2 z w J / l
    assert fy == pytest.approx(-fx)
    assert damped().update(9.0, -9.0, DT_S) == (-0.0175, -0.0175)  # half of what there is
    assert damped(0.0).update(9.0, -9.0, DT_S) == (0.0, 0.0)


def test_a_rate_that_lasts_is_no_swing() -> None:
    damper = damped()
    for _ in range(2000):
        fx, fy = damper.update(0.05, -0.05, DT_S)
    assert (fx, fy) == pytest.approx((0.0, 0.0), abs=1e-5)


def test_a_swing_is_damped_in_the_air_and_not_against_the_sticks() -> None:
    def ahead_n(state: VehicleState, setpoint: Setpoint) -> float:
        control = Controller(airframe=gtmab(), force_limit_n=(0.035, 0.035, 0.2), yaw_limit_nm=1e-3)
        return ask(control, state, setpoint).force_body_n[0]

    rates = (0.0, 0.05, 0.0)
    up, down = (at(0.0, 0.0, 2.0, rates_body_radps=rates, on_ground=on) for on in (False, True))
    place = Setpoint(position_ned_m=(0.0, 0.0, -2.0))
    assert ahead_n(up, place) < ahead_n(down, place) - 0.004
    sticks = Setpoint(thrust_body=(0.0, 0.0, 0.0))
    assert ahead_n(up, sticks) == 0.0


def sinking(age_s: float, *, attitude_valid: bool = False) -> VehicleState:
    """Said to hang where it was when its sensors fell silent: the estimate stands still."""
    health = EstimateHealth(height=QuantityHealth(age_s=age_s))
    return at(0.0, 0.0, 2.0, health=health, attitude_valid=attitude_valid)


def test_a_height_that_nothing_measures_weighs_nothing_and_is_not_flown_by() -> None:
    """With the bus stuck a GT-MAB felt 3 g lighter within 2 s, and hit the ground at 0.7 m/s."""
    control, down = controller(), Setpoint(velocity_ned_mps=(0.0, 0.0, 0.2))
    weight_kg = SHIP.mass.heaviness_kg
    pushed = Wrench(force_body_n=(0.0, 0.0, 0.3))
    for k in range(200):
        wrench = ask(control, sinking(0.5 + 0.01 * k), down, achieved=pushed)
    assert control.weight.felt_kg == weight_kg
    drag_n = 0.0955 * 0.2 + 1.164 * 0.2**2
    least_n = GRAVITY_MPS2 * (weight_kg - FELT * AIR_DENSITY_KGM3 * SHIP.hull.volume_m3)
    assert wrench.force_body_n[2] == pytest.approx(drag_n - least_n, abs=1e-3)
    for k in range(200):  # the accelerometer carries the climb on; it weighs nothing all the same
        wrench = ask(control, sinking(0.5 + 0.01 * k, attitude_valid=True), down, achieved=pushed)
    assert control.weight.felt_kg == weight_kg
    assert wrench.force_body_n[2] > 2.0 * (drag_n - least_n)  # a loop, with what it does not see


def test_what_is_felt_in_the_moment_the_height_fails_is_not_the_ships_weight() -> None:
    """An accelerometer that fails with it felt 86 g light: pushed so, a twin hit the ground."""
    control, level = controller(), Setpoint(position_ned_m=(0.0, 0.0, -2.0))
    for _ in range(1500):  # weighs itself
        ask(control, at(0.0, 0.0, 2.0), level)
    assert control.weight.mean_kg == pytest.approx(0.0, abs=1e-4)
    for k in range(50):  # 1 m/s² up, by a wrong accelerometer
        ask(control, at(0.0, 0.0, 2.0, velocity_ned_mps=(0.0, 0.0, -0.01 * k)), level)
    assert control.weight.felt_kg < -0.04
    assert control.weight.least_kg > -0.006
    for _ in range(1000):  # light for long: it has lost ballast
        pushed = Wrench(force_body_n=(0.0, 0.0, 0.4))
        ask(control, at(0.0, 0.0, 2.0), Setpoint(), achieved=pushed)
    assert control.weight.least_kg < -0.03


def test_a_climb_of_another_mode_is_no_jerk_when_the_weight_is_felt_again() -> None:
    """After a push in STABILIZE a twin felt 54 g light; by MANUAL nothing is asked of the loop."""
    control, place = controller(), Setpoint(position_ned_m=(0.0, 0.0, -2.0))
    ask(control, at(0.0, 0.0, 2.0), place)
    ask(control, at(0.0, 0.0, 2.0, t_s=3.0, velocity_ned_mps=(0.0, 0.0, -0.5)), place)
    assert control.weight.felt_kg == SHIP.mass.heaviness_kg


def test_a_press_onto_the_ground_is_all_there_is_and_weighs_nothing() -> None:
    control = controller()
    pressed = Setpoint(position_ned_m=(3.0, 3.0, 0.3), press_n=0.36)
    for k in range(500):
        wander = at(0.0, 0.0, 0.01 * k, velocity_ned_mps=(0.2, 0.0, -0.1))
        wrench = ask(control, wander, pressed, achieved=Wrench(force_body_n=(0.0, 0.0, 0.36)))
    assert wrench == Wrench(force_body_n=(0.0, 0.0, 0.36))
    assert control.weight.felt_kg == SHIP.mass.heaviness_kg
