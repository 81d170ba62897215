"""Hard and soft iron: what the simulated magnetometer was given is found again, or refused."""

import re
from math import acos, cos, pi, sin, sqrt
from pathlib import Path
from random import Random

import pytest

from blimp import airframe
from blimp.hardware.calibration import Calibration, Correction
from blimp.rotation import from_euler
from blimp.service.bench.magnetometer import DIRECTIONS, ROUND_SAMPLES, fit
from blimp.ship import Lockstep
from blimp.sim.chips.icm20948 import Icm20948
from blimp.types import Vec3
from tests.service.bench.bench import TWIN_TEXT, Script, With, options, run

pytestmark = pytest.mark.slow  # in all, tens of seconds of computing

FIELD_T = 49.4e-6  # of EARTH_FIELD_NED_T
HARD_T = (12e-6, -25e-6, 8e-6)
SOFT = ((1.10, 0.04, 0.0), (0.04, 0.95, -0.03), (0.0, -0.03, 1.02))


def directions(count: int) -> list[Vec3]:
    """Return unit vectors that cover the sphere evenly: a Fibonacci spiral."""
    found = []
    for i in range(count):
        z = 1.0 - 2.0 * (i + 0.5) / count
        angle, r = i * pi * (3.0 - sqrt(5.0)), sqrt(1.0 - z * z)
        found.append((r * cos(angle), r * sin(angle), z))
    return found


def readings(where: list[Vec3], *, noise_t: float, field_t: float = FIELD_T) -> list[Vec3]:
    random = Random(3)
    found = []
    for v in where:
        x, y, z = (
            field_t * sum(a * b for a, b in zip(row, v, strict=True))
            + hard
            + random.gauss(0.0, noise_t)
            for row, hard in zip(SOFT, HARD_T, strict=True)
        )
        found.append((x, y, z))
    return found


def test_hard_and_soft_iron_are_found_within_a_microtesla() -> None:
    found = fit(readings(directions(300), noise_t=0.3e-6))
    assert found.problem() == ""
    assert found.directions == len(DIRECTIONS)
    assert [1e6 * x for x in found.bias_t] == pytest.approx([1e6 * x for x in HARD_T], abs=0.3)
    assert found.residual_t == pytest.approx(0.3e-6, rel=0.3)
    correction = Correction(
        Calibration(magnetic_bias_t=found.bias_t, magnetic_matrix=found.matrix), who="imu"
    )
    for v, read in zip(directions(300), readings(directions(300), noise_t=0.0), strict=True):
        field = correction.field(read)
        angle = acos(min(1.0, sum(a * b for a, b in zip(field, v, strict=True)) / _norm(field)))
        assert angle < 0.02, "one degree"
        assert _norm(field) == pytest.approx(found.field_t, rel=0.01)
        assert correction.field_back(field) == pytest.approx(read, abs=1e-12)


@pytest.mark.parametrize(
    ("where", "noise_t", "field_t", "reason"),
    [
        ([v for v in directions(400) if v[2] > 0.0], 0.3e-6, FIELD_T, "9 of 14 directions"),
        (directions(300), 3e-6, FIELD_T, r"miss the ellipsoid by (2\.[5-9]|3\.[0-5]) µT, 1.6 are"),
        (directions(300), 0.3e-6, 90e-6, "the field is 9[0-4] µT, the Earth's 20 to 70"),
    ],
)
def test_a_bad_fit_is_refused_with_its_number(
    where: list[Vec3], noise_t: float, field_t: float, reason: str
) -> None:
    found = fit(readings(where, noise_t=noise_t, field_t=field_t))
    assert re.search(reason, found.problem()), found.problem()


@pytest.mark.parametrize(
    "where",
    [
        [(1.0, 0.0, 0.0)] * 100,
        [(cos(i / 10), sin(i / 10), 0.0) for i in range(100)],
    ],
)
def test_a_board_that_was_not_turned_has_no_fit(where: list[Vec3]) -> None:
    with pytest.raises(ValueError, match=r"100 readings .* too few directions"):
        fit(readings(where, noise_t=0.0))


def _norm(v: Vec3) -> float:
    return sqrt(sum(x * x for x in v))


def test_a_ship_that_is_turned_by_hand(path: Path) -> None:
    """From the chip's registers to the file, and back: north is north at every attitude."""
    start = TWIN_TEXT.index('name = "imu"')
    end = TWIN_TEXT.index("rate_hz", start)
    text = TWIN_TEXT[:start] + (
        'name = "imu" # at the centre of gravity\nchip = "icm20948"\nbus = "i2c-1"\n'
        "address = 0x69\noptions = { level_rad = [0.05, -0.03] } # by eye\n"
    ) + TWIN_TEXT[end:]  # fmt: skip
    path.write_text(text, "utf-8")
    random = Random(5)
    with Lockstep(airframe=str(path), bench=True) as ship:
        chip = ship.world.electronics.chip("imu")
        assert isinstance(chip, Icm20948)
        chip.compass.hard_iron_t = list(HARD_T)
        chip.compass.soft_iron = SOFT
        script = Script("Magnetometer")
        steps = 0

        def step(seconds: float) -> None:
            nonlocal steps
            steps += 1
            most = 0.4 if steps <= ROUND_SAMPLES else pi  # at first the ship is only swung about
            roll, pitch, yaw = (random.uniform(-most, most) for _ in range(3))
            ship.world.hold(from_euler(roll, pitch / 2.0, yaw))
            ship.step(seconds)

        assert run(path, With(ship, step=step), script)[0]
        refused = [
            text for text in script.asked if text.endswith("nothing changed (go on, start again)")
        ]
        assert len(refused) == 1
        assert "200 readings lie on no ellipsoid" in refused[0], refused
    found = options(airframe.load(str(path)).device, "imu")
    x, y, z = HARD_T  # chip axes; the board lies flat
    assert [1e6 * v for v in found["magnetic_bias_t"]] == pytest.approx(
        [1e6 * x, -1e6 * y, -1e6 * z], abs=0.5
    )
    assert found["level_rad"] == [0.05, -0.03]
    assert "# by eye" in path.read_text("utf-8")
