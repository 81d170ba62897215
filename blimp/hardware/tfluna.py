"""TF-Luna: laser ranger on I2C, looking down.

Source: SJ-PM-TF-Luna, I2C register table and section 6.4: the distance cannot be trusted
below a signal of 100 or when it is saturated; 0.2 to 8 m is the range.
"""

from struct import Struct
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import DeviceError
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring, read_options
from blimp.hardware.i2c_sensor import I2CSensor
from blimp.hardware.plausible import Plausible
from blimp.hardware.registers.rangers import TFLuna as R
from blimp.types import RangeSample

MAX_TEMPERATURE_STEP_C = 5.0

_DATA = Struct("<HHhH")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """min_m, max_m: the distances between which a reading makes a sample.

    rest_m: its height above the floor while the ship stands on its pad, for the estimator.
    """

    min_m: float = 0.2
    max_m: float = 8.0
    rest_m: float = 0.0


class TfLuna(I2CSensor[RangeSample]):
    """Measures on its own at 100 Hz; its tick counter shows that it lives."""

    UNIT: ClassVar[str] = "m"
    WIRING: ClassVar = Wiring(bus="i2c")
    STALE_S: ClassVar[float] = 0.5
    STALE_ERROR: ClassVar[str] = "frozen: the same tick"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._options = read_options(row.options, Options, who=row.name)
        self._tick = -1
        self._temperature = Plausible(
            f"{self.name}: its temperature",
            "°C",
            low=-40.0,
            high=125.0,
            step=MAX_TEMPERATURE_STEP_C,
        )

    def _start(self) -> Steps:
        bus = self._open()
        identity = bus.read(self._address, R.SIGNATURE, len(R.SIGNATURE_BYTES))
        if identity != R.SIGNATURE_BYTES:
            raise DeviceError(
                f"{self._where}: signature (0x{R.SIGNATURE:02X}) reads {identity!r}, "
                f"expected {R.SIGNATURE_BYTES!r}"
            )
        bus.write(self._address, R.MODE, bytes([R.MODE_CONTINUOUS]))
        bus.write(self._address, R.ENABLE, b"\x01")
        self._temperature.forget()
        yield 0.1  # the manual's wait after a write, section 6.3

    def _read(self, now_s: float) -> RangeSample | None:
        raw = self._bus.read(self._address, R.DIST_LOW, _DATA.size)
        distance_cm, amplitude, temperature, tick = _DATA.unpack(raw)
        if tick == self._tick:
            return None
        self._tick = tick
        self._temperature.check(temperature / 100.0)
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
