"""INA226 and INA260: battery voltage and current on I2C.

Sources: SBOS547A 7.5 and 7.6, SBOS656C 8.6. The INA226's current is taken from its shunt
voltage: its calibration register would only repeat that multiplication in fewer bits, and is
lost in silence when the chip loses power. Checked with the example of 7.5.
"""

from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import BoardError, DeviceError
from blimp.hardware.bus import Buses
from blimp.hardware.device import NoOptions, Steps, Wiring, read_options
from blimp.hardware.power_monitor import PowerMonitor
from blimp.hardware.registers.power import INA226 as R
from blimp.hardware.registers.power import INA260
from blimp.types import PowerSample

BUS_LSB_V = 0.00125
SHUNT_LSB_V = 2.5e-6
MAX_V = 36.0  # 7.3: recommended; the register goes on to 40.96 V
INA260_LSB_A = 0.00125
# Sixteen samples of each, 0.588 ms a sample: 19 ms.
_CONFIG = (
    R.AVG_16 << R.AVG_SHIFT
    | R.CT_588_US << R.VBUSCT_SHIFT
    | R.CT_588_US << R.VSHCT_SHIFT
    | R.MODE_SHUNT_AND_BUS_CONTINUOUS
)


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """shunt_ohm: the resistor the current runs through; it shows up to 0.0819 V over it."""

    shunt_ohm: float


class Ina226(PowerMonitor):
    WIRING: ClassVar = Wiring(bus="i2c")
    CONFIG_RESET: ClassVar[int] = R.CONFIG_RESET
    CONFIG: ClassVar[int] = R.CONFIG_FIXED | _CONFIG
    DIE: ClassVar[int] = R.DIE
    CURRENT: ClassVar[int] = R.SHUNT_VOLTAGE

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._lsb_a = self._amperes_a_bit(row)

    def _amperes_a_bit(self, row: Row) -> float:
        shunt_ohm = read_options(row.options, Options, who=row.name).shunt_ohm
        if not 1e-5 <= shunt_ohm <= 10.0:  # refuses NaN as well
            raise BoardError(f"{row.name}: shunt_ohm {shunt_ohm} is outside 0.00001 to 10")
        return SHUNT_LSB_V / shunt_ohm

    def _start(self) -> Steps:
        bus = self._open()
        self._identify("manufacturer id", R.MANUFACTURER_ID, R.MANUFACTURER, length=2)
        self._identify("die id", R.DIE_ID, self.DIE, length=2, shift=R.DIE_SHIFT)
        bus.write(self._address, R.CONFIG, R.RST.to_bytes(2, "big"))
        self._identify("configuration after reset", R.CONFIG, self.CONFIG_RESET, length=2)
        self._set(R.CONFIG, self.CONFIG.to_bytes(2, "big"))
        yield 0.02  # the first conversion

    def _read(self, now_s: float) -> PowerSample | None:
        mask = self._word(R.MASK_ENABLE)  # reading clears CVRF, which proves the next reading
        if not mask & R.CVRF:
            return None
        voltage_v = self._word(R.BUS_VOLTAGE) * BUS_LSB_V
        current = self._word(self.CURRENT, signed=True)
        kept = self._word(R.CONFIG)
        if kept != self.CONFIG:
            raise self._lost(
                f"configuration reads {kept:04x}, expected {self.CONFIG:04x}: the chip was reset"
            )
        if voltage_v > MAX_V:
            raise DeviceError(f"{self.name}: {voltage_v:.1f} V is above the chip's {MAX_V:g} V")
        return self._felt(
            now_s,
            voltage_v=voltage_v,
            current_a=current * self._lsb_a,
            most_a=0x7FFF * self._lsb_a,
        )


class Ina260(Ina226):
    """The same with its shunt inside, and the current in amperes."""

    CONFIG_RESET: ClassVar[int] = INA260.CONFIG_RESET
    CONFIG: ClassVar[int] = INA260.CONFIG_FIXED | _CONFIG
    DIE: ClassVar[int] = INA260.DIE
    CURRENT: ClassVar[int] = INA260.CURRENT

    def _amperes_a_bit(self, row: Row) -> float:
        read_options(row.options, NoOptions, who=row.name)
        return INA260_LSB_A
