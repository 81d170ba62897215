"""The inertial sensor: what is wrong with the simulated chip is found again."""

from collections.abc import Iterator
from math import degrees, pi, radians
from pathlib import Path
from random import Random

import msgspec
import pytest

from blimp import airframe
from blimp.rotation import from_euler
from blimp.service.bench.inertial import G_MPS2, POSITIONS
from blimp.service.computer.initialise import Question
from blimp.ship import Lockstep
from blimp.sim.chips.mpu6050 import Mpu6050
from blimp.types import Quaternion, Snapshot, Vec3
from tests.service.bench.bench import Script, With, options, run

pytestmark = pytest.mark.slow  # in all, tens of seconds of computing

HELD: dict[str, Quaternion] = {
    "level": from_euler(0.0, 0.0, 0.0),
    "upside down": from_euler(pi, 0.0, 0.0),
    "nose up": from_euler(0.0, pi / 2, 0.0),
    "nose down": from_euler(0.0, -pi / 2, 0.0),
    "on its left side": from_euler(-pi / 2, 0.0, 0.0),
    "on its right side": from_euler(pi / 2, 0.0, 0.0),
}


class Holder(Script):
    """Hold the ship as they are asked to. tilt: the board's own, against the ship."""

    def __init__(self, ship: Lockstep, *only: str, tilt: Quaternion = HELD["level"]) -> None:
        super().__init__(*only)
        self._world = ship.world
        self._tilt = tilt

    def answer(self, question: Question) -> str:
        text = question.text
        for name, attitude in HELD.items():
            if text.startswith(f"Put the board {name} "):
                self._world.hold(attitude)
        if text.startswith(("Put the ship level", "Leave the ship")):
            self._world.hold(self._tilt)
        return super().answer(question)


def imu(ship: Lockstep) -> Mpu6050:
    chip = ship.world.electronics.chip("imu")
    assert isinstance(chip, Mpu6050)
    return chip


def flat(chip_axes: list[float], by: float) -> list[float]:
    """Return a vector of chip axes in those of a board that lies flat."""
    x, y, z = chip_axes
    return [by * x, -by * y, -by * z]


def test_six_positions_level_and_gyro_give_back_the_chips_errors(
    path: Path, ship: Lockstep
) -> None:
    tilt = from_euler(radians(3.0), radians(-5.0), 0.0)
    holder = Holder(ship, "Accelerometer", "Level", "Gyro", tilt=tilt)
    inertial = imu(ship)._inertial
    inertial._accel_bias = [0.03, -0.02, 0.025]
    inertial._gyro_bias = [1.5, -0.7, 0.4]
    assert run(path, ship, holder)[0]
    found = options(airframe.load(str(path)).device, "imu")
    assert found["accel_bias_mps2"] == pytest.approx(flat(inertial._accel_bias, G_MPS2), abs=0.02)
    assert found["accel_scale"] == pytest.approx([1.0, 1.0, 1.0], abs=0.003)
    assert [degrees(x) for x in found["level_rad"]] == pytest.approx([3.0, -5.0], abs=0.15)
    bias = [degrees(rate) for rate in found["gyro_bias_radps"]]
    assert bias == pytest.approx(flat(inertial._gyro_bias, 1.0), abs=0.03)

    # The file flies: on this chip, held so, it reads plumb and still; the bench finds no change.
    with Lockstep(airframe=str(path), bench=True) as again:
        again.world.hold(tilt)
        copied = imu(again)._inertial
        copied._accel_bias, copied._gyro_bias = inertial._accel_bias, inertial._gyro_bias
        again.step(1.0)
        value = again.snapshot().sensors["imu"].value
        assert isinstance(value, tuple)
        assert value[:3] == pytest.approx((0.0, 0.0, -G_MPS2), abs=0.08)
        assert value[3:] == pytest.approx((0.0, 0.0, 0.0), abs=0.005)
        before = found
        run(path, again, Holder(again, "Accelerometer", "Level", "Gyro", tilt=tilt))
        found = options(airframe.load(str(path)).device, "imu")
        for key in ("accel_bias_mps2", "accel_scale", "gyro_bias_radps", "level_rad"):
            assert found[key] == pytest.approx(before[key], abs=0.02), key


@pytest.mark.parametrize(
    ("tilt_deg", "reason"),
    [
        (0.0, "it reads 10.30 m/s² at rest: calibrate the accelerometer first"),
        (25.0, "the board stands at roll 25."),
    ],
)
def test_a_level_that_cannot_be_is_refused(
    path: Path, ship: Lockstep, tilt_deg: float, reason: str
) -> None:
    holder = Holder(ship, "Level", tilt=from_euler(radians(tilt_deg), 0.0, 0.0))
    imu(ship)._inertial._accel_bias = [0.0, 0.0, 0.05 if tilt_deg == 0.0 else 0.0]
    asked = 0

    def answer(question: Question) -> str:
        nonlocal asked
        if question.text.startswith("Put the ship level"):
            asked += 1
            if asked > 1:
                return "stop"
        return Holder.answer(holder, question)

    holder.answer = answer  # type: ignore[method-assign]
    before = path.read_bytes()
    assert run(path, ship, holder)[0] is False
    assert holder.was_asked(reason.replace("10.30", "10.")) or holder.was_asked(reason)
    assert path.read_bytes() == before


class Readings:
    """A ship with other readings of its accelerometer and gyro."""

    def __init__(self, ship: Lockstep) -> None:
        self._ship = ship
        self._random = Random(1)
        self.position = POSITIONS[0]
        self.rates: Iterator[Vec3] | None = None
        self.ship = With(ship, snapshot=self.snapshot, step=lambda _: None)

    def snapshot(self) -> Snapshot:
        true = [0.0, 0.0, 0.0]
        true[self.position.axis] = self.position.sign * G_MPS2
        accel = [
            value / scale + bias + self._random.gauss(0.0, 0.02)
            for value, scale, bias in zip(true, (1.02, 0.99, 1.0), (0.3, -0.2, 0.1), strict=True)
        ]
        rates = (0.0, 0.0, 0.0) if self.rates is None else next(self.rates)
        snapshot = self._ship.snapshot()
        imu = msgspec.structs.replace(snapshot.sensors["imu"], value=(*accel, *rates))
        return msgspec.structs.replace(snapshot, sensors={**snapshot.sensors, "imu": imu})


def test_a_wrong_scale_is_found_and_a_wrong_position_is_asked_again(
    path: Path, ship: Lockstep
) -> None:
    readings = Readings(ship)
    script = Script("Accelerometer")
    wrong = iter([True])

    def answer(question: Question) -> str:
        for position in POSITIONS:
            if question.text.startswith(f"Put the board {position.name} "):
                readings.position = position
                if position.name == "nose up" and next(wrong, False):
                    readings.position = POSITIONS[0]  # it was not turned: asked again
        return Script.answer(script, question)

    script.answer = answer  # type: ignore[method-assign]
    assert run(path, readings.ship, script)[0]
    assert sum(text.startswith("Put the board nose up ") for text in script.asked) == 2
    found = options(airframe.load(str(path)).device, "imu")
    assert found["accel_bias_mps2"] == pytest.approx([0.3, -0.2, 0.1], abs=0.02)
    assert found["accel_scale"] == pytest.approx([1.02, 0.99, 1.0], abs=0.003)


@pytest.mark.parametrize(
    ("step", "rate", "reason"),
    [
        ("Accelerometer", lambda _: 1.0, "it turned at 1.00 rad/s: again"),
        ("Gyro", lambda i: 0.03 * (i % 2), "the rates spread over 0.030 rad/s, at rest 0.02"),
        ("Gyro", lambda i: 0.00025 * i, "the bias drifts by 0.0075 rad/s: let the sensor get warm"),
        ("Gyro", lambda _: 0.5, "gyro_bias_radps (0.5, 0.0, 0.0) is outside -0.35 to 0.35"),
    ],
)  # fmt: skip
def test_a_board_that_moves_drifts_or_is_broken_is_refused(
    path: Path, ship: Lockstep, step: str, rate: object, reason: str
) -> None:
    readings = Readings(ship)
    readings.rates = ((rate(i), 0.0, 0.0) for i in range(1000))  # type: ignore[operator]
    script = Script(step)
    asked = 0

    def answer(question: Question) -> str:
        nonlocal asked
        if "ready" in question.text:
            asked += 1
            return "ready" if asked == 1 else "stop"
        return Script.answer(script, question)

    script.answer = answer  # type: ignore[method-assign]
    before = path.read_bytes()
    assert run(path, readings.ship, script)[0] is False
    assert script.was_asked(reason), script.asked
    assert path.read_bytes() == before
