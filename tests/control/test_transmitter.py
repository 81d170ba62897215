"""A transmitter's sticks and switches in the flight loop: channels 1 to 4 sticks, 5 arm, 6 modes,
7 stop, 8 control."""

from typing import Any

import msgspec
import pytest

from blimp.airframe import Channel, Transmitter
from blimp.types import Command, OutcomeState, TransmitterSample
from tests.control.parts import Bench, twin

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

    def move(self, channels: dict[int, float], seconds: float = 0.1) -> None:
        """Move these channels; the others stay."""
        self.sensors.channels = {**(self.sensors.channels or {}), **channels}
        self.run(seconds)

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


def test_without_any_authority_known_the_ground_is_kept_out_as_well() -> None:
    ship = Radio()
    ship.flying()
    assert goto(ship, 0).state is OutcomeState.REFUSED
    assert goto(ship, 0).state is OutcomeState.REFUSED
    assert goto(ship, 2).state is OutcomeState.IN_PROGRESS


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


def test_a_deaf_ship_arms_while_a_stop_switch_is_heard() -> None:
    ship = Radio()
    ship.inbox.why_deaf = "no worker hears"
    ship.move({5: 1.0})
    assert ship.snapshot().armed
    ship.move({5: -1.0})
    ship.silence(1.0)
    assert "no worker hears" in ship.tell("arm").reason
