import time
from typing import Any

import msgspec
import pytest

from blimp import airframe
from blimp.airframe import Airframe
from blimp.airframe import Device as Row
from blimp.clock import ManualClock
from blimp.errors import BoardError
from blimp.hardware.board import check, open_board, safe_state
from tests.hardware.doubles import Doubles, RegisterChip
from tests.hardware.ships import changed, twin, with_devices


def refused(ship: Airframe) -> str:
    with pytest.raises(BoardError) as caught:
        check(ship)
    return str(caught.value)


def added(row: Row) -> str:
    return refused(with_devices(*twin().device, row))


def test_the_twins_board_is_sound() -> None:
    check(twin())


@pytest.mark.parametrize(
    ("row", "other", "place"),
    [
        (
            Row(name="power2", chip="ina219", bus="i2c-1", address=0x40),
            "'servos' (pca9685)",
            "i2c-1 address 0x40",
        ),
        (
            Row(name="ranger2", chip="tfluna", bus="i2c-1", address=0x70),
            "'servos' (pca9685)",
            "i2c-1 address 0x70",
        ),
        (
            Row(name="ranger2", chip="tfluna", bus="i2c-1", address=0x68),
            "'imu' (mpu6050)",
            "i2c-1 address 0x68",
        ),
        (
            Row(name="gps2", chip="gps-nmea", bus="serial", port="/dev/ttyAMA0"),
            "'tag' (dwm1001)",
            "serial port /dev/ttyAMA0",
        ),
        (
            Row(name="sonar2", chip="hcsr04", bus="gpio", pins={"trigger": 5, "echo": 12}),
            "'motors_main' (drv8833)",
            "GPIO 12",
        ),
    ],
)
def test_a_clash_names_both_devices_and_the_place(row: Row, other: str, place: str) -> None:
    # The new one alone beside the one it clashes with, so that no two fill one role.
    kept = [d for d in twin().device if f"'{d.name}' ({d.chip})" == other]
    message = refused(with_devices(*kept, row))
    assert other in message
    assert f"{row.name!r} ({row.chip})" in message
    assert place in message


@pytest.mark.parametrize("pin", [2, 3])
def test_the_buses_own_pins_are_taken(pin: int) -> None:
    message = refused(changed("sonar", pins={"trigger": pin, "echo": 24}))
    assert f"GPIO {pin}" in message
    assert "'sonar'" in message
    assert "'i2c-1'" in message


def test_the_serial_ports_and_the_spi_buses_own_pins_are_taken() -> None:
    message = refused(changed("sonar", pins={"trigger": 23, "echo": 15}))
    assert "GPIO 15" in message
    assert "/dev/ttyAMA0" in message
    flow = Row(name="flow", chip="pmw3901", bus="spi-0.0")
    sonar = Row(name="sonar", chip="hcsr04", bus="gpio", pins={"trigger": 23, "echo": 10})
    assert "GPIO 10" in refused(with_devices(flow, sonar))


def test_two_devices_that_measure_the_same_are_named() -> None:
    other = Row(name="other", chip="bmp388", bus="i2c-1", address=0x77)
    message = added(other)
    assert message == "devices 'baro' and 'other' both measure for 'baro'"


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("baro", {"chip": "bmp999"}, "device 'baro' has chip 'bmp999'; known chips: bmp280, "),
        ("baro", {"address": 0x40}, "device 'baro' (bmp280) has address 0x40, but can have 0x76"),
        ("baro", {"address": None}, "has no address"),
        ("baro", {"bus": "gpio"}, "is on bus 'gpio', but needs one like 'i2c-1'"),
        ("baro", {"bus": "i2c-one"}, "is on bus 'i2c-one'"),
        ("baro", {"outputs": {"0": "tilt"}}, "no channels: it is a sensor"),
        ("baro", {"pins": {"reset": 4}}, "has no use for pin 'reset'"),
        ("tag", {"port": ""}, "device 'tag' (dwm1001) has no port"),
        ("tag", {"bus": "i2c-1"}, "but needs one like 'serial'"),
        ("sonar", {"pins": {"trigger": 23}}, "needs pin 'echo'; given: trigger"),
        ("sonar", {"pins": {"trigger": 23, "echo": 23}}, "'trigger' and 'echo' are both GPIO 23"),
        ("servos", {"outputs": {"16": "tilt"}}, "on channel '16', but has 0, 1, "),
        ("servos", {"outputs": {"00": "tilt"}}, "on channel '00'"),
        ("servos", {"outputs": {"0": "oar"}}, "drives servos and thrusters, and 'oar' on channel"),
        ("motors_main", {"outputs": {"c": "left"}}, "on channel 'c', but has a, b"),
        ("motors_main", {"outputs": {"a": "tilt"}}, "drives thrusters, and 'tilt'"),
        (
            "motors_tail",
            {"outputs": {"b": "tail"}},
            "device 'motors_tail' (drv8833) needs pin 'bin1'",
        ),
    ],
)
def test_a_wrong_row_says_what_and_where(name: str, changes: dict[str, Any], expected: str) -> None:
    assert expected in refused(changed(name, **changes))


def test_wrong_options_are_refused_at_open() -> None:
    ship = changed("imu", options={"mounting": ["x", "y", "-z"]})
    with pytest.raises(BoardError, match="imu: mounting x, y, -z is not right-handed"):
        open_board(ship, buses=Doubles(), clock=ManualClock())


def test_devices_that_are_missing_stop_nothing_and_are_named() -> None:
    buses = Doubles()
    buses.missing = {"/dev/ttyAMA0"}
    buses.bus.chips[0x68] = RegisterChip({0x75: b"\x47"})
    with open_board(twin(), buses=buses, clock=ManualClock()) as board:
        results = board.self_test()
        assert results["imu"] == (
            "imu: mpu6050 at i2c-1 address 0x68: WHO_AM_I (0x75) reads 0x47, expected "
            "0x68 or 0x70 or 0x71 or 0x73 or 0x74 or 0x98; it answers as ICM-42688-P"
        )
        assert "0x76" in results["baro"]
        assert "/dev/ttyAMA0" in results["tag"]
        assert results["motors_main"] == "starting"
        assert set(results) == {row.name for row in twin().device}
        readings = board.read(0.1)
        assert set(readings.unhealthy) == set(results)
        assert set(board.status(0.1)) == set(results)


def test_leaving_the_board_makes_the_outputs_safe() -> None:
    buses = Doubles()
    buses.bus.chips[0x40] = chip = RegisterChip({0x05: b"\xe0"})
    clock = ManualClock()
    with open_board(twin(), buses=buses, clock=clock):
        pass
    assert chip.writes[-1] == (0xFD, b"\x10")
    assert buses.pins == {}


def test_safe_state_opens_the_outputs_only_and_is_quick() -> None:
    buses = Doubles()
    buses.bus.chips[0x40] = chip = RegisterChip({0x05: b"\xe0"})
    started_s = time.thread_time()
    results = safe_state(twin(), buses=buses)
    assert time.thread_time() - started_s < 0.05
    assert results == {"servos": "", "motors_main": "", "motors_tail": ""}
    assert chip.writes == [(0xFD, b"\x10")]
    assert {level for _, level in buses.levels} == {0.0}
    assert {pin for pin, _ in buses.levels} == {6, 13, 19, 26, 12, 16, 20, 21}
    assert buses.ports == {}


def test_a_wrong_option_is_refused_before_anything_is_opened_and_stops_no_safe_state() -> None:
    ship = twin()
    rows = tuple(
        msgspec.structs.replace(row, options={"level_rad": (1.0, 0.0)})
        if row.name == "imu"
        else row
        for row in ship.device
    )
    wrong = msgspec.structs.replace(ship, device=rows)
    with pytest.raises(BoardError, match=r"imu: level_rad .* is outside"):
        check(wrong)
    results = safe_state(wrong, buses=Doubles())
    assert results["motors_main"] == results["motors_tail"] == ""


def test_safe_state_names_what_failed_and_does_the_rest() -> None:
    buses = Doubles()
    buses.dead_pins = {12}
    results = safe_state(twin(), buses=buses)
    assert "0x40" in results["servos"]
    assert "GPIO 12" in results["motors_main"]
    assert results["motors_tail"] == ""
    assert (6, 0.0) in buses.levels


def test_every_airframe_of_the_package_has_a_sound_board() -> None:
    for name in airframe.names():
        check(airframe.load(name))
