"""The simulated TB6612FNG against its data sheet's table."""

import pytest

from blimp.sim.electrical import Pull
from tests.sim.bench import Bench

PINS = {"pwma": 6, "ain1": 13, "ain2": 19, "stby": 12}


@pytest.mark.parametrize(
    ("pwm", "in1", "in2", "stby", "throttle"),
    [
        (0.6, True, False, True, 0.6),  # forward
        (0.6, False, True, True, -0.6),  # reverse
        (0.6, True, True, True, 0.0),  # brake
        (0.6, False, False, True, 0.0),  # stop
        (0.0, True, False, True, 0.0),  # brake
        (0.6, True, False, False, 0.0),  # standby
    ],
)
def test_the_truth_table(pwm: float, in1: bool, in2: bool, stby: bool, throttle: float) -> None:
    bench = Bench()
    for pin in PINS.values():
        bench.pins.set_mode(pin, output=True, pull=Pull.OFF)
    chip = bench.fit("motors_main", chip="tb6612", pins=PINS, outputs={"a": "left"})
    bench.pins.pwm(PINS["pwma"], pwm, frequency_hz=200.0)
    for name, high in (("ain1", in1), ("ain2", in2), ("stby", stby)):
        bench.pins.write(PINS[name], high, held_s=0.0)
    assert chip.throttles() == {"left": pytest.approx(throttle)}
