"""What all barometers share: the limits of what air can be."""

from collections.abc import Generator
from typing import ClassVar

from blimp.airframe import Device as Row
from blimp.errors import DeviceError
from blimp.hardware.bus import Buses
from blimp.hardware.device import NoOptions, read_options
from blimp.hardware.i2c_sensor import I2CSensor
from blimp.hardware.plausible import Plausible
from blimp.types import BaroSample

MAX_STEP_PA = 1000.0  # 85 m of height between two reads


class Barometer(I2CSensor[BaroSample]):
    """Pressure and temperature from raw readings, refused where the chip cannot mean them."""

    UNIT: ClassVar[str] = "Pa"
    LIMITS_PA: ClassVar[tuple[float, float]] = (30000.0, 110000.0)
    LIMITS_C: ClassVar[tuple[float, float]] = (-40.0, 85.0)

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        read_options(row.options, NoOptions, who=row.name)
        low, high = self.LIMITS_PA
        self._pressure = Plausible(
            f"{self.name}: pressure", "Pa", low=low, high=high, step=MAX_STEP_PA, digits=0
        )
        low, high = self.LIMITS_C
        self._temperature = Plausible(
            f"{self.name}: temperature", "°C", low=low, high=high, step=high - low
        )

    def _calibration_bytes(self, register: int, length: int) -> Generator[float, None, bytes]:
        """Read the calibration twice, a poll between. Raises DeviceError if it is none.

        After a reset a chip copies it there; read too soon it is zero in part, and pressures are
        plausible and wrong.
        """
        data = self._bus.read(self._address, register, length)
        yield 0.0
        again = self._bus.read(self._address, register, length)
        if data != again:
            raise DeviceError(
                f"{self._where}: its calibration was not yet there: {data.hex(' ')}, "
                f"then {again.hex(' ')}"
            )
        if data == b"\xff" * length:
            raise DeviceError(f"{self._where}: its calibration is empty: {data.hex(' ')}")
        return data

    def _sample(self, now_s: float, *, pressure_pa: float, temperature_c: float) -> BaroSample:
        """Return a sample and note that the chip lives. Raises DeviceError on what cannot be."""
        self._pressure.check(pressure_pa)
        self._temperature.check(temperature_c)
        self._alive(now_s)
        return BaroSample(t_s=now_s, pressure_pa=pressure_pa, temperature_c=temperature_c)

    def _value(self, sample: BaroSample) -> float:
        return sample.pressure_pa
