"""Inertial sensors on the bench: six positions of the accelerometer, level, and the gyro.

Source: the six-position test (Titterton and Weston, Strapdown Inertial Navigation Technology,
section 8.3): with an axis up and down, half the sum is its bias, half the difference over g is
its scale. Specific force in the body frame: (0, 0, -g) level and at rest.
"""

from collections.abc import Iterable, Mapping
from math import atan2, degrees, hypot
from statistics import fmean

import msgspec

from blimp.errors import BoardError
from blimp.hardware.calibration import LEVEL_RAD, Calibration, Correction
from blimp.service.bench.airframe_file import AirframeFile
from blimp.service.bench.person import Person
from blimp.service.bench.ship import BenchShip
from blimp.types import Vec3

G_MPS2 = 9.80665
TOLERANCE_MPS2 = 2.0  # of a reading to its position: more is another position, or a fault
STILL_RADPS = 0.1  # moved by hand while it was measured
REST_MPS2 = 0.3  # from g, of a calibrated accelerometer at rest
GYRO_SPREAD_RADPS = 0.02  # at rest: as the attitude filter asks at every start
GYRO_DRIFT_RADPS = 0.002  # between the halves of a measurement
SAMPLES, GYRO_SAMPLES, SAMPLE_S = 20, 60, 0.1
UNIT = "m/s², rad/s"  # what a sensor's unit begins with; a field may follow
_DIGITS = 5


class Position(msgspec.Struct, frozen=True):
    """axis: of the body, along the vertical. sign: of the specific force on it."""

    name: str
    axis: int
    sign: float

    def problem(self, accel: Vec3) -> str:
        """Return why a reading cannot be of this position, "" if it can."""
        for axis, value in enumerate(accel):
            expected = self.sign * G_MPS2 if axis == self.axis else 0.0
            if abs(value - expected) > TOLERANCE_MPS2:
                return (
                    f"reads {accel[0]:.1f}, {accel[1]:.1f}, {accel[2]:.1f} m/s², which is not "
                    f"{self.name}"
                )
        return ""


POSITIONS = (
    Position("level", 2, -1.0),
    Position("upside down", 2, 1.0),
    Position("nose up", 0, 1.0),
    Position("nose down", 0, -1.0),
    Position("on its left side", 1, 1.0),
    Position("on its right side", 1, -1.0),
)


class Sensor:
    """The ship's inertial sensor, as it reads without the file's calibration."""

    def __init__(self, file: AirframeFile, ship: BenchShip, *, name: str) -> None:
        self._file = file
        self._ship = ship
        self.name = name
        row = next(row for row in file.airframe.device if row.name == name)
        self._used = _calibration(row.options)  # by the flight process, until its restart
        self._correction = Correction(self._used, who=name)

    @property
    def calibration(self) -> Calibration:
        """What the file says by now."""
        return _calibration(self._file.options(self.name))

    def read(self, samples: int) -> list[tuple[float, ...]]:
        """Return as many readings as the flight process gives them, a tenth of a second apart."""
        rows = []
        for _ in range(samples):
            self._ship.step(SAMPLE_S)
            value = self._ship.snapshot().sensors[self.name].value
            assert isinstance(value, tuple)
            rows.append(value)
        return rows

    def mean(self) -> tuple[Vec3, str]:
        """Return the mean acceleration, calibrated as it is now, and why it is no use, or ""."""
        rows = self.read(SAMPLES)
        turning = max(hypot(*row[3:6]) for row in rows)
        problem = f"it turned at {turning:.2f} rad/s" if turning > STILL_RADPS else ""
        return _mean([row[:3] for row in rows]), problem

    def raw_acceleration(self, read: Vec3) -> Vec3:
        used, board = self._used, self._correction.turned_back(read)
        return _vector(
            value / scale + bias
            for value, scale, bias in zip(
                board, used.accel_scale, used.accel_bias_mps2, strict=True
            )
        )

    def raw_rates(self, read: Vec3) -> Vec3:
        board = self._correction.turned_back(read)
        return _vector(a + b for a, b in zip(board, self._used.gyro_bias_radps, strict=True))

    def raw_field_t(self, read: Vec3) -> Vec3:
        """From a field in tesla, as the flight process gives it."""
        return self._correction.field_back(read)

    def set(self, person: Person, **options: object) -> bool:
        """Write options to the file if they are plausible; else tell why not."""
        try:
            _calibration({**self._file.options(self.name), **options}).check(who=self.name)
        except BoardError as error:
            person.note(f"{error}: nothing changed")
            return False
        self._file.set_options(self.name, **options)
        return True


def sensor(file: AirframeFile, ship: BenchShip, person: Person) -> Sensor | None:
    """Return the inertial sensor that answers; None if none does, and the person knows."""
    sensors = ship.snapshot().sensors
    for row in file.airframe.device:
        status = sensors.get(row.name)
        if status is not None and status.unit.startswith(UNIT) and status.healthy:
            return Sensor(file, ship, name=row.name)
    person.note("no inertial sensor answers")
    return None


def accelerometer(file: AirframeFile, ship: BenchShip, person: Person) -> None:
    """Bias and scale of the accelerometer, from six positions."""
    device = sensor(file, ship, person)
    if device is None:
        return
    readings: dict[str, Vec3] = {}
    for position in POSITIONS:
        while position.name not in readings:
            question = f"Put the board {position.name} and hold it"
            if person.choose(question, "ready", "stop") == "stop":
                return
            accel, problem = device.mean()
            problem = problem or position.problem(accel)
            if problem:
                person.note(f"{problem}: again")
            else:
                readings[position.name] = device.raw_acceleration(accel)
    bias, scale = solve(readings)
    device.set(person, accel_bias_mps2=rounded(bias), accel_scale=rounded(scale))


def solve(readings: Mapping[str, Vec3]) -> tuple[Vec3, Vec3]:
    """Return bias and scale from the mean raw reading of every position."""
    bias, scale = [0.0] * 3, [0.0] * 3
    for axis in range(3):
        plus, minus = (
            next(readings[p.name][axis] for p in POSITIONS if (p.axis, p.sign) == (axis, sign))
            for sign in (1.0, -1.0)
        )
        bias[axis] = 0.5 * (plus + minus)
        scale[axis] = 2.0 * G_MPS2 / (plus - minus)
    return _vector(bias), _vector(scale)


def level(file: AirframeFile, ship: BenchShip, person: Person) -> None:
    """How the board stands against the ship, from the plumb line while the ship is level."""
    device = sensor(file, ship, person)
    if device is None:
        return
    question = "Put the ship level, by a spirit level along and across its hull, and let it rest"
    while person.choose(question, "ready", "stop") == "ready":
        accel, problem = device.mean()
        now = msgspec.structs.replace(device.calibration, level_rad=(0.0, 0.0))
        board = Correction(now, who=device.name).acceleration(device.raw_acceleration(accel))
        x, y, z = board
        if not problem and abs(hypot(*board) - G_MPS2) > REST_MPS2:
            problem = (
                f"it reads {hypot(*board):.2f} m/s² at rest: calibrate the accelerometer first"
            )
        roll, pitch = atan2(-y, -z), atan2(x, hypot(y, z))
        if not problem and max(abs(roll), abs(pitch)) > LEVEL_RAD[1]:
            problem = (
                f"the board stands at roll {degrees(roll):.1f}, pitch {degrees(pitch):.1f} "
                f"degrees, {degrees(LEVEL_RAD[1]):.0f} are the most: its option mounting is wrong, "
                "or the ship is not level"
            )
        if not problem:
            device.set(person, level_rad=rounded((roll, pitch)))
            return
        person.note(f"{problem}: nothing changed")


def gyro(file: AirframeFile, ship: BenchShip, person: Person) -> None:
    """The gyro's bias, for a start in the air; at rest it is measured at every start."""
    device = sensor(file, ship, person)
    if device is None:
        return
    question = f"Leave the ship alone for {GYRO_SAMPLES * SAMPLE_S:g} s"
    while person.choose(question, "ready", "stop") == "ready":
        rows = [row[3:6] for row in device.read(GYRO_SAMPLES)]
        half = len(rows) // 2
        first, second = _mean(rows[:half]), _mean(rows[half:])
        spread = max(max(column) - min(column) for column in zip(*rows, strict=True))
        drift = max(abs(a - b) for a, b in zip(first, second, strict=True))
        if spread > GYRO_SPREAD_RADPS:
            problem = f"the rates spread over {spread:.3f} rad/s, at rest {GYRO_SPREAD_RADPS:g}"
        elif drift > GYRO_DRIFT_RADPS:
            problem = f"the bias drifts by {drift:.4f} rad/s: let the sensor get warm"
        else:
            bias = device.raw_rates(_mean(rows))
            device.set(person, gyro_bias_radps=rounded(bias))
            return
        person.note(f"{problem}: nothing changed")


def rounded(values: tuple[float, ...], digits: int = _DIGITS) -> list[float]:
    return [round(value, digits) + 0.0 for value in values]  # + 0.0: no "-0.0"


def _calibration(options: Mapping[str, object]) -> Calibration:
    known = {key: options[key] for key in Calibration.__struct_fields__ if key in options}
    return msgspec.convert(known, Calibration)


def _mean(rows: list[tuple[float, ...]]) -> Vec3:
    return _vector(fmean(column) for column in zip(*rows, strict=True))


def _vector(values: Iterable[float]) -> Vec3:
    x, y, z = values
    return x, y, z
