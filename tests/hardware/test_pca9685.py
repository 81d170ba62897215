"""Golden values: PCA9685 data sheet 7.3.5, prescale at 25 MHz."""

import math

import pytest

from blimp.airframe import Airframe, Servo
from blimp.airframe import Device as Row
from blimp.errors import BoardError, HardwareError
from blimp.hardware.pca9685 import Pca9685, prescale
from tests.hardware.doubles import Doubles, RegisterChip, polled, well
from tests.hardware.ships import with_devices

OFF = b"\x00\x00\x00\x10"
SERVOS = (
    Servo(name="tilt", min_rad=-1.5, max_rad=1.5, slew_radps=3.0),
    Servo(name="elevator", min_rad=-0.5, max_rad=0.5, slew_radps=3.0),
    Servo(name="rudder", min_rad=-0.5, max_rad=0.5, slew_radps=3.0),
)


def ship(row: Row) -> Airframe:
    return with_devices(row, servos=SERVOS)


def fitted(
    outputs: dict[str, str] | None = None,
    pins: dict[str, int] | None = None,
    **options: object,
) -> tuple[Pca9685, RegisterChip, Doubles]:
    buses = Doubles()
    chip = RegisterChip({0x00: b"\x11", 0x01: b"\x04", 0x05: b"\xe0", 0xFE: b"\x1e"})
    buses.bus.chips[0x40] = chip
    row = Row(
        name="servos",
        chip="pca9685",
        bus="i2c-1",
        address=0x40,
        outputs=outputs or {"0": "tilt", "1": "elevator", "2": "rudder"},
        pins=pins or {},
        options=options,
    )
    return Pca9685(row=row, buses=buses, airframe=ship(row)), chip, buses


def start(servos: Pca9685) -> None:
    polled(servos, 3)
    assert well(servos), servos.error


@pytest.mark.parametrize(("frequency_hz", "expected"), [(50.0, 121), (60.0, 101), (200.0, 30)])
def test_prescales_of_the_data_sheet(frequency_hz: float, expected: int) -> None:
    assert prescale(frequency_hz) == expected


@pytest.mark.parametrize("frequency_hz", [0.0, -50.0, 10.0, 5000.0, math.nan])
def test_a_frequency_out_of_reach_is_refused(frequency_hz: float) -> None:
    with pytest.raises(ValueError, match="outside 3 to 255"):
        prescale(frequency_hz)


def test_angles_become_pulses_of_the_airframes_servos() -> None:
    servos, chip, _ = fitted()
    start(servos)
    servos.enable(0.1)
    chip.writes.clear()
    servos.write([0.0, 0.5, -0.5], 0.1)
    # 1.5, 2 and 1 ms of 25 MHz / 122 = 204918 counts a second; one transfer for three channels.
    assert chip.writes == [
        (0x06, b"\0\0" + (307).to_bytes(2, "little") + b"\0\0" + (410).to_bytes(2, "little")
         + b"\0\0" + (205).to_bytes(2, "little"))
    ]  # fmt: skip


def test_nothing_is_written_before_enable_or_after_safe() -> None:
    servos, chip, _ = fitted()
    start(servos)
    chip.writes.clear()
    servos.write([0.0, 0.0, 0.0], 0.1)
    assert chip.writes == []
    servos.enable(0.1)
    servos.write([0.0, 0.0, 0.0], 0.1)
    servos.safe()
    assert chip.writes[-1] == (0xFD, b"\x10")
    chip.writes.clear()
    servos.write([0.1, 0.1, 0.1], 0.2)
    assert chip.writes == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2.0])
def test_what_is_no_angle_never_reaches_the_chip(bad: float) -> None:
    servos, chip, _ = fitted()
    start(servos)
    servos.enable(0.1)
    chip.writes.clear()
    with pytest.raises(ValueError, match="tilt"):
        servos.write([bad, 0.0, 0.0], 0.1)
    assert chip.writes == []


def test_safe_works_on_a_chip_never_started() -> None:
    servos, chip, _ = fitted()
    servos.safe()
    assert chip.writes == [(0xFD, b"\x10")]


def test_safe_names_a_chip_that_does_not_answer() -> None:
    servos, _, buses = fitted(pins={"oe": 4})
    buses.bus.dead.add(0x40)
    with pytest.raises(HardwareError, match=r"servos may not be safe.*0x40"):
        servos.safe()
    assert buses.pins[4].level == 1.0, "OE was pulled high all the same"


def test_the_output_enable_pin_is_low_only_while_enabled() -> None:
    servos, _, buses = fitted(pins={"oe": 4})
    start(servos)
    assert buses.pins[4].level == 1.0
    servos.enable(0.1)
    assert buses.pins[4].level == 0.0
    servos.safe()
    assert buses.pins[4].level == 1.0


def test_a_chip_that_was_reset_in_flight_is_set_up_and_commanded_again() -> None:
    servos, chip, _ = fitted()
    start(servos)
    servos.enable(0.1)
    servos.write([0.0, 0.0, 0.0], 0.1)
    chip.set(0x00, b"\x11")
    chip.set(0xFE, b"\x1e")
    chip.set(0x06, OFF * 3)
    servos.poll(0.2)
    assert not well(servos)
    assert "was reset" in servos.error
    for step in range(3):
        servos.poll(0.21 + 0.01 * step)
        servos.write([0.0, 0.0, 0.0], 0.21 + 0.01 * step)
    assert well(servos)
    assert chip.memory[0xFE] == 121
    assert chip.memory[0x08] == 307 & 0xFF


def test_pulses_longer_than_the_period_are_refused() -> None:
    with pytest.raises(BoardError, match=r"servos: servo 'tilt' wants pulses"):
        fitted(frequency_hz=600.0)
    with pytest.raises(BoardError, match="servos: frequency_hz"):
        fitted(frequency_hz=5.0)


# --- ESCs on its channels ------------------------------------------------------------------

ESCS = {"0": "tilt", "4": "left", "5": "right"}


def counts(pulse_s: float) -> bytes:
    return b"\0\0" + round(pulse_s * 25e6 / 122).to_bytes(2, "little")


def armed(**options: object) -> tuple[Pca9685, RegisterChip, Doubles]:
    board, chip, buses = fitted(ESCS, {"oe": 4}, esc={"reversible": True, "arm_s": 1.0} | options)
    polled(board, 120)
    assert well(board)
    return board, chip, buses


def test_escs_get_standstill_for_a_while_before_they_are_ready() -> None:
    board, chip, buses = fitted(ESCS, {"oe": 4}, esc={"reversible": True, "arm_s": 1.0})
    assert board.start_s == 2.0, "a second as of any device, and that of the option"
    board.enable(0.0)
    for step in range(95):
        board.poll(0.01 * step)
        board.write([0.0, 1.0, 1.0], 0.01 * step)
    assert not well(board)
    still = counts(0.0015)
    assert chip.memory[0x06:0x0A] == OFF
    assert chip.memory[0x16:0x1E] == still + still
    assert buses.pins[4].level == 0.0, "OE is active low: standstill must go out"


def test_throttles_become_pulses_beside_angles() -> None:
    board, chip, _ = armed()
    board.enable(1.2)
    board.write([0.0, 0.5, -1.0], 1.2)
    assert chip.memory[0x06:0x0A] == counts(0.0015)
    assert chip.memory[0x16:0x1E] == counts(0.00175) + counts(0.001)


def test_safe_is_standstill_for_escs_and_no_pulse_for_servos() -> None:
    board, chip, buses = armed()
    board.enable(1.2)
    board.write([0.0, 1.0, 1.0], 1.2)
    buses.levels.clear()
    board.safe()
    assert chip.memory[0x16:0x1E] == counts(0.0015) + counts(0.0015)
    assert [register for register, _ in chip.writes[-3:]] == [0xFD, 0x06, 0x16], "off first"
    assert buses.levels == [(4, 1.0), (4, 0.0)], "first off, and on when standstill is there"
    board.write([0.0, 1.0, 1.0], 1.3)
    assert chip.memory[0x16:0x1A] == counts(0.0015)


def test_safe_leaves_the_output_off_when_the_bus_does_not_answer() -> None:
    board, _, buses = armed()
    board.enable(1.2)
    board.write([0.0, 1.0, 1.0], 1.2)
    buses.bus.dead.add(0x40)
    with pytest.raises(HardwareError, match="may not be safe"):
        board.safe()
    assert buses.pins[4].level == 1.0


@pytest.mark.parametrize(
    ("esc", "named"),
    [
        ({}, "thruster 'left' has reverse_thrust_n 0.55, but its ESC is not reversible"),
        ({"reversible": True, "min_pulse_s": 0.002}, "min_pulse_s 0.002"),
        ({"reversible": True, "arm_s": -1.0}, "arm_s -1.0"),
        ({"reversible": True, "arm": 1}, "arm"),
    ],
)
def test_wrong_esc_options_are_named(esc: dict[str, object], named: str) -> None:
    with pytest.raises(BoardError, match=f"servos.*{named}"):
        fitted(ESCS, esc=esc)


def test_a_throttle_out_of_range_never_reaches_the_chip() -> None:
    board, chip, _ = armed()
    board.enable(1.2)
    chip.writes.clear()
    with pytest.raises(ValueError, match="throttle nan"):
        board.write([0.0, 0.5, math.nan], 1.2)
    assert chip.writes == []
