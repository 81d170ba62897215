"""Truth table: the data sheet's "H-SW control function"."""

from blimp.hardware.tb6612 import Tb6612
from tests.hardware.doubles import Doubles, on_pins

PWMA, AIN1, AIN2, PWMB, BIN1, BIN2, STBY = 6, 13, 19, 26, 5, 22, 12


def started() -> tuple[Tb6612, Doubles]:
    pins = {
        "pwma": PWMA,
        "ain1": AIN1,
        "ain2": AIN2,
        "pwmb": PWMB,
        "bin1": BIN1,
        "bin2": BIN2,
        "stby": STBY,
    }
    return on_pins(Tb6612, {"b": "right", "a": "left"}, pins, chip="tb6612", polls=3)


def levels(buses: Doubles) -> list[float]:
    return [buses.pins[p].level for p in (PWMA, AIN1, AIN2, PWMB, BIN1, BIN2, STBY)]


def test_it_starts_in_standby_with_all_inputs_low() -> None:
    _, buses = started()
    assert levels(buses) == [0.0] * 7


def test_sign_and_magnitude() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.25, -1.0], 0.1)
    assert levels(buses) == [0.25, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    motors.write([0.0, 0.5], 0.11)
    assert levels(buses) == [0.0, 0.0, 0.0, 0.5, 1.0, 0.0, 1.0]


def test_a_reversal_is_without_current_and_never_has_both_inputs_high() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.8, 0.0], 0.1)
    buses.levels.clear()
    motors.write([-0.8, 0.0], 0.11)
    assert buses.levels == [(PWMA, 0.0), (AIN1, 0.0), (AIN2, 1.0), (PWMA, 0.8)]
    buses.levels.clear()
    motors.write([0.0, 0.0], 0.12)
    assert (AIN2, 0.0) in buses.levels


def test_safe_stops_by_standby_first_and_lowers_every_input() -> None:
    motors, buses = started()
    motors.enable(0.1)
    motors.write([0.5, -0.5], 0.1)
    buses.levels.clear()
    motors.safe()
    assert buses.levels[0] == (STBY, 0.0)
    assert levels(buses) == [0.0] * 7
    motors.write([0.5, 0.5], 0.2)
    assert levels(buses) == [0.0] * 7
