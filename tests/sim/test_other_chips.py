"""Ships that carry other chips than the twin: they hold their height as it does."""

import pytest

from blimp.ship.lockstep import Lockstep
from blimp.types import OutcomeState
from tests.contracts.rows import ship

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ALTITUDE_M = 1.5


@pytest.mark.parametrize(
    "chips",
    [
        ("bmp390", "icm20948", "vl53l1x", "ina226"),
        ("ms5611", "ina260", "bno055", "esc-pwm"),
        ("bmp388", "pca9685 with ESCs"),
        ("tb6612",),
        ("bme280", "mpu6500"),
        ("ms5607", "mpu9250"),
    ],
    ids="+".join,
)
def test_it_takes_off_and_holds_its_height(chips: tuple[str, ...]) -> None:
    with Lockstep(ship(*chips), seed=3) as flight:
        assert flight.command("arm").state is OutcomeState.DONE
        outcome = flight.complete("takeoff", within_s=60.0, altitude_m=ALTITUDE_M)
        assert outcome.state is OutcomeState.DONE, outcome.reason
        errors_m = []
        for _ in range(100):
            flight.step(0.1)
            errors_m.append(abs(flight.truth.altitude_m - ALTITUDE_M))
        sick = {n: s.error for n, s in flight.snapshot().sensors.items() if s.error}
        assert sick == {}, "not even a remark"
        # The twin itself: 0.06 m at the most, 0.02 m rms.
        assert max(errors_m) <= 0.2
        assert (sum(e * e for e in errors_m) / len(errors_m)) ** 0.5 <= 0.06
        assert flight.complete("land", within_s=90.0).state is OutcomeState.DONE
        assert flight.truth.altitude_m <= 0.3
        flight.step(2.0)
        assert flight.truth.on_ground
