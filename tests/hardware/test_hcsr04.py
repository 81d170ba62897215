import pytest

from blimp.airframe import Device as Row
from blimp.hardware.hcsr04 import HcSr04
from tests.hardware.doubles import Doubles, Echo, polled, well

C_MPS = 343.2  # at 20 °C


def fitted() -> tuple[HcSr04, Echo]:
    buses = Doubles()
    row = Row(
        name="sonar", chip="hcsr04", bus="gpio", pins={"trigger": 23, "echo": 24}, rate_hz=10.0
    )
    sonar = HcSr04(row=row, buses=buses)
    sonar.poll(0.0)
    sonar.poll(0.0)
    return sonar, buses.echoes[23, 24]


def returned(sonar: HcSr04, echo: Echo, now_s: float, distance_m: float) -> None:
    """Let the echo of the trigger 0.1 s ago arrive, and poll."""
    width_s = 2.0 * distance_m / C_MPS
    echo.pulses.append((now_s - 0.1 + 0.0005 + width_s, width_s))
    sonar.poll(now_s)


def test_the_median_of_five_drops_a_stray_echo() -> None:
    sonar, echo = fitted()
    for i, distance_m in enumerate([1.5, 1.51, 0.3, 1.52, 1.53]):
        returned(sonar, echo, 0.1 * (i + 1), distance_m)
    assert sonar.sample is not None
    assert sonar.sample.distance_m == pytest.approx(1.51, abs=0.001)
    assert echo.triggers == 5


def test_fewer_than_three_echoes_are_no_sample() -> None:
    sonar, echo = fitted()
    returned(sonar, echo, 0.1, 1.5)
    returned(sonar, echo, 0.2, 1.5)
    assert sonar.sample is None
    assert well(sonar)


def test_out_of_range_is_no_sample_and_no_fault() -> None:
    sonar, echo = fitted()
    for step in range(1, 10):
        echo.pulses.append((0.1 * step, 0.038))
        sonar.poll(0.1 * step)
    assert sonar.sample is None
    assert well(sonar)
    assert "no echo within 4 m" in sonar.error
    for step in range(10, 20):
        returned(sonar, echo, 0.1 * step, 0.01)
    assert sonar.sample is None
    assert well(sonar)
    assert "0.010 m is below 0.02 m" in sonar.error


def test_echoes_older_than_a_second_are_in_no_median() -> None:
    sonar, echo = fitted()
    for i in range(1, 4):
        returned(sonar, echo, 0.1 * i, 1.5)
    first = sonar.sample
    sonar.poll(0.4)
    assert sonar.sample is first, "no new echo, no new sample"
    returned(sonar, echo, 1.5, 3.0)
    assert sonar.sample is first


def test_a_silent_echo_pin_is_a_fault() -> None:
    sonar, _ = fitted()
    for step in range(1, 15):
        sonar.poll(0.1 * step)
    assert not well(sonar)
    assert "no pulse on the echo pin" in sonar.error


def test_an_echo_of_an_earlier_trigger_is_dropped() -> None:
    sonar, echo = fitted()
    for step in range(1, 8):
        echo.pulses.append((0.1 * step - 0.1 + 0.002, 0.01))  # began before its trigger
        sonar.poll(0.1 * step)
    assert sonar.sample is None


def test_triggers_are_never_closer_than_a_cycle() -> None:
    sonar, echo = fitted()
    polled(sonar, 100)
    assert echo.triggers <= 17
