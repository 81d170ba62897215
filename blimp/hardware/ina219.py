"""INA219: battery voltage and current on I2C.

Source: SBOS448G: 8.5 (calibration), 8.6 (registers). Checked with its example: 2 mΩ and
1 mA a bit give calibration 0x5000.
"""

from math import copysign
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import BoardError
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring, read_options
from blimp.hardware.power_monitor import PowerMonitor
from blimp.hardware.registers.power import INA219 as R
from blimp.types import PowerSample

SHUNT_RANGES_V = ((0.04, R.PG_40_MV), (0.08, R.PG_80_MV), (0.16, R.PG_160_MV), (0.32, R.PG_320_MV))
BUS_LSB_V = 0.004


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """shunt_ohm: the resistor the current runs through. current_lsb_a: amperes a bit."""

    shunt_ohm: float = 0.1
    current_lsb_a: float = 0.0001


def calibration_word(*, shunt_ohm: float, current_lsb_a: float) -> int:
    """Return the calibration register, datasheet equation 1. Raises ValueError outside it."""
    if not (shunt_ohm > 0.0 and current_lsb_a > 0.0):
        raise ValueError(f"shunt_ohm {shunt_ohm} and current_lsb_a {current_lsb_a} must be > 0")
    word = int(0.04096 / (current_lsb_a * shunt_ohm) + 1e-6) & ~1  # bit 0 is not kept
    if not 2 <= word <= 0xFFFE:
        raise ValueError(
            f"shunt_ohm {shunt_ohm} with current_lsb_a {current_lsb_a} needs calibration {word}, "
            "outside 2 to 65534"
        )
    return word


class Ina219(PowerMonitor):
    WIRING: ClassVar = Wiring(bus="i2c")

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        options = read_options(row.options, Options, who=row.name)
        self._lsb_a = options.current_lsb_a
        try:
            self._calibration = calibration_word(
                shunt_ohm=options.shunt_ohm, current_lsb_a=options.current_lsb_a
            ).to_bytes(2, "big")
        except ValueError as error:
            raise BoardError(f"{row.name}: {error}") from error
        full_scale_v = 32767 * options.current_lsb_a * options.shunt_ohm
        widest = SHUNT_RANGES_V[-1]
        range_v, gain = next((one for one in SHUNT_RANGES_V if full_scale_v <= one[0]), widest)
        self._most_a = min(full_scale_v, range_v) / options.shunt_ohm
        config = (
            R.BRNG_32V
            | gain
            | R.ADC_16_SAMPLES << R.BADC_SHIFT
            | R.ADC_16_SAMPLES << R.SADC_SHIFT
            | R.MODE_SHUNT_AND_BUS_CONTINUOUS
        )
        self._config = config.to_bytes(2, "big")

    def _start(self) -> Steps:
        bus = self._open()
        # It has no identity register: the configuration after a reset stands for one.
        bus.write(self._address, R.CONFIG, R.RST.to_bytes(2, "big"))
        self._identify("configuration after reset", R.CONFIG, R.CONFIG_RESET, length=2)
        bus.write(self._address, R.CALIBRATION, self._calibration)
        self._set(R.CONFIG, self._config)
        yield 0.02  # the first conversion: sixteen samples of each

    def _read(self, now_s: float) -> PowerSample | None:
        bus = self._word(R.BUS_VOLTAGE)
        if not bus & R.CNVR:
            return None
        current: float = self._word(R.CURRENT, signed=True)
        kept = self._bus.read(self._address, R.CALIBRATION, 2)
        if kept != self._calibration:
            # After a power cycle the chip measures on, with a current of 0.
            raise self._lost(
                f"calibration reads {kept.hex()}, expected {self._calibration.hex()}: "
                "the chip was reset"
            )
        self._word(R.POWER)  # clears CNVR, which proves the next reading
        if bus & R.OVF:  # beyond the register, which then holds the lowest bits
            current = copysign(32767, self._word(R.SHUNT_VOLTAGE, signed=True))
        return self._felt(
            now_s,
            voltage_v=(bus >> 3) * BUS_LSB_V,
            current_a=current * self._lsb_a,
            most_a=self._most_a,
        )
