import math

import msgspec
import pytest

from blimp.airframe import Battery
from blimp.sim.battery import BatteryPack, open_circuit_cell_v

PACK = Battery(
    cells=2, capacity_ah=2.0, resistance_ohm=0.1, idle_current_a=0.5, warn_v=7.0, empty_v=6.4
)


def test_full_cell_rests_at_4_2_volts_and_an_empty_one_at_3() -> None:
    assert open_circuit_cell_v(1.0) == 4.20
    assert open_circuit_cell_v(0.0) == 3.00
    assert open_circuit_cell_v(0.5) == pytest.approx(3.81)
    assert open_circuit_cell_v(0.25) == pytest.approx(0.5 * (3.69 + 3.74))


def test_voltage_falls_with_charge() -> None:
    volts = [open_circuit_cell_v(i / 100.0) for i in range(101)]
    assert volts == sorted(volts)


def test_load_sags_the_voltage_by_current_times_resistance() -> None:
    pack = BatteryPack(battery=PACK)
    assert pack.voltage_v == pytest.approx(8.4 - 0.5 * 0.1)
    assert pack.supply == pytest.approx(8.35 / 8.4), "of all its cells"
    pack.step(0.005, 3.0)
    assert pack.current_a == pytest.approx(3.5)
    assert pack.voltage_v == pytest.approx(8.4 - 3.5 * 0.1, abs=1e-4)
    pack.step(0.005, 0.0)
    assert pack.voltage_v == pytest.approx(8.4 - 0.5 * 0.1, abs=1e-4)


def test_a_load_that_lasts_drops_more_and_the_rest_comes_back() -> None:
    tired = msgspec.structs.replace(PACK, polarisation_ohm=0.2, polarisation_s=10.0)
    pack = BatteryPack(battery=tired)
    assert pack.voltage_v == pytest.approx(8.4 - 0.5 * 0.3)
    for _ in range(200):
        pack.step(0.05, 3.0)  # a time constant: all but 1/e of it
    at_once_v, later_v = 3.5 * 0.1, 0.2 * (0.5 + 3.0 * (1.0 - math.exp(-1.0)))
    resting_v = 2.0 * open_circuit_cell_v(pack.charge)
    assert pack.voltage_v == pytest.approx(resting_v - at_once_v - later_v, abs=1e-6)
    for _ in range(2000):
        pack.step(0.05, 0.0)
    resting_v = 2.0 * open_circuit_cell_v(pack.charge)
    assert pack.voltage_v == pytest.approx(resting_v - 0.5 * 0.3, abs=1e-3)


def test_an_hour_at_its_capacity_empties_it() -> None:
    pack = BatteryPack(battery=PACK)
    for _ in range(1800):
        pack.step(1.0, 1.5)
    assert pack.charge == pytest.approx(0.5)
    for _ in range(1801):
        pack.step(1.0, 1.5)
    assert pack.charge == 0.0
    assert pack.voltage_v == pytest.approx(6.0 - 0.2)


def test_a_short_circuit_does_not_turn_the_voltage_round() -> None:
    pack = BatteryPack(battery=PACK)
    pack.step(0.005, 1000.0)
    assert pack.voltage_v == 0.0
    assert pack.supply == 0.0


@pytest.mark.parametrize("charge", [-0.1, 1.1, float("nan")])
def test_impossible_charge_is_refused(charge: float) -> None:
    with pytest.raises(ValueError, match="charge"):
        BatteryPack(battery=PACK, charge=charge)
