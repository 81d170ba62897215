"""What a push is reckoned to do."""

import pytest
from msgspec.structs import replace

from blimp import airframe as airframes
from blimp.wires.answers import inverse_mass, moved_by

VECTOR = airframes.load("hackaday-vector")


@pytest.mark.parametrize(
    ("hinge", "axis"), [((0.0, 1.0, 0.0), 2), ((0.0, 0.0, 1.0), 1)], ids=["up", "aside"]
)
def test_a_thruster_pushes_where_its_hinge_turns_it(
    hinge: tuple[float, float, float], axis: int
) -> None:
    thruster = replace(VECTOR.thruster[0], axis=(1.0, 0.0, 0.0), tilt_axis=hinge)
    servos = [
        replace(servo, neutral_rad=1.5708) if servo.name == thruster.tilted_by else servo
        for servo in VECTOR.servo
    ]
    airframe = replace(VECTOR, thruster=(thruster, *VECTOR.thruster[1:]), servo=tuple(servos))
    moved = moved_by(airframe, inverse_mass(airframe), thruster)
    assert abs(moved[axis]) > 0.2
    assert max(abs(moved[axis]), abs(moved[1]), abs(moved[2])) == abs(moved[axis])
