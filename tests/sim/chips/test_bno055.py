"""The simulated BNO055 against its data sheet."""

import struct
from typing import Any

import pytest

from tests.sim.bench import Bench


def fitted() -> tuple[Bench, Any]:
    bench = Bench()
    chip = bench.fit("imu", chip="bno055", bus="serial", port="/dev/ttyAMA2", baud=115200)
    bench.run(1.0)
    return bench, chip


def ask(bench: Bench, chip: Any, order: str) -> bytes:
    bench.sent.clear()
    chip.receive(bytes.fromhex(order))
    bench.run(0.02)
    return b"".join(data for _, data in bench.sent)


def test_the_frames_of_4_7() -> None:
    bench, chip = fitted()
    assert ask(bench, chip, "aa010001") == bytes.fromhex("bb01a0")
    assert ask(bench, chip, "aa010004") == bytes.fromhex("bb04a0fb320f")
    assert ask(bench, chip, "aa003b0100") == bytes.fromhex("ee01")
    assert ask(bench, chip, "aa013b01") == bytes.fromhex("bb0100")
    assert ask(bench, chip, "aa00000155") == bytes.fromhex("ee05"), "an identity is read only"
    assert ask(bench, chip, "55010001") == bytes.fromhex("ee06")
    assert ask(bench, chip, "aa017f02") == bytes.fromhex("ee02")


def test_half_an_order_is_given_up_after_30_ms() -> None:
    bench, chip = fitted()
    assert ask(bench, chip, "aa01") == b""
    assert ask(bench, chip, "0001") == bytes.fromhex("bb01a0")
    assert ask(bench, chip, "aa01") == b""
    bench.run(0.05)
    assert ask(bench, chip, "aa010001") == bytes.fromhex("bb01a0")


def test_a_reset_says_nothing_for_650_ms() -> None:
    bench, chip = fitted()
    assert ask(bench, chip, "aa003d0107") == bytes.fromhex("ee01")
    assert ask(bench, chip, "aa003f0120") == b""
    assert ask(bench, chip, "aa010001") == b""
    bench.run(0.65)
    assert ask(bench, chip, "aa013d01") == bytes.fromhex("bb0100"), "in configuration mode"


def test_it_measures_in_its_modes_only() -> None:
    bench, chip = fitted()
    assert ask(bench, chip, "aa01082d") == bytes.fromhex("bb2d") + bytes(45)
    ask(bench, chip, "aa003d0101")  # accelerometer only
    data = ask(bench, chip, "aa01082d")[2:]
    accel, rest = struct.unpack_from("<3h", data), data[6:18]
    assert accel[2] == pytest.approx(981, abs=25)
    assert rest == bytes(12)
    bench.truth.rates_body_radps = (0.0, 0.0, -1.0)
    ask(bench, chip, "aa003d0107")
    data = ask(bench, chip, "aa01082d")[2:]
    assert struct.unpack_from("<3h", data, 12)[2] == pytest.approx(16 * 57.3, abs=35)
    assert struct.unpack_from("<3h", data, 6)[2] == pytest.approx(-16 * 45, abs=200)
    assert data[-1] == 15
