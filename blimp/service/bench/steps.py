"""What is tried on the bench. A step is a function and a row in `STEPS`."""

from collections.abc import Callable
from math import degrees, hypot, radians
from statistics import fmean

from blimp.airframe import Airframe, Servo
from blimp.service.bench.accelerometer import POSITIONS, Calibration, solve
from blimp.service.bench.airframe_file import AirframeFile
from blimp.service.bench.person import Person
from blimp.service.bench.ship import Ship, do
from blimp.types import Vec3

MOTOR_PERCENT, MOTOR_S = 25.0, 1.0
SERVO_DEG, SERVO_S = 15.0, 1.0  # slow servos need less than that to get there
SAME_DEG = 0.05  # nobody sees less
SAMPLES, SAMPLE_S = 20, 0.1
STILL_RADPS = 0.1  # moved by hand while it was measured
_DIRECTIONS = (("forward", "backward"), ("right", "left"), ("down", "up"))

Step = Callable[[AirframeFile, Ship, Person], None]


def motors(file: AirframeFile, ship: Ship, person: Person) -> None:
    """Each motor's direction."""
    for thruster in file.airframe.thruster:
        name = thruster.name
        if person.choose(f"Motor {name}: turn it for {MOTOR_S:g} s", "yes", "skip") == "skip":
            continue
        do(
            ship, "motor", within_s=MOTOR_S + 2.0, name=name, percent=MOTOR_PERCENT,
            seconds=MOTOR_S,
        )  # fmt: skip
        seen = person.choose(f"Did it push {direction(thruster.axis)}", "yes", "no", "nothing")
        if seen == "nothing":
            person.choose(f"{name}: check its wires and its supply", "go on")
        elif seen == "no" and not file.reverse_motor(name):
            person.choose(f"{name}: swap two of the three wires of its motor", "go on")


def servos(file: AirframeFile, ship: Ship, person: Person) -> None:
    """Each servo's sign, centre (which is its trim) and limits."""
    for servo in file.airframe.servo:
        if person.choose(f"Servo {servo.name}: move it", "yes", "skip") == "yes":
            _servo(servo, file, ship, person)


def _servo(servo: Servo, file: AirframeFile, ship: Ship, person: Person) -> None:
    low, centre, high = (degrees(x) for x in (servo.min_rad, servo.neutral_rad, servo.max_rad))
    turned = min(centre + SERVO_DEG, high)
    do(ship, "servo", name=servo.name, deg=turned)
    ship.step(SERVO_S)
    what = positive(servo.name, file.airframe)
    reverse = not person.agrees(f"It stands at {turned:g} degrees: did it turn {what}")
    do(ship, "servo", name=servo.name, deg=centre)
    ship.step(SERVO_S)
    off = person.number(
        f"It should stand at {centre:g} degrees. Where is it, minus that, in degrees",
        default=0.0, low=-45.0, high=45.0,
    )  # fmt: skip
    ends = []
    for end, limits in ((low, (low, centre)), (high, (centre, high))):
        do(ship, "servo", name=servo.name, deg=end)
        ship.step(SERVO_S)
        ends.append(
            person.number(
                f"The last angle before {end:.1f} degrees at which it moves freely",
                default=end, low=limits[0], high=limits[1],
            )
        )  # fmt: skip
    do(ship, "servo", name=servo.name, deg=centre)
    file.set_servo(
        servo,
        reverse=reverse,
        off_rad=radians(off),
        min_rad=servo.min_rad if abs(ends[0] - low) < SAME_DEG else radians(ends[0]),
        max_rad=servo.max_rad if abs(ends[1] - high) < SAME_DEG else radians(ends[1]),
    )


def accelerometer(file: AirframeFile, ship: Ship, person: Person) -> None:
    """Bias and scale of the accelerometer, from six positions."""
    device = next((row for row in file.airframe.device if row.name in _imus(ship)), None)
    if device is None:
        person.choose("no inertial sensor answers", "go on")
        return
    readings: dict[str, Vec3] = {}
    for position in POSITIONS:
        while position.name not in readings:
            if person.choose(f"Put the board {position.name} and hold it", "ready", "stop") == (
                "stop"
            ):
                return
            accel, turning = _measured(ship, device.name)
            problem = position.problem(accel)
            if turning > STILL_RADPS:
                problem = f"it turned at {turning:.2f} rad/s"
            if problem:
                person.choose(f"{problem}: again", "go on")
            else:
                readings[position.name] = accel
    found = solve(readings).after(Calibration.of(device.options))
    file.set_options(device.name, accel_bias_mps2=found.bias_list(), accel_scale=found.scale_list())


def _imus(ship: Ship) -> list[str]:
    """Return the devices that measure acceleration and rates: six numbers."""
    return [
        name
        for name, status in ship.snapshot().sensors.items()
        if status.unit == "m/s², rad/s" and status.healthy
    ]


def _measured(ship: Ship, device: str) -> tuple[Vec3, float]:
    """Return the mean acceleration over some seconds, and the fastest turn meanwhile."""
    rows: list[tuple[float, ...]] = []
    for _ in range(SAMPLES):
        ship.step(SAMPLE_S)
        value = ship.snapshot().sensors[device].value
        assert isinstance(value, tuple)
        rows.append(value)
    x, y, z = (fmean(row[axis] for row in rows) for axis in range(3))
    return (x, y, z), max(hypot(*row[3:6]) for row in rows)


def direction(axis: Vec3) -> str:
    """Return where a force along `axis` of the body pushes, as a person sees it."""
    largest = max(range(3), key=lambda i: abs(axis[i]))
    return _DIRECTIONS[largest][axis[largest] < 0.0]


def positive(servo: str, airframe: Airframe) -> str:
    """Return what a person sees at a positive angle."""
    if any(thruster.tilted_by == servo for thruster in airframe.thruster):
        return "the propellers up"
    for surface in airframe.surface:
        if surface.servo == servo:
            x, y, z = surface.axis
            return f"its trailing edge {direction((-x, -y, -z))}"  # the force is against it
    return "the right way"


STEPS: dict[str, Step] = {
    "Motors": motors,
    "Servos": servos,
    "Accelerometer": accelerometer,
}
