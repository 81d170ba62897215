"""Frames and scales of BST-BNO055-DS000: 4.7 (UART), table 3-17 and following (LSB)."""

import math
import struct
from typing import Any

import pytest

from blimp.errors import DeviceError
from blimp.hardware.bno055 import Bno055, read_order, reply, write_order
from tests.hardware.doubles import Doubles, Port, on_port, well


def block(
    accel: tuple[int, int, int] = (0, 0, 981),
    magnetic: tuple[int, int, int] = (320, -160, 720),
    gyro: tuple[int, int, int] = (0, 0, 0),
    celsius: int = 25,
) -> bytes:
    return struct.pack("<9h", *accel, *magnetic, *gyro) + bytes(26) + bytes([celsius & 0xFF])


class Chip:
    """Answers each order at once, from a register array."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.orders: list[bytes] = []
        self.identity = bytes((0xA0, 0xFB, 0x32, 0x0F))
        self.block = block()
        self.silent = False
        self.instead = b""  # sent instead of an answer

    def answer(self) -> None:
        """Take what was written since the last call."""
        written, self.port.written = self.port.written, b""
        while written:
            length = 5 if written[1] == 0 else 4
            order, written = written[:length], written[length:]
            self.orders.append(order)
            if self.silent or order == write_order(0x3F, 0x20):
                continue
            if self.instead:
                self.port.arrive(self.instead)
            elif order[1] == 0:
                self.port.arrive(b"\xee\x01")
            else:
                data = self.identity if order[2] == 0 else self.block
                self.port.arrive(bytes((0xBB, order[3])) + data)


def fitted(**options: Any) -> tuple[Bno055, Chip, Doubles]:
    row: dict[str, Any] = {"name": "imu", "chip": "bno055", "baud": 115200, "rate_hz": 100.0}
    imu, port, buses = on_port(Bno055, port="/dev/ttyAMA2", polls=1, **row, options=options)
    return imu, Chip(port), buses


def poll(imu: Bno055, chip: Chip, start_s: float, end_s: float) -> float:
    """Poll at 100 Hz; return the time of the next poll."""
    steps = round((end_s - start_s) * 100)
    for step in range(steps):
        imu.poll(start_s + 0.01 * step)
        chip.answer()
    return start_s + 0.01 * steps


def started(**options: Any) -> tuple[Bno055, Chip, float]:
    imu, chip, _ = fitted(**options)
    now_s = poll(imu, chip, 0.01, 0.85)
    assert well(imu), imu.error
    return imu, chip, now_s


def test_golden_frames() -> None:
    assert read_order(0x00, 1).hex() == "aa010001"
    assert write_order(0x3D, 0x0C).hex() == "aa003d010c"
    assert reply(bytes.fromhex("bb01a0")) == b"\xa0"
    assert reply(bytes.fromhex("ee01")) == b""
    assert reply(b"\xbb") is None
    assert reply(bytes.fromhex("bb04a0fb")) is None


@pytest.mark.parametrize(
    ("data", "said"),
    [("ee07", "0x07: bus over-run"), ("ee04", "no such register"), ("ee55", "0x55: unknown"),
     ("a0fb", "begins with 0xA0")],
)  # fmt: skip
def test_what_is_no_answer_says_why(data: str, said: str) -> None:
    with pytest.raises(DeviceError, match=said):
        reply(bytes.fromhex(data))


def test_level_and_at_rest_reads_one_g_up_and_the_field() -> None:
    imu, _, _ = started()
    assert imu.sample is not None
    assert imu.sample.accel_body_mps2 == pytest.approx((0.0, 0.0, -9.81))
    assert imu.sample.gyro_body_radps == pytest.approx((0.0, 0.0, 0.0))
    assert imu.sample.magnetic_body_t == pytest.approx((20e-6, 10e-6, -45e-6))
    assert imu.sample.temperature_c == 25.0


def test_axes_are_turned_into_the_body_frame() -> None:
    imu, chip, now_s = started(mounting=["y", "x", "-z"])
    chip.block = block(accel=(100, 200, 981), gyro=(16, 0, -160), celsius=-3)
    imu._temperature.forget()
    poll(imu, chip, now_s, now_s + 0.03)
    assert imu.sample is not None
    assert imu.sample.accel_body_mps2 == pytest.approx((2.0, 1.0, -9.81))
    rates = [math.degrees(rate) for rate in imu.sample.gyro_body_radps]
    assert rates == pytest.approx([0.0, 1.0, 10.0])
    assert imu.sample.temperature_c == -3.0


def test_an_over_run_costs_one_reading() -> None:
    imu, chip, now_s = started()
    chip.instead = bytes.fromhex("ee07")
    now_s = poll(imu, chip, now_s, now_s + 0.02)
    assert "bus over-run" in imu.error
    assert well(imu)
    chip.instead = b""
    chip.block = block(accel=(1, 2, 981))
    poll(imu, chip, now_s, now_s + 0.03)
    assert well(imu)
    assert imu.error == ""
    assert imu.sample is not None
    assert imu.sample.accel_body_mps2[0] == pytest.approx(0.01)


def test_a_chip_that_was_reset_is_lost_at_once() -> None:
    imu, chip, now_s = started()
    first = imu.sample
    chip.block = bytes(45)
    poll(imu, chip, now_s, now_s + 0.02)
    assert not well(imu)
    assert imu.sample is first
    assert "was reset" in imu.error


def test_the_same_bytes_for_25_reads_is_frozen() -> None:
    imu, chip, now_s = started()
    poll(imu, chip, now_s, now_s + 0.4)
    assert not well(imu)
    assert "frozen" in imu.error


def test_a_magnetometer_that_reads_nothing_gives_no_field() -> None:
    imu, chip, now_s = started()
    chip.block = block(accel=(1, 0, 981), magnetic=(0, 0, 0))
    poll(imu, chip, now_s, now_s + 0.03)
    assert imu.sample is not None
    assert imu.sample.magnetic_body_t is None
