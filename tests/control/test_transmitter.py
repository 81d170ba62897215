"""A transmitter's sticks and switches in the flight loop: channels 1 to 4 sticks, 5 arm, 6 modes,
7 stop, 8 control."""

from random import Random
from typing import Any

import msgspec
import pytest

from blimp.airframe import Channel, Transmitter
from blimp.hardware import crsf
from blimp.types import Command, OutcomeState, TransmitterSample
from tests.control.parts import Bench, twin
from tests.hardware.test_crsf import LEFT, channels_frame, fitted

MANUAL = {
    "left": {"forward": 1.0, "turn": 0.5},
    "tail": {"turn": -1.0},
    "tilt": {"up": 1.0},
}


class Radio(Bench):
    """A bench whose transmitter is on, all sticks in the middle and all switches low."""

    def __init__(self, **table: Any) -> None:
        names = ("STABILIZE", "ALTHOLD", "VELOCITY")
        made = Transmitter(**{"manual": MANUAL, "mode_names": names, **table})
        super().__init__(airframe=msgspec.structs.replace(twin(), transmitter=made))
        self.move({})

    def move(self, channels: dict[int, float], seconds: float = 0.15) -> None:
        """Move these channels; the others stay."""
        self.sensors.channels = {**(self.sensors.channels or {}), **channels}
        self.run(seconds)

    def doubt(self, *numbers: int, seconds: float, **channels: float) -> None:
        """Let the receiver name these channels as noisy, and have the others so."""
        values = [0.0] * 4 + [-1.0] * 12
        for name, value in channels.items():
            values[int(name[2:]) - 1] = value
        self.sensors.cut.add("transmitter")
        for _ in range(round(seconds * 100.0)):
            self.sensors._last["transmitter"] = TransmitterSample(
                t_s=self.now_s, channels=tuple(values), doubted=numbers
            )
            self.run(0.01)

    def silence(self, seconds: float) -> None:
        self.sensors.cut.add("transmitter")
        self.run(seconds)

    def back(self, seconds: float = 0.1) -> None:
        self.sensors.cut.discard("transmitter")
        self.run(seconds)

    def flying(self, position: float = 0.0) -> None:
        """Armed by its switch and in the air, the mode switch in this place."""
        self.move({5: 1.0, 6: position})
        self.move({3: 0.5}, 0.05)
        self.move({3: 0.0})
        self.lift(3.0)

    def said(self, text: str) -> bool:
        return any(text in message for message in self.snapshot().messages)


def test_the_arm_switch_arms_when_it_is_moved_and_disarms_on_the_ground() -> None:
    ship = Radio()
    ship.move({5: 1.0})
    assert ship.snapshot().armed
    assert ship.said("the transmitter has control")
    ship.move({5: -1.0})
    assert not ship.snapshot().armed
    assert ship.said("disarmed: by the transmitter")
    assert ship.tell("arm").state is OutcomeState.DONE, "with that flight its control is over"


def test_a_switch_that_is_up_at_the_start_does_not_arm_until_it_was_low() -> None:
    ship = Radio()
    ship.sensors.channels = None
    ship.silence(1.0)
    ship.sensors.channels = {5: 1.0}
    ship.back(1.0)
    assert not ship.snapshot().armed
    ship.move({5: -1.0})
    ship.move({5: 1.0})
    assert ship.snapshot().armed


def test_a_switch_moved_out_of_range_does_not_arm() -> None:
    ship = Radio()
    ship.silence(1.0)
    ship.sensors.channels = {5: 1.0}
    ship.back(1.0)
    assert not ship.snapshot().armed


def test_it_does_not_arm_with_a_stick_out_of_the_middle() -> None:
    ship = Radio()
    ship.move({3: 0.3})
    ship.move({5: 1.0})
    assert not ship.snapshot().armed
    assert ship.said("transmitter: arm refused: put the sticks in the middle first (up)")
    ship.move({3: 0.0}, 1.0)
    assert not ship.snapshot().armed, "the switch must be moved again"


def test_arming_is_refused_for_the_same_reasons_as_any_arm() -> None:
    ship = Radio()
    ship.sensors.battery_v = 6.0
    ship.run(6.0)
    ship.move({5: 1.0})
    assert not ship.snapshot().armed
    assert ship.said("transmitter: arm refused: not ready to arm: battery: ")


def test_the_stop_switch_acts_in_the_cycle_that_sees_it_and_latches() -> None:
    ship = Radio()
    ship.flying()
    ship.move({3: 0.5})
    assert ship.motors_driven()
    ship.move({7: 1.0}, 0.01)
    assert ship.outputs.command is None
    assert ship.snapshot().killed
    assert "transmitter's stop switch is on" in ship.tell("arm").reason
    ship.move({7: -1.0}, 1.0)
    assert ship.snapshot().killed
    assert not ship.snapshot().armed, "nor does the arm switch, which is still up"


def test_the_stop_switch_stops_a_ship_that_the_transmitter_never_controls() -> None:
    ship = Radio(takes_control="never")
    ship.tell("arm")
    ship.move({1: 1.0, 5: 1.0, 6: 1.0})
    assert not ship.said("the transmitter has control")
    ship.move({7: 1.0}, 0.01)
    assert ship.snapshot().killed


def test_on_the_ground_only_a_stick_lifts_it() -> None:
    ship = Radio()
    ship.move({5: 1.0})
    for position in (0.0, 1.0, -1.0):
        ship.move({6: position}, 0.5)
        assert not ship.motors_driven()
    ship.move({3: 0.5}, 1.0)
    assert ship.snapshot().mode == "STABILIZE"
    assert ship.motors_driven()


@pytest.mark.parametrize(
    ("position", "mode"), [(-1.0, "STABILIZE"), (0.0, "ALTHOLD"), (1.0, "VELOCITY")]
)
def test_three_positions_are_three_modes(position: float, mode: str) -> None:
    ship = Radio()
    ship.flying(-1.0 if position else 1.0)
    ship.move({6: position, 2: 0.5})
    assert ship.snapshot().mode == mode


@pytest.mark.parametrize(("position", "mode"), [(-1.0, "MANUAL"), (1.0, "LAND")])
def test_two_positions_are_two_modes(position: float, mode: str) -> None:
    ship = Radio(mode_names=("MANUAL", "LAND"))
    ship.tell("arm")
    ship.tell("takeoff", altitude_m=3.0)
    ship.lift(3.0)
    ship.move({6: -position})
    ship.move({6: position})
    assert ship.snapshot().mode == mode


def test_manual_moves_the_outputs_of_the_table_and_lets_them_go_in_half_a_second() -> None:
    ship = Radio(mode_names=("MANUAL", "ALTHOLD"))
    ship.flying()
    ship.move({6: -1.0})
    ship.move({2: 0.525, 4: 1.0, 3: -1.0})
    command = ship.outputs.command
    assert command is not None
    left, right, tail = command.motors
    assert (left, right, tail) == pytest.approx((1.0, 0.0, -1.0))
    tilt = twin().servo[0]
    assert command.servos[0] == pytest.approx(tilt.min_rad)
    ship.move({2: 0.0, 4: 0.0, 3: 0.0})
    assert ship.outputs.command is not None
    assert ship.outputs.command.motors == pytest.approx((0.0, 0.0, 0.0))


def test_a_channel_can_be_reversed_and_has_a_dead_band() -> None:
    forward = Channel(channel=9, reverse=True)
    ship = Radio(mode_names=("MANUAL", "ALTHOLD"), forward=forward, deadband=0.1)
    ship.move({9: 0.0})
    ship.flying()
    ship.move({6: -1.0})
    ship.move({9: 0.09})
    assert not ship.motors_driven()
    ship.move({9: -0.55})
    assert ship.outputs.command is not None
    assert ship.outputs.command.motors[0] == pytest.approx(0.5)


# --- who has control -----------------------------------------------------------------------


def goto(ship: Bench, authority: int) -> Any:
    ship._sent += 1
    return ship.send(
        Command(
            id=f"goto-{ship._sent}",
            name="goto",
            arguments={"north_m": 1.0, "east_m": 0.0, "altitude_m": 3.0},
            authority=authority,
        )
    )


def by_ground(ship: Bench) -> None:
    ship.tell("arm")
    ship.tell("takeoff", altitude_m=3.0)
    ship.lift(3.0)


def test_a_stick_that_is_moved_takes_control_from_the_ground() -> None:
    ship = Radio()
    by_ground(ship)
    assert goto(ship, 4).state is OutcomeState.IN_PROGRESS
    ship.move({1: 0.5})
    assert ship.snapshot().mode == "STABILIZE"
    refused = goto(ship, 4)
    assert refused.reason.startswith("the transmitter has control")
    assert ship.snapshot().mode == "STABILIZE"


def test_who_takes_control_on_the_ground_afterwards_has_it_until_a_stick_is_moved_again() -> None:
    ship = Radio()
    by_ground(ship)
    goto(ship, 4)
    ship.move({1: 0.5})
    assert goto(ship, 6).state is OutcomeState.IN_PROGRESS
    ship.run(1.0)
    assert ship.snapshot().mode == "LOITER", "the stick is held, not moved"
    ship.move({1: 0.0})
    ship.move({1: 0.5})
    assert ship.snapshot().mode == "STABILIZE"
    assert goto(ship, 6).state is OutcomeState.REFUSED


def test_without_any_authority_known_the_first_that_comes_is_kept_out() -> None:
    """It may be that of the pilot who had control before; one without says nothing of his."""
    ship = Radio()
    ship.flying()
    assert goto(ship, 0).state is OutcomeState.REFUSED
    assert goto(ship, 4).state is OutcomeState.REFUSED
    assert goto(ship, 0).state is OutcomeState.REFUSED
    assert goto(ship, 5).state is OutcomeState.IN_PROGRESS


def test_a_command_in_silence_bars_nobody() -> None:
    ship = Radio()
    ship.flying()
    ship.silence(1.0)
    refused = ship.send(Command(id="far", name="goto", arguments={}, authority=5))
    assert refused.state is OutcomeState.REFUSED
    ship.back()
    assert goto(ship, 6).state is OutcomeState.REFUSED, "the first that it is heard with"
    assert goto(ship, 7).state is OutcomeState.IN_PROGRESS


@pytest.mark.parametrize("name", ["land", "hold", "estop"])
def test_the_ground_may_always_bring_it_to_rest(name: str) -> None:
    ship = Radio()
    ship.flying()
    assert ship.tell(name).state is not OutcomeState.REFUSED


def test_by_switch_sticks_take_nothing_and_the_switch_gives_it_back() -> None:
    ship = Radio(takes_control="switch")
    by_ground(ship)
    ship.move({1: 1.0, 6: 1.0})
    assert ship.snapshot().mode == "LOITER"
    ship.move({8: 1.0})
    assert ship.snapshot().mode == "VELOCITY"
    assert goto(ship, 0).state is OutcomeState.REFUSED
    ship.move({8: -1.0})
    assert goto(ship, 0).state is OutcomeState.IN_PROGRESS


STICK_MODES = ("ALTHOLD", "MANUAL")  # one that keeps its height, one that keeps nothing


def on_the_pad(mode: str, **table: Any) -> Radio:
    """Armed by its switch, a stick moved; it has not left the ground."""
    ship = Radio(mode_names=("HOLD", mode), **table)
    ship.move({6: 1.0, 8: 1.0})
    ship.move({5: 1.0})
    ship.move({2 if mode == "MANUAL" else 3: 0.5}, 1.0)
    assert (ship.snapshot().mode, ship.motors_driven()) == (mode, True)
    ship.move({2: 0.0, 3: 0.0})
    return ship


@pytest.mark.parametrize("mode", ["STABILIZE", "ALTHOLD", "VELOCITY", "MANUAL", "RTL"])
def test_control_that_is_given_up_leaves_no_mode_without_a_pilot(mode: str) -> None:
    ship = Radio(takes_control="switch", mode_names=("LOITER", mode))
    by_ground(ship)
    ship.move({6: 1.0, 8: 1.0, 2: 0.5})
    assert ship.snapshot().mode == mode
    ship.move({8: -1.0}, 0.02)
    assert ship.snapshot().mode == ("RTL" if mode == "RTL" else "HOLD")


@pytest.mark.parametrize("mode", STICK_MODES)
@pytest.mark.parametrize("ends", ["control switch", "mode switch", "ground"])
def test_control_that_is_given_up_or_a_hold_on_the_pad_stops_the_motors(
    mode: str, ends: str
) -> None:
    ship = on_the_pad(mode, takes_control="switch")
    if ends == "ground":
        assert ship.tell("hold").state is OutcomeState.DONE
    else:
        ship.move({8: -1.0} if ends == "control switch" else {6: -1.0})
    assert (ship.snapshot().mode, ship.motors_driven()) == ("HOLD", False)
    ship.run(1.0)
    assert not ship.motors_driven()


@pytest.mark.parametrize("cause", ["silence", "position"])
def test_control_given_up_while_a_failsafe_holds_resumes_nothing(cause: str) -> None:
    ship = Radio(takes_control="switch", mode_names=("LOITER", "VELOCITY"))
    by_ground(ship)
    ship.move({6: 1.0, 8: 1.0, 2: 0.5})
    if cause == "silence":
        ship.silence(2.0)
        ship.sensors.channels = {6: 1.0, 8: -1.0}
        ship.back(1.0)
    else:
        ship.move({2: 0.0})
        ship.sensors.cut.update(("tag", "gps"))
        ship.run(2.5)
        assert ship.snapshot().failsafe.startswith("position lost")
        ship.move({8: -1.0})
        ship.sensors.cut.difference_update(("tag", "gps"))
        ship.run(10.0)
    assert (ship.snapshot().failsafe, ship.snapshot().mode) == ("", "HOLD")


def test_a_ground_that_takes_control_without_a_mode_leaves_none_without_a_pilot() -> None:
    ship = Radio(mode_names=("LOITER", "ALTHOLD"))
    by_ground(ship)
    goto(ship, 3)
    ship.move({6: 1.0, 2: 0.5})
    assert ship.snapshot().mode == "ALTHOLD"
    sent = Command(id="x", name="arm", arguments={}, authority=9)
    assert ship.send(sent).state is OutcomeState.DONE, "it is, and that moves nothing"
    assert ship.snapshot().mode == "HOLD"


def test_a_ground_that_takes_control_by_a_stick_flies_the_mode_on() -> None:
    ship = Radio(mode_names=("LOITER", "STABILIZE"))
    by_ground(ship)
    goto(ship, 3)
    ship.move({6: 1.0, 2: 0.5})
    stick = {"forward_percent": 50.0, "seconds": 1.0}
    sent = Command(id="x", name="stick", arguments=stick, authority=9)
    assert ship.send(sent).state is OutcomeState.DONE
    ship.run(0.1)
    assert ship.snapshot().mode == "STABILIZE"


def test_a_stick_that_is_brushed_takes_no_control() -> None:
    ship = Radio()
    by_ground(ship)
    for seconds in (0.01, 0.05, 0.09):
        ship.move({1: 0.5}, seconds)
        ship.move({1: 0.0}, 0.02)
    assert not ship.said("the transmitter has control")
    ship.move({1: 0.5}, 0.12)
    assert ship.said("the transmitter has control")


def test_three_frames_are_too_few_to_take_control_however_far_apart() -> None:
    ship = Radio()
    by_ground(ship)
    ship.sensors.channels = {1: 0.5}
    for _ in range(3):
        ship.back(0.01)
        ship.silence(0.2)
    assert not ship.said("the transmitter has control")


def test_a_mode_switch_at_the_edge_of_two_positions_does_not_flutter() -> None:
    ship = Radio(mode_names=("ALTHOLD", "HOLD", "LOITER"))
    ship.flying()
    before = len([m for m in ship.snapshot().messages if "refused" in m])
    ship.move({6: 0.28})
    for noise in (0.38, 0.29, 0.4, 0.3):  # the edge is at 1/3
        ship.move({6: noise}, 0.05)
        assert ship.snapshot().mode == "HOLD"
    ship.move({6: 0.5})
    assert ship.snapshot().mode == "LOITER"
    ship.move({6: 0.28}, 0.05)
    assert ship.snapshot().mode == "LOITER"
    ship.move({6: 0.1})
    assert ship.snapshot().mode == "HOLD"
    ship.move({6: -1.0})
    assert ship.snapshot().mode == "ALTHOLD"
    assert len([m for m in ship.snapshot().messages if "refused" in m]) == before


def test_a_mode_that_was_refused_is_asked_for_again_by_a_stick_that_is_moved_again() -> None:
    ship = Radio(mode_names=("HOLD", "VELOCITY"))
    by_ground(ship)
    ship.move({6: 1.0})
    ship.move({6: -1.0})
    ship.sensors.cut.update(("tag", "gps"))
    ship.run(3.0)
    ship.move({6: 1.0, 2: 0.5})
    assert ship.said("transmitter: VELOCITY refused: VELOCITY: position lost")
    assert ship.snapshot().mode == "HOLD"
    ship.sensors.cut.difference_update(("tag", "gps"))
    ship.run(2.0)
    assert ship.snapshot().mode == "HOLD", "a stick that is held asks for nothing again"
    ship.move({2: 0.0})
    ship.move({2: 0.5})
    assert ship.snapshot().mode == "VELOCITY"


def test_a_noisy_stick_is_let_go_and_the_others_fly() -> None:
    ship = Radio(mode_names=("MANUAL", "ALTHOLD"))
    ship.flying()
    ship.move({6: -1.0})
    ship.move({2: 0.5})
    ship.doubt(2, seconds=0.3, ch2=0.5, ch3=-1.0, ch5=1.0)
    assert ship.outputs.command is not None
    assert ship.outputs.command.motors[0] == pytest.approx(0.47, abs=0.01)
    assert ship.outputs.command.servos[0] == pytest.approx(twin().servo[0].min_rad)
    ship.doubt(2, seconds=0.4, ch2=0.5, ch3=-1.0, ch5=1.0)
    assert ship.outputs.command.motors[0] == 0.0
    assert ship.outputs.command.servos[0] == pytest.approx(twin().servo[0].min_rad)
    assert ship.snapshot().failsafe == ""


@pytest.mark.parametrize("number", [5, 7])
def test_a_noisy_arm_or_stop_switch_is_a_transmitter_that_is_lost(number: int) -> None:
    ship = Radio()
    ship.flying()
    ship.doubt(number, seconds=0.7, ch5=1.0)
    assert ship.snapshot().failsafe == "transmitter lost: holding"
    assert not ship.snapshot().killed


@pytest.mark.parametrize("takes_control", ["stick", "switch", "never"])
def test_the_stop_switch_acts_while_the_arm_switch_is_noisy(takes_control: str) -> None:
    ship = Radio(takes_control=takes_control)
    by_ground(ship)
    ship.doubt(5, seconds=1.0, ch5=1.0)
    assert not ship.snapshot().killed
    ship.doubt(5, seconds=0.02, ch5=1.0, ch7=1.0)
    assert ship.snapshot().killed
    assert "transmitter's stop switch is on" in ship.tell("arm").reason


def test_a_noisy_arm_switch_that_arms_nothing_is_no_loss() -> None:
    ship = Radio(takes_control="never")
    ship.doubt(5, seconds=1.0)
    assert ship.loop.state.t_s == pytest.approx(ship.now_s)
    assert ship.loop._flags_seen is not None
    assert ship.loop._flags_seen.heard


def test_bit_errors_move_nothing() -> None:
    """In the air under the ground's control: no control taken, no mode, no stop, no arm."""
    random, ship, rate = Random(1), Radio(), 1e-2
    driver, port = fitted()
    by_ground(ship)
    assert goto(ship, 4).state is OutcomeState.IN_PROGRESS
    ship.sensors.cut.add("transmitter")
    low = [172] * 12
    for step in range(1000):
        data = channels_frame(992, 992, 992, 992, *low) * 2
        if step % 10 == 0:
            data += crsf.frame(0x14, LEFT)
        if step > 20:
            data = bytes(
                byte ^ sum(1 << bit for bit in range(8) if random.random() < rate) for byte in data
            )
        port.arrive(data)
        driver.poll(ship.now_s)
        ship.sensors._last["transmitter"] = driver.sample
        ship.run(0.01)
    seen = ship.snapshot()
    assert (seen.mode, seen.armed, seen.killed) == ("LOITER", True, False)
    assert not ship.said("transmitter")


def test_a_control_switch_that_is_on_at_the_start_takes_nothing() -> None:
    ship = Radio(takes_control="switch")
    ship.silence(1.0)
    ship.sensors.channels = {8: 1.0}
    by_ground(ship)
    ship.back(1.0)
    assert goto(ship, 0).state is OutcomeState.IN_PROGRESS


# --- lost ------------------------------------------------------------------------------------


def test_lost_in_control_it_holds_and_the_ground_may_command() -> None:
    ship = Radio()
    ship.flying()
    ship.silence(0.4)
    assert ship.snapshot().failsafe == ""
    ship.run(0.2)
    assert (ship.snapshot().failsafe, ship.snapshot().mode) == ("transmitter lost: holding", "HOLD")
    assert goto(ship, 0).state is OutcomeState.IN_PROGRESS
    ship.run(0.1)
    assert (ship.snapshot().failsafe, ship.snapshot().mode) == ("", "LOITER")


def test_the_receivers_flag_acts_at_once() -> None:
    ship = Radio()
    ship.flying()
    ship.sensors.cut.add("transmitter")
    ship.sensors._last["transmitter"] = TransmitterSample(t_s=ship.now_s)
    ship.run(0.02)
    assert ship.snapshot().failsafe == "transmitter lost: holding"


def test_heard_again_its_pilot_goes_on() -> None:
    ship = Radio()
    ship.flying()
    ship.silence(2.0)
    ship.back()
    assert (ship.snapshot().failsafe, ship.snapshot().mode) == ("", "ALTHOLD")


def test_lost_without_control_it_is_no_failsafe() -> None:
    ship = Radio()
    by_ground(ship)
    ship.silence(5.0)
    assert ship.snapshot().failsafe == ""


def test_a_transmitter_without_control_is_no_link_of_the_ground() -> None:
    ship = Radio()
    by_ground(ship)
    ship.inbox.link_age = 31.0
    ship.run(1.0)
    assert ship.snapshot().failsafe == "link lost: returning"


def test_a_mode_switch_that_was_moved_in_silence_takes_no_control() -> None:
    ship = Radio()
    by_ground(ship)
    ship.silence(1.0)
    ship.move({6: 1.0})
    ship.back()
    assert ship.snapshot().mode == "LOITER"
    assert not ship.said("the transmitter has control")


def test_a_refused_command_does_not_end_the_hold_of_a_lost_transmitter() -> None:
    ship = Radio()
    ship.flying()
    ship.silence(1.0)
    assert ship.tell("motor", name="left", percent=50.0, seconds=1.0).state is OutcomeState.REFUSED
    ship.run(0.5)
    assert (ship.snapshot().failsafe, ship.snapshot().mode) == ("transmitter lost: holding", "HOLD")


def test_one_link_is_enough_and_both_lost_end_in_stages() -> None:
    ship = Radio()
    ship.flying()
    ship.inbox.link_age = 100.0
    ship.run(1.0)
    assert ship.snapshot().failsafe == ""
    ship.silence(2.5)
    assert ship.snapshot().failsafe == "transmitter lost: holding"
    ship.run(28.0)
    assert ship.snapshot().failsafe == "link lost: returning"
    ship.run(30.0)
    assert ship.snapshot().failsafe == "link lost: landing"


MODES = ("MANUAL", "STABILIZE", "ALTHOLD", "VELOCITY", "LOITER", "HOLD", "RTL", "LAND")


@pytest.mark.parametrize("mode", MODES)
def test_lost_in_any_mode_it_holds_or_goes_on_with_what_is_safer(mode: str) -> None:
    ship = Radio(mode_names=("ALTHOLD", mode))
    ship.flying(-1.0)
    ship.move({6: 1.0, 2: 0.5})
    assert ship.snapshot().mode == mode
    ship.silence(1.0)
    assert ship.snapshot().failsafe == "transmitter lost: holding"
    assert ship.snapshot().mode == (mode if mode in ("RTL", "LAND") else "HOLD")


def test_a_pilot_on_the_ground_ends_the_return_of_a_lost_transmitter() -> None:
    ship = Radio()
    ship.flying()
    ship.silence(31.0)
    assert ship.tell("hold").reason.startswith("failsafe in force: transmitter lost"), (
        "who only holds has not taken control"
    )
    assert goto(ship, 3).state is OutcomeState.IN_PROGRESS
    ship.run(0.1)
    assert (ship.snapshot().failsafe, ship.snapshot().mode) == ("", "LOITER")


def test_heard_again_after_its_return_a_stick_that_is_moved_flies_on() -> None:
    ship = Radio()
    ship.flying()
    ship.silence(31.0)
    ship.back()
    assert (ship.snapshot().failsafe, ship.snapshot().mode) == ("", "RTL")
    ship.move({2: 0.5})
    assert ship.snapshot().mode == "ALTHOLD"


@pytest.mark.parametrize("mode", STICK_MODES)
def test_lost_on_the_pad_after_a_stick_was_moved_no_motor_runs(mode: str) -> None:
    ship = on_the_pad(mode)
    ship.silence(0.6)
    for _ in range(130):  # the last row comes after 60 s
        assert not ship.motors_driven()
        ship.run(0.5)
    assert ship.snapshot().mode == "HOLD"


@pytest.mark.parametrize("mode", STICK_MODES)
def test_a_battery_that_gets_low_on_the_pad_lifts_nothing(mode: str) -> None:
    ship = on_the_pad(mode)
    ship.sensors.battery_v = 6.8
    ship.run(30.0)
    assert ship.snapshot().failsafe == "battery low: returning"
    assert (ship.snapshot().mode, ship.motors_driven()) == ("HOLD", False)
    ship.move({3: 0.5})
    assert not ship.motors_driven()


def test_without_a_position_the_stick_that_lifts_is_refused_with_the_failsafe() -> None:
    ship = on_the_pad("ALTHOLD")
    ship.sensors.cut.update(("tag", "gps"))
    ship.run(5.0)
    assert not ship.motors_driven()
    ship.move({3: 0.5})
    assert not ship.motors_driven()
    assert ship.said("transmitter: ALTHOLD refused: failsafe in force: position lost: holding")


def test_after_a_loss_a_stick_undoes_no_command_of_the_ground() -> None:
    ship = Radio()
    ship.flying()
    ship.silence(1.0)
    ship.back(0.5)
    assert ship.snapshot().mode == "ALTHOLD"
    ship.tell("land")
    ship.move({2: 0.5}, 0.3)
    assert ship.snapshot().mode == "LAND"


def test_the_end_of_a_return_is_said_once_and_only_if_it_ends() -> None:
    ship = Radio()
    ship.flying()
    ship.silence(31.0)
    far = {"north_m": 9000.0, "east_m": 0.0, "altitude_m": 2.0}
    sent = Command(id="far", name="goto", arguments=far, authority=3)
    assert ship.send(sent).state is OutcomeState.REFUSED
    assert ship.snapshot().failsafe == "transmitter lost: returning"
    assert not ship.said("over: ")
    assert goto(ship, 3).state is OutcomeState.IN_PROGRESS
    assert ship.said("over: transmitter lost: returning")


def test_a_deaf_ship_arms_while_a_stop_switch_is_heard_that_has_stopped_it() -> None:
    """A channel that no switch moves would stop nothing."""
    ship = Radio()
    ship.inbox.why_deaf = "no worker hears"
    ship.run(0.1)
    assert ship.snapshot().deaf == "no worker hears"
    assert "try the transmitter's stop switch: put it on, then off" in ship.tell("arm").reason
    ship.move({7: 1.0})
    assert ship.snapshot().killed
    assert ship.said("killed: emergency stop by the transmitter")
    ship.move({7: -1.0})
    assert ship.snapshot().deaf == "no worker hears; the transmitter's switch stops it"
    ship.move({5: 1.0})
    assert ship.snapshot().armed
    ship.move({5: -1.0})
    ship.silence(1.0)
    assert "no worker hears" in ship.tell("arm").reason
    assert ship.snapshot().deaf == "no worker hears"
