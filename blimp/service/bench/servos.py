"""Servos on the bench: sign, centre (which is its trim) and limits."""

from math import degrees, radians

from blimp.airframe import Airframe, Servo
from blimp.service.bench.airframe_file import AirframeFile
from blimp.service.bench.motors import direction
from blimp.service.bench.person import Person
from blimp.service.bench.ship import BenchShip, do

SERVO_DEG, SERVO_S = 15.0, 1.0  # slow servos need less than that to get there
SAME_DEG = 0.05  # nobody sees less


def servos(file: AirframeFile, ship: BenchShip, person: Person) -> None:
    """Each servo's sign, centre (which is its trim) and limits."""
    for servo in file.airframe.servo:
        if person.choose(f"Servo {servo.name}: move it", "yes", "skip") == "yes":
            _servo(servo, file, ship, person)


def _servo(servo: Servo, file: AirframeFile, ship: BenchShip, person: Person) -> None:
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


def positive(servo: str, airframe: Airframe) -> str:
    """Return what a person sees at a positive angle."""
    for thruster in airframe.thruster:
        if thruster.tilted_by == servo:
            return f"the propellers {direction(thruster.turned[2])}"  # where a quarter turn points
    for surface in airframe.surface:
        if surface.servo == servo:
            x, y, z = surface.axis
            return f"its trailing edge {direction((-x, -y, -z))}"  # the force is against it
    return "the right way"
