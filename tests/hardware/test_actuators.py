import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.clock import ManualClock
from blimp.hardware.actuators import STAGGER_S, Actuators
from blimp.hardware.board import open_board
from blimp.types import ActuatorCommand
from tests.hardware.doubles import Doubles, RegisterChip
from tests.hardware.ships import twin

LEFT, RIGHT, TAIL = (6, 13), (19, 26), (16, 20)
NSLEEP_MAIN, NSLEEP_TAIL = 12, 21
NEUTRAL = (0.0, 0.0, 0.0)


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.buses = Doubles()
        self.chip = RegisterChip({0x00: b"\x11", 0x05: b"\xe0"})
        self.buses.bus.chips[0x40] = self.chip
        self.board = open_board(twin(), buses=self.buses, clock=self.clock)
        self.out: Actuators = self.board.actuators
        self.run(0.3)
        assert self.out.unhealthy == ()

    def drive(
        self, motors: tuple[float, ...] = NEUTRAL, servos: tuple[float, ...] = NEUTRAL
    ) -> None:
        self.clock.advance(0.01)
        self.out.drive(ActuatorCommand(motors=motors, servos=servos))

    def run(self, seconds: float, **values: tuple[float, ...]) -> None:
        for _ in range(round(seconds * 100)):
            self.drive(**values)

    def pulse(self, channel: int) -> int | None:
        """Counts of the pulse on a channel, None when off."""
        at = 0x06 + 4 * channel
        off = self.chip.memory[at + 2 : at + 4]
        if off[1] & 0x10 or (self.chip.memory[0xFD] & 0x10 and not any(off)):
            return None
        return int.from_bytes(off, "little")

    def level(self, pin: int) -> float:
        return self.buses.pins[pin].level


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_nothing_moves_before_enable(rig: Rig) -> None:
    rig.run(0.5, motors=(1.0, 1.0, 1.0), servos=(0.5, 0.5, 0.5))
    assert {pin.level for pin in rig.buses.pins.values()} == {0.0}
    assert [rig.pulse(channel) for channel in range(3)] == [None] * 3
    assert rig.out.last == {
        "left": 0.0, "right": 0.0, "tail": 0.0, "tilt": 0.0, "elevator": 0.0, "rudder": 0.0,
    }  # fmt: skip


def test_enabled_commands_go_to_their_pins(rig: Rig) -> None:
    rig.out.enable()
    rig.drive(motors=(0.5, -0.25, 1.0))
    assert rig.level(NSLEEP_MAIN) == rig.level(NSLEEP_TAIL) == 1.0
    assert (rig.level(LEFT[0]), rig.level(LEFT[1])) == (0.5, 0.0)
    assert (rig.level(RIGHT[0]), rig.level(RIGHT[1])) == (0.0, 0.25)
    assert (rig.level(TAIL[0]), rig.level(TAIL[1])) == (1.0, 0.0)
    assert rig.out.last["right"] == -0.25


def test_drivers_of_motors_that_are_not_to_turn_sleep_and_the_others_go_on(rig: Rig) -> None:
    def drive(motors: tuple[float, ...], *asleep: str) -> list[float]:
        rig.out.drive(ActuatorCommand(motors=motors, servos=(0.3, 0.0, 0.0), asleep=asleep))
        return [rig.level(NSLEEP_MAIN), rig.level(NSLEEP_TAIL)]

    rig.out.enable()
    rig.run(1.0, motors=(0.5, -0.25, 1.0))
    assert drive(NEUTRAL, "left", "right", "tail") == [0.0, 0.0]
    assert rig.pulse(0) is not None
    assert drive((0.0, 0.0, 0.5), "left", "right") == [0.0, 1.0]
    assert drive((0.0, 0.0, 0.5), "left") == [1.0, 1.0]  # the right one may be asked for
    assert drive((0.5, 0.0, 0.0), "left", "right", "tail") == [1.0, 0.0]  # as it is asked
    assert rig.level(LEFT[0]) == 0.5


def test_servos_start_one_after_the_other(rig: Rig) -> None:
    rig.out.enable()
    seen: list[int] = []
    for _ in range(100):
        rig.drive()
        seen.append(sum(rig.pulse(channel) is not None for channel in range(3)))
    assert seen[0] == 1
    first_two = seen.index(2)
    assert first_two == pytest.approx(100 * STAGGER_S, abs=1)
    assert seen.index(3) == pytest.approx(200 * STAGGER_S, abs=2)


def test_servos_move_no_faster_than_they_can(rig: Rig) -> None:
    servo = twin().servo[0]
    rig.out.enable()
    rig.run(1.0)
    before = rig.out.last["tilt"]
    rig.run(0.1, servos=(servo.max_rad, 0.0, 0.0))
    assert rig.out.last["tilt"] - before == pytest.approx(0.1 * servo.slew_radps)
    rig.run(1.0, servos=(servo.max_rad, 0.0, 0.0))
    assert rig.out.last["tilt"] == servo.max_rad
    rig.clock.advance(9.0)  # a pause is no leave to jump
    rig.out.drive(ActuatorCommand(motors=(0.0,) * 3, servos=(servo.min_rad, 0.0, 0.0)))
    assert rig.out.last["tilt"] == pytest.approx(servo.max_rad - 0.1 * servo.slew_radps)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1.1, -1.1, "0.5"])
def test_a_bad_throttle_stops_that_motor_only_and_is_named(rig: Rig, bad: Any) -> None:
    rig.out.enable()
    rig.drive(motors=(0.5, 0.5, 0.5))
    rig.drive(motors=(bad, 0.6, 0.6))
    assert rig.level(LEFT[0]) == rig.level(LEFT[1]) == 0.0
    assert rig.level(RIGHT[0]) == 0.6
    assert rig.out.refused == {"left": 1}
    assert rig.out.last_refusal.startswith("left: ")
    assert rig.out.last["left"] == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 7.0])
def test_a_bad_angle_sends_that_servo_to_neutral_and_is_named(rig: Rig, bad: float) -> None:
    rig.out.enable()
    rig.run(1.0, servos=(0.5, 0.2, 0.2))
    rig.run(1.0, servos=(0.5, bad, 0.2))
    assert rig.out.last["elevator"] == 0.0
    assert rig.out.last["rudder"] == pytest.approx(0.2)
    assert rig.out.refused == {"elevator": 100}


@pytest.mark.parametrize("motors", [(), (1.0,), (1.0,) * 4])
def test_a_wrong_length_stops_all_motors(rig: Rig, motors: tuple[float, ...]) -> None:
    rig.out.enable()
    rig.drive(motors=(1.0, 1.0, 1.0))
    rig.drive(motors=motors)
    assert [rig.level(pin) for pin in (*LEFT, *RIGHT, *TAIL)] == [0.0] * 6
    assert rig.out.refused == {"motors": 1}
    rig.drive(servos=(0.1,))
    assert rig.out.refused["servos"] == 1


@given(st.lists(st.floats(), max_size=5), st.lists(st.floats(), max_size=5))
def test_whatever_comes_the_pins_stay_in_range(motors: list[float], servos: list[float]) -> None:
    rig = Rig()
    rig.out.enable()
    rig.run(0.5)
    rig.drive(motors=tuple(motors), servos=tuple(servos))
    assert all(0.0 <= level <= 1.0 for _, level in rig.buses.levels)
    assert all(math.isfinite(value) for value in rig.out.last.values())
    for channel, servo in enumerate(twin().servo):
        counts = rig.pulse(channel)
        assert counts is not None
        assert servo.min_pulse_s - 5e-6 <= counts * 122 / 25e6 <= servo.max_pulse_s + 5e-6


def test_arithmetic_just_beyond_a_limit_is_clipped_not_refused(rig: Rig) -> None:
    rig.out.enable()
    rig.drive(motors=(1.0 + 1e-9, -1.0 - 1e-9, 0.0))
    assert rig.out.refused == {}
    assert rig.level(LEFT[0]) == 1.0


def test_safe_stops_everything_and_holds(rig: Rig) -> None:
    rig.out.enable()
    rig.run(1.0, motors=(1.0, 1.0, 1.0), servos=(0.3, 0.3, 0.3))
    assert rig.out.safe() == ()
    assert {pin.level for pin in rig.buses.pins.values()} == {0.0}
    assert rig.chip.memory[0xFD] == 0x10
    rig.chip.writes.clear()
    rig.run(0.05, motors=(1.0, 1.0, 1.0))
    assert {pin.level for pin in rig.buses.pins.values()} == {0.0}
    assert rig.chip.writes == []


def test_safe_tries_every_device_although_others_fail(rig: Rig) -> None:
    rig.out.enable()
    rig.run(1.0, motors=(1.0, 1.0, 1.0))
    rig.buses.bus.dead.add(0x40)
    rig.buses.dead_pins.add(NSLEEP_MAIN)
    errors = rig.out.safe()
    assert [error.split(":")[0] for error in errors] == ["motors_main", "servos"]
    assert rig.level(NSLEEP_TAIL) == 0.0
    assert rig.level(LEFT[0]) == 0.0
    assert rig.out.last["left"] == 0.0


def test_disable_writes_once(rig: Rig) -> None:
    rig.out.enable()
    rig.drive(motors=(1.0, 1.0, 1.0))
    rig.out.disable()
    assert rig.level(NSLEEP_MAIN) == 0.0
    rig.buses.levels.clear()
    rig.out.disable()
    assert rig.buses.levels == []


def test_a_dead_servo_board_leaves_the_motors_flying(rig: Rig) -> None:
    rig.out.enable()
    rig.buses.bus.dead.add(0x40)
    rig.run(1.0, motors=(0.5, 0.5, 0.5), servos=(0.3, 0.3, 0.3))
    assert "servos" in rig.out.unhealthy
    assert rig.level(LEFT[0]) == 0.5
    assert "0x40" in rig.out.status(rig.clock.now_s())["servos"].error
    rig.buses.bus.dead.clear()
    rig.run(1.5, motors=(0.5, 0.5, 0.5), servos=(0.3, 0.3, 0.3))
    assert not rig.out.unhealthy
    assert all(rig.pulse(channel) is not None for channel in range(3))


def test_closing_twice_releases_every_pin_once(rig: Rig) -> None:
    rig.out.enable()
    rig.drive(motors=(1.0, 1.0, 1.0))
    rig.board.close()
    rig.board.close()
    assert rig.buses.pins == {}
    assert rig.buses.levels[-1][1] == 0.0


def test_motors_are_made_safe_before_a_bus_that_may_hang(rig: Rig) -> None:
    rig.out.enable()
    rig.run(1.0, motors=(1.0, 1.0, 1.0))
    seen: list[float] = []
    rig.chip.on_write = lambda register, data: seen.append(rig.level(NSLEEP_TAIL))
    rig.out.safe()
    assert seen == [0.0]


def test_values_on_their_way_out_when_the_watchdog_says_safe_are_undone(rig: Rig) -> None:
    rig.out.enable()
    rig.run(1.0, servos=(0.1, 0.1, 0.1))

    def interrupt(register: int, data: bytes) -> None:
        if register != 0xFD:
            rig.chip.on_write = lambda register, data: None
            rig.out.safe()

    rig.chip.on_write = interrupt
    rig.drive(motors=(1.0, 1.0, 1.0), servos=(0.2, 0.1, 0.2))
    assert rig.chip.writes[-1] == (0xFD, b"\x10")
    assert {pin.level for pin in rig.buses.pins.values()} == {0.0}


def test_enabling_in_the_middle_of_safe_does_not_hide_that_outputs_sleep(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog's thread waits for a bus, and the loop comes back meanwhile."""
    rig.out.enable()
    last = rig.out.outputs[-1]
    make_safe = last.safe

    def safe_late() -> None:
        rig.out.enable()  # the loop's thread
        make_safe()

    monkeypatch.setattr(last, "safe", safe_late)
    rig.out.safe()
    assert not last.enabled
    assert not rig.out.enabled
