from math import copysign, cos, isfinite, nan, pi, sin
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.random_ship import random_ship
from blimp import airframe
from blimp.airframe import Airframe
from blimp.control.mixer import Mixer
from blimp.types import ActuatorCommand, Vec3, Wrench
from tests.control.parts import gtmab, twin

SHIPS = {"twin": Mixer(airframe=twin()), "gtmab": Mixer(airframe=gtmab())}


def settled(
    ship: Airframe, force: Vec3, torque: Vec3 = (0.0, 0.0, 0.0)
) -> tuple[Mixer, ActuatorCommand]:
    """The allocation once the tilt servo has had two seconds to swing."""
    mixer = Mixer(airframe=ship)
    wrench = Wrench(force_body_n=force, torque_body_nm=torque)
    for _ in range(200):
        command = mixer.allocate(wrench, dt_s=0.01)
    return mixer, command


# --- GT-MAB by hand: left and right 0.0142857 m off the centre, lift alone below it --------------


def test_gtmab_surge_is_shared_by_left_and_right() -> None:
    _, command = settled(gtmab(), (0.0175, 0.0, 0.0))
    half = (0.00875 / 0.0175) ** 0.5
    assert command.motors == pytest.approx((half, half, 0.0, 0.0, 0.0), abs=0.01)


def test_gtmab_lift_takes_the_lift_thruster_and_up_is_positive() -> None:
    _, command = settled(gtmab(), (0.0, 0.0, -0.05))
    assert command.motors == pytest.approx((0.0, 0.0, 0.0, 0.0, 0.5), abs=0.01)
    _, command = settled(gtmab(), (0.0, 0.0, 0.05))
    assert command.motors[4] == pytest.approx(-0.5, abs=0.01)


def test_gtmab_yaw_turns_all_four_and_right_is_positive() -> None:
    _, command = settled(gtmab(), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0005))
    left, right, front, rear, lift = command.motors
    assert left == pytest.approx(-right, abs=0.01)
    assert front == pytest.approx(-rear, abs=0.01)
    assert left > 0.6
    assert front > 0.6
    assert lift == 0.0


# --- twin: where does the tilt go? ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("force", "tilt"),
    [
        ((0.3, 0.0, 0.0), 0.0),
        ((0.0, 0.0, -0.3), pi / 2),
        ((0.3, 0.0, -0.3), pi / 4),
        ((0.3, 0.0, 0.3), -pi / 4),
    ],
)
def test_twin_tilts_into_the_force(force: Vec3, tilt: float) -> None:
    mixer, command = settled(twin(), force)
    assert mixer.tilts_rad["tilt"] == pytest.approx(tilt, abs=0.15)
    assert command.servos[0] == pytest.approx(mixer.tilts_rad["tilt"], abs=0.02)
    left, right, tail = command.motors
    assert left == pytest.approx(right, abs=0.05)
    assert left > 0.0
    assert tail == pytest.approx(0.0, abs=0.05)
    assert mixer.achieved.force_body_n == pytest.approx(force, abs=0.02)


def test_twin_backs_with_reversed_propellers_not_by_swinging_over_the_top() -> None:
    mixer, command = settled(twin(), (-0.3, 0.0, 0.0))
    assert abs(mixer.tilts_rad["tilt"]) < 0.3
    assert command.motors[0] < 0.0
    assert command.motors[1] < 0.0
    assert mixer.achieved.force_body_n[0] == pytest.approx(-0.3, abs=0.02)


def test_twin_sideways_uses_the_tail_and_balances_its_moment() -> None:
    mixer, command = settled(twin(), (0.1, 0.15, 0.0))
    assert command.motors[2] > 0.5
    assert mixer.achieved.force_body_n[1] == pytest.approx(0.15, abs=0.03)
    assert mixer.achieved.torque_body_nm[2] == pytest.approx(0.0, abs=0.03)


def test_a_wish_near_nothing_does_not_move_the_tilt() -> None:
    mixer, _ = settled(twin(), (0.2, 0.0, -0.1))
    before = mixer.tilts_rad["tilt"]
    for k in range(300):  # a newton's hundredth, from every side
        tiny = Wrench(force_body_n=(0.004 * cos(k), 0.0, 0.004 * sin(k)))
        mixer.allocate(tiny, dt_s=0.01)
    assert mixer.tilts_rad["tilt"] == pytest.approx(before, abs=0.25)


def test_the_tilt_model_slews_no_faster_than_the_servo() -> None:
    mixer = Mixer(airframe=twin())
    slew = twin().servo[0].slew_radps
    before = mixer.tilts_rad["tilt"]
    for _ in range(100):
        mixer.allocate(Wrench(force_body_n=(0.0, 0.0, -0.5)), dt_s=0.01)
        assert abs(mixer.tilts_rad["tilt"] - before) <= slew * 0.01 + 1e-9
        before = mixer.tilts_rad["tilt"]


def test_follow_keeps_the_model_at_what_somebody_else_commands() -> None:
    mixer = Mixer(airframe=twin())
    for _ in range(200):
        mixer.follow(ActuatorCommand(motors=(0.0,) * 3, servos=(1.0, 0.0, 0.0)), dt_s=0.01)
    assert mixer.tilts_rad["tilt"] == pytest.approx(1.0)
    for _ in range(200):
        mixer.follow(ActuatorCommand(motors=(0.0,) * 3, servos=(9.0, 0.0, 0.0)), dt_s=0.01)
    assert mixer.tilts_rad["tilt"] == twin().servo[0].max_rad
    assert mixer.saturated == (0,) * 6


def test_a_servo_that_does_not_answer_is_not_taken_to_follow() -> None:
    """Idle on trial, a dead servo was believed neutral, and nothing pressed the ship down."""
    mixer, _ = settled(twin(), (0.25, 0.0, -0.1))
    stuck_rad = mixer.tilts_rad["tilt"]
    for _ in range(200):
        mixer.follow(mixer.neutral, dt_s=0.01, unhealthy=("servos",))
        mixer.follow(mixer.neutral, dt_s=0.01, stuck_rad={"tilt": stuck_rad})
    assert mixer.tilts_rad["tilt"] == stuck_rad != 0.0


def test_a_stuck_tilt_is_flown_as_it_is_with_height_before_surge() -> None:
    mixer, _ = settled(twin(), (0.25, 0.0, -0.1))
    stuck_rad = mixer.tilts_rad["tilt"]
    wrench = Wrench(force_body_n=(-0.2, 0.0, -0.15))
    for _ in range(200):
        command = mixer.allocate(wrench, dt_s=0.01, unhealthy=("baro", "servos"))
    assert mixer.tilts_rad["tilt"] == stuck_rad
    assert command.servos[0] == pytest.approx(stuck_rad, abs=0.05)
    assert mixer.achieved.force_body_n[2] == pytest.approx(-0.15, abs=0.05)
    for _ in range(200):
        mixer.allocate(wrench, dt_s=0.01, unhealthy=("motors_main",))
    assert mixer.tilts_rad["tilt"] != stuck_rad


def test_a_tilt_stuck_nearly_level_pushes_down_only_if_height_goes_first() -> None:
    """A light ship that sinks no other way: it rose to 15 m for fear of flying across the hall."""
    mixer = Mixer(airframe=twin())
    wrench = Wrench(force_body_n=(0.0, 0.0, 0.15))
    down_n = []
    for first in (False, True):
        mixer.allocate(wrench, dt_s=0.01, stuck_rad={"tilt": -0.15}, height_first=first)
        down_n.append(mixer.achieved.force_body_n[2])
    assert down_n[0] < 0.05
    assert down_n[1] == pytest.approx(0.15, abs=0.03)


def test_height_first_bears_the_turn_of_a_motor_that_runs_by_itself() -> None:
    """The main motors fought the tail, tilt level, and a light ship rose to 15 m."""
    down_n = []
    for first in (False, True):
        mixer = Mixer(airframe=twin())
        mixer.leave_out({"tail": -0.4})
        wrench = Wrench(force_body_n=(0.0, 0.0, 0.5), torque_body_nm=(0.0, 0.0, 0.1))
        for _ in range(300):
            mixer.allocate(wrench, dt_s=0.01, height_first=first)
        down_n.append(mixer.achieved.force_body_n[2])
    assert down_n[0] < 0.4
    assert down_n[1] == pytest.approx(0.5, abs=0.05)


def test_the_rudder_helps_at_speed_and_is_neutral_without() -> None:
    mixer = Mixer(airframe=twin())
    wrench = Wrench(torque_body_nm=(0.0, 0.0, 0.1))
    assert mixer.allocate(wrench, dt_s=0.01, forward_mps=0.1).servos[2] == 0.0
    assert mixer.allocate(wrench, dt_s=0.01, forward_mps=-1.0).servos[2] == 0.0
    angle = mixer.allocate(wrench, dt_s=0.01, forward_mps=0.8).servos[2]
    assert 0.1 < angle <= 0.6  # a positive angle turns the nose right


def test_fins_take_what_turn_they_can_and_thrusters_the_rest() -> None:
    """Both counted the whole wish: at speed a ship turned half as hard again as it was asked to."""
    wrench = Wrench(torque_body_nm=(0.0, 0.0, 0.1))
    tails = []
    for speed in (0.0, 0.5, 0.8):
        mixer = Mixer(airframe=twin())
        for _ in range(200):
            command = mixer.allocate(wrench, dt_s=0.01, forward_mps=speed)
        assert mixer.achieved.torque_body_nm[2] == pytest.approx(0.1, abs=0.01)
        assert mixer.fins_made[5] == pytest.approx(
            0.218 * 1.35 * speed**2 * command.servos[2], abs=1e-3
        )
        tails.append(max(abs(motor) for motor in command.motors))
    assert tails[0] > tails[1] > tails[2]


# --- priority and limits -------------------------------------------------------------------------


def test_vertical_is_served_before_yaw_yaw_before_surge_surge_before_sway() -> None:
    mixer, command = settled(gtmab(), (1.0, 1.0, -0.2), (0.0, 0.0, 0.0006))
    fx, fy, fz = mixer.achieved.force_body_n
    assert fz == pytest.approx(-0.2, abs=0.002)
    assert mixer.achieved.torque_body_nm[2] == pytest.approx(0.0006, abs=2e-5)
    assert fx > 0.0
    assert max(abs(m) for m in command.motors) == pytest.approx(1.0, abs=1e-6)
    assert mixer.saturated[0] == 1
    assert mixer.saturated[2] == 0
    assert fx >= fy - 1e-6


def test_saturation_names_the_side() -> None:
    mixer, _ = settled(twin(), (-5.0, 0.0, 0.0))
    assert mixer.saturated[0] == -1
    mixer, _ = settled(twin(), (5.0, 0.0, 0.0))
    assert mixer.saturated[0] == 1
    mixer, _ = settled(twin(), (0.2, 0.0, 0.0))
    assert mixer.saturated == (0,) * 6


@given(
    name=st.sampled_from(sorted(SHIPS)),
    values=st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=6),
    speed=st.floats(-5.0, 5.0),
)
def test_never_not_finite_never_beyond_a_limit(
    name: str, values: list[float], speed: float
) -> None:
    mixer = SHIPS[name]
    ship = twin() if name == "twin" else gtmab()
    a, b, c, d, e, f = values
    wrench = Wrench(force_body_n=(a, b, c), torque_body_nm=(d, e, f))
    command = mixer.allocate(wrench, dt_s=0.01, forward_mps=speed)
    assert all(isfinite(value) for value in command.motors + command.servos)
    assert all(-1.0 <= motor <= 1.0 for motor in command.motors)
    for servo, angle in zip(ship.servo, command.servos, strict=True):
        assert servo.min_rad - 1e-9 <= angle <= servo.max_rad + 1e-9


@given(
    up=st.floats(0.0, 0.19),
    yaw=st.floats(-0.0009, 0.0009),
    surge=st.floats(-10.0, 10.0),
    sway=st.floats(-10.0, 10.0),
)
def test_greed_for_surge_and_sway_never_costs_height_or_heading(
    up: float, yaw: float, surge: float, sway: float
) -> None:
    mixer = SHIPS["gtmab"]
    mixer.allocate(
        Wrench(force_body_n=(surge, sway, -up), torque_body_nm=(0.0, 0.0, yaw)), dt_s=0.01
    )
    assert mixer.achieved.force_body_n[2] == pytest.approx(-up, abs=0.002)
    assert mixer.achieved.torque_body_nm[2] == pytest.approx(yaw, abs=5e-5)


@pytest.mark.parametrize("name", sorted(SHIPS))
def test_a_wrench_that_is_not_finite_gives_neutral(name: str) -> None:
    mixer = SHIPS[name]
    for place in range(6):
        values = [0.1] * 6
        values[place] = nan
        wrench = Wrench(
            force_body_n=(values[0], values[1], values[2]),
            torque_body_nm=(values[3], values[4], values[5]),
        )
        assert mixer.allocate(wrench, dt_s=0.01) == mixer.neutral


# --- thrust curve and geometry -------------------------------------------------------------------


@given(share=st.floats(-1.0, 1.0))
def test_throttle_inverts_the_thrust_curve(share: float) -> None:
    thruster = twin().thruster[0]
    limit = thruster.max_thrust_n if share >= 0.0 else thruster.reverse_thrust_n
    reported = thruster.throttle(share * limit)
    assert abs(reported) ** thruster.exponent * limit == pytest.approx(abs(share * limit), abs=1e-9)
    assert reported * share >= 0.0


@given(share=st.floats(-1.0, 1.0))
def test_a_dead_band_is_taken_out_without_a_jump(share: float) -> None:
    thruster = msgspec.structs.replace(twin().thruster[0], dead_band=0.12, reverse_dead_band=0.2)
    limit = thruster.max_thrust_n if share >= 0.0 else thruster.reverse_thrust_n
    dead_band = thruster.dead_band if share >= 0.0 else thruster.reverse_dead_band
    reported = thruster.throttle(share * limit)
    assert abs(reported) <= 1.0 + 1e-12
    assert reported * share >= 0.0
    turns = max(0.0, (abs(reported) - dead_band) / (1.0 - dead_band))
    given = turns**thruster.exponent
    assert given == pytest.approx(abs(share), abs=1e-9 if abs(share) > 0.0025 else 0.0025)
    assert thruster.throttle(1e-9 * limit) < 0.001, "as good as no wish is as good as none"


def test_throttle_of_a_propeller_that_cannot_reverse() -> None:
    thruster = msgspec.structs.replace(twin().thruster[0], reverse_thrust_n=0.0)
    assert thruster.throttle(-0.1) == 0.0
    assert thruster.throttle(99.0) == 1.0


def test_limits_are_what_the_file_says() -> None:
    mixer = Mixer(airframe=gtmab())
    assert mixer.limit_n(0) == pytest.approx(0.035)
    assert mixer.limit_n(2) == pytest.approx(0.2)
    assert mixer.limit_n(5) == pytest.approx(0.001, rel=1e-3)
    weak = tuple(msgspec.structs.replace(t, reverse_thrust_n=0.004) for t in gtmab().thruster)
    mixer = Mixer(airframe=msgspec.structs.replace(gtmab(), thruster=weak))
    assert mixer.reach_n(0, 1.0) == pytest.approx(0.035)
    assert mixer.reach_n(0, -1.0) == pytest.approx(0.008)
    neutral = Mixer(airframe=twin()).neutral
    angles, names = tuple(servo.neutral_rad for servo in twin().servo), twin().thruster_names
    assert neutral == ActuatorCommand(motors=(0.0,) * 3, servos=angles, asleep=names)


def test_who_can_push_sideways_without_turning() -> None:
    """Not cloudship: its propellers push one way, so that it surges to hold its tail's turn."""
    known = {name: Mixer(airframe=airframe.load(name)).sways for name in airframe.names()}
    assert {name for name, sways in known.items() if sways} == {
        "ardupilot-motor", "gtmab", "gtmab-eye", "gtmab-fit", "gtmab-mocap", "mpi-airship",
        "open-blimp", "twin",
    }  # fmt: skip


def bicopter(*, axis: Vec3 = (1.0, 0.0, 0.0)) -> Airframe:
    """The twin with a servo for each of its propellers, and no tail."""
    ship = twin()
    left, right, _ = ship.thruster
    tilt = ship.servo[0]
    pair = tuple(
        msgspec.structs.replace(t, tilted_by=f"tilt-{t.name}", axis=axis, asymmetry=0.0)
        for t in (left, right)
    )
    servos = tuple(msgspec.structs.replace(tilt, name=t.tilted_by) for t in pair)
    motors = {"a": "left", "b": "right"}
    devices = tuple(
        msgspec.structs.replace(row, outputs=outputs)
        for row in ship.device
        if "tail" not in row.outputs.values()
        for outputs in [
            motors
            if "left" in row.outputs.values()
            else {"0": "tilt-left", "1": "tilt-right"}
            if "tilt" in row.outputs.values()
            else row.outputs
        ]
    )
    return msgspec.structs.replace(ship, thruster=pair, servo=servos, surface=(), device=devices)


@pytest.mark.parametrize(
    ("force", "yaw_nm", "left", "right"),
    [
        ((0.4, 0.0, 0.0), 0.0, 0.0, 0.0),
        ((0.0, 0.0, -0.4), 0.0, pi / 2, pi / 2),
        ((0.0, 0.0, -0.4), 0.1, 1.107, pi - 1.107),
        ((0.2, 0.0, -0.2), 0.0, pi / 4, pi / 4),
        ((0.0, 0.0, 0.4), 0.0, -pi / 2, -pi / 2),
    ],
)
def test_each_servo_of_a_bicopter_turns_its_own_propeller(
    force: Vec3, yaw_nm: float, left: float, right: float
) -> None:
    mixer, command = settled(bicopter(), force, (0.0, 0.0, yaw_nm))
    assert mixer.achieved.force_body_n == pytest.approx(force, abs=0.04)
    assert mixer.achieved.torque_body_nm[2] == pytest.approx(yaw_nm, abs=0.01)
    for motor, name, angle in zip(
        command.motors, ("tilt-left", "tilt-right"), (left, right), strict=True
    ):
        # A propeller that runs backwards stands the other way round.
        assert cos(mixer.tilts_rad[name] - angle) * copysign(1.0, motor) > 0.93, command


def test_a_servo_that_stays_leaves_the_work_to_the_other() -> None:
    mixer = Mixer(airframe=bicopter())
    wish = Wrench(force_body_n=(0.0, 0.0, -0.3))
    for _ in range(300):
        mixer.allocate(wish, dt_s=0.01, stuck_rad={"tilt-left": 0.0})
    assert mixer.tilts_rad["tilt-left"] == 0.0
    assert mixer.achieved.force_body_n[2] == pytest.approx(-0.3, abs=0.05)


@pytest.mark.parametrize("thrust_n", [0.0, 0.6])
def test_what_is_broken_is_left_out_and_the_others_make_up_for_it(thrust_n: float) -> None:
    """Right dead, or running by itself: the wrench counts it in, and it is sent nothing."""
    mixer = Mixer(airframe=twin())
    mixer.leave_out({"right": thrust_n})
    wish = Wrench(force_body_n=(0.2, 0.0, -0.05), torque_body_nm=(0.0, 0.0, 0.0))
    for _ in range(200):
        command = mixer.allocate(wish, dt_s=0.01)
    assert command.motors[1] == 0.0
    assert mixer.thrusts_n is not None
    assert mixer.thrusts_n[1] == thrust_n
    assert mixer.achieved.force_body_n[0] == pytest.approx(0.2, abs=0.06)
    assert mixer.achieved.torque_body_nm[2] == pytest.approx(0.0, abs=0.06)
    assert (mixer.sways, round(mixer.left_over, 1)) == (False, 0.5)
    assert not mixer.straight  # the tail that balances one propeller pushes aside
    mixer.leave_out({})
    assert (mixer.sways, mixer.straight, mixer.left_over) == (True, True, 1.0)
    whole = Mixer(airframe=twin())
    assert mixer.limit_n(0) == whole.limit_n(0)
    assert mixer.allocate(wish, dt_s=0.01).motors[1] != 0.0


@pytest.mark.parametrize(
    ("name", "accused", "driven", "force", "yaw_nm"),
    [
        ("gtmab", {"lift": 0.0}, "lift", (0.0, 0.0, -0.1), 0.0),
        ("gtmab", {"lift": 0.2}, "lift", (0.0, 0.0, -0.1), 0.0),
        ("hobby", {"lift": 0.0}, "lift", (0.0, 0.0, -0.05), 0.0),
        ("blimp2b", {"yaw": 0.0}, "yaw", (0.0, 0.0, 0.0), 0.005),
        ("blimp2b", {"front": 0.0}, "front", (0.02, 0.0, 0.0), 0.0),
        ("twin", {"right": 0.0, "left": 0.0}, "left", (0.0, 0.0, -0.3), 0.0),
        ("twin", {"right": 0.0, "left": 0.6}, "right", (0.0, 0.0, -0.3), 0.0),
    ],
)
def test_the_last_thruster_of_an_axis_is_driven_whatever_is_said_of_it(
    name: str, accused: dict[str, float], driven: str, force: Vec3, yaw_nm: float
) -> None:
    """Before, a healthy lift motor that was said to do nothing was sent nothing: the ship rose."""
    ship = airframe.load(name)
    mixer = Mixer(airframe=ship)
    mixer.leave_out(accused)
    wish = Wrench(force_body_n=force, torque_body_nm=(0.0, 0.0, yaw_nm))
    for _ in range(200):
        command = mixer.allocate(wish, dt_s=0.01)
    motors = dict(zip(ship.thruster_names, command.motors, strict=True))
    assert motors[driven] != 0.0
    assert mixer.doubted
    assert mixer.left_over == 0.0  # the ship lands all the same
    mixer.leave_out({})
    assert (mixer.doubted, mixer.left_over) == (False, 1.0)


def test_no_motor_of_a_driver_that_sleeps_is_driven_not_even_the_last() -> None:
    ship = airframe.load("blimp2b")
    mixer = Mixer(airframe=ship)
    mixer.leave_out({"front": 0.0, "yaw": 0.0}, asleep=("front", "yaw"))
    wish = Wrench(force_body_n=(0.02, 0.0, -0.02), torque_body_nm=(0.0, 0.0, 0.001))
    command = mixer.allocate(wish, dt_s=0.01)
    driven = [n for n, m in zip(ship.thruster_names, command.motors, strict=True) if m]
    assert driven == ["lift"]
    assert command.asleep == ("front", "yaw")
    assert not mixer.doubted


def test_what_runs_by_itself_on_a_servo_is_flown_as_it_is() -> None:
    """Both main motors of `twin` run: their servo turns what they give."""
    mixer = Mixer(airframe=twin())
    mixer.leave_out({"left": 0.6, "right": 0.6})
    for _ in range(200):
        command = mixer.allocate(Wrench(force_body_n=(0.0, 0.0, 1.0)), dt_s=0.01)
    assert command.motors[:2] == (0.0, 0.0)
    assert not mixer.doubted
    assert mixer.achieved.force_body_n[2] > 0.9


def test_a_propeller_that_a_servo_turns_round_pushes_both_ways() -> None:
    """It had no limit but 0, so no integral: wind drove the ship off."""
    mixer = Mixer(airframe=airframe.load("cloudship"))
    assert mixer.limit_n(0) > 20.0
    assert mixer.limit_n(2) > 20.0


def hovering(fx: float = 0.0, yaw: float = 0.0) -> list[float]:
    """Return the lift of a heavy ship, cycle by cycle, that wants this beside it; in newtons."""
    mixer = Mixer(airframe=airframe.load("tri-turbofan"))
    lifted = []
    for k in range(800):
        sign = 1.0 if k < 400 else -1.0
        wrench = Wrench(force_body_n=(sign * fx, 0.0, -0.075), torque_body_nm=(0.0, 0.0, yaw))
        mixer.allocate(wrench, dt_s=0.01)
        lifted.append(-mixer.achieved.force_body_n[2])
    return lifted[200:]


def test_a_heavy_ship_does_not_turn_its_lift_into_a_turn() -> None:
    assert min(hovering(yaw=0.022)) > 0.06


def test_a_heavy_ship_does_not_swing_its_lift_through_level_to_brake() -> None:
    assert min(hovering(fx=0.03)) > 0.05


def answers(ship: Airframe, seed: int) -> float:
    """Return the share of a height, asked before all else, that is made once servos had time.

    Any other wish came before it, or its opposite alone, and a wish to turn comes with it.
    """
    chance, mixer = Random(seed), Mixer(airframe=ship)
    sign = chance.choice((-1.0, 1.0))
    asked_n = sign * mixer.reach_n(2, sign) * chance.uniform(0.03, 1.0)
    x, y, z, turn, turn_too = (chance.uniform(-1, 1) * mixer.limit_n(k) for k in (0, 1, 2, 5, 5))
    before = (
        Wrench(force_body_n=(x, y, z), torque_body_nm=(0.0, 0.0, turn))
        if seed % 2
        else Wrench(force_body_n=(0.0, 0.0, -0.5 * sign * mixer.reach_n(2, sign)))
    )
    for _ in range(150):
        mixer.allocate(before, dt_s=0.02)
    wrench = Wrench(force_body_n=(0.0, 0.0, asked_n), torque_body_nm=(0.0, 0.0, 0.5 * turn_too))
    way_s = max([(s.max_rad - s.min_rad) / s.slew_radps for s in ship.servo], default=0.0)
    for _ in range(int((way_s + 0.5) / 0.02)):
        mixer.allocate(wrench, dt_s=0.02, height_first=True)
    return mixer.achieved.force_body_n[2] / asked_n


@pytest.mark.parametrize("name", [*airframe.names(), *range(8)])
def test_height_first_is_never_answered_by_its_opposite(name: str | int) -> None:
    """A light `cloudship` was lost: its thrust, upright, was to turn it, and stayed upright."""
    ship = random_ship(name) if isinstance(name, int) else airframe.load(name)
    both_ways = Mixer(airframe=ship).limit_n(2) > 0.0
    assert not both_ways or min(answers(ship, seed) for seed in range(4)) > 0.0
