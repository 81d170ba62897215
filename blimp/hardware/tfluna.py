"""TF-Luna: laser ranger on I2C, looking down.

Source: SJ-PM-TF-Luna, I2C register table and section 6.4: the distance cannot be trusted
below a signal of 100 or when it is saturated; 0.2 to 8 m is the range.
"""

from struct import Struct
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import DeviceError
from blimp.hardware.bus import Buses, I2CBus
from blimp.hardware.device import Sensor, Steps, Wiring, read_options
from blimp.hardware.registers import TFLuna as R
from blimp.types import RangeSample

MAX_TEMPERATURE_STEP_C = 5.0

_DATA = Struct("<HHhH")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The distances between which a reading makes a sample, in metres."""

    min_m: float = 0.2
    max_m: float = 8.0


class TfLuna(Sensor[RangeSample]):
    """Measures on its own at 100 Hz; its tick counter shows that it lives."""

    ROLE: ClassVar[str] = "ranger"
    UNIT: ClassVar[str] = "m"
    # The address can be set and saved.
    WIRING: ClassVar = Wiring(bus="i2c", addresses=tuple(range(0x08, 0x78)))
    STALE_S: ClassVar[float] = 0.5
    STALE_ERROR: ClassVar[str] = "frozen: the same tick"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._options = read_options(row.options, Options, who=row.name)
        self._bus: I2CBus | None = None
        self._tick = -1
        self._temperature_c: float | None = None

    def close(self) -> None:
        self._bus = None

    def _start(self) -> Steps:
        bus = self._bus = self._buses.i2c(self._row.bus)
        identity = bus.read(self._address, R.SIGNATURE, len(R.SIGNATURE_BYTES))
        if identity != R.SIGNATURE_BYTES:
            raise DeviceError(
                f"{self.name}: tfluna at {bus.name} address 0x{self._address:02X}: signature "
                f"(0x{R.SIGNATURE:02X}) reads {identity!r}, expected {R.SIGNATURE_BYTES!r}"
            )
        bus.write(self._address, R.MODE, bytes([R.MODE_CONTINUOUS]))
        bus.write(self._address, R.ENABLE, b"\x01")
        self._temperature_c = None
        yield 0.1  # the manual's wait after a write, section 6.3

    def _read(self, now_s: float) -> RangeSample | None:
        if self._bus is None:
            raise DeviceError(f"{self.name}: closed")
        raw = self._bus.read(self._address, R.DIST_LOW, _DATA.size)
        distance_cm, amplitude, temperature, tick = _DATA.unpack(raw)
        if tick == self._tick:
            return None
        self._tick = tick
        temperature_c = temperature / 100.0
        before_c, self._temperature_c = self._temperature_c, temperature_c
        if before_c is not None and abs(temperature_c - before_c) > MAX_TEMPERATURE_STEP_C:
            raise DeviceError(
                f"{self.name}: its temperature jumped from {before_c:.1f} to "
                f"{temperature_c:.1f} °C between two reads: the bytes are garbage"
            )
        distance_m = distance_cm / 100.0
        if amplitude < R.AMP_MIN:
            self._alive(now_s, f"signal {amplitude} is below {R.AMP_MIN}: nothing in range")
            return None
        if amplitude == R.AMP_SATURATED:
            self._alive(now_s, "signal saturated: looking into light")
            return None
        if not self._options.min_m <= distance_m <= self._options.max_m:
            self._alive(
                now_s,
                f"{distance_m:.2f} m is outside {self._options.min_m:g} to "
                f"{self._options.max_m:g} m",
            )
            return None
        self._alive(now_s)
        return RangeSample(t_s=now_s, distance_m=distance_m)

    def _value(self, sample: RangeSample) -> float:
        return sample.distance_m
