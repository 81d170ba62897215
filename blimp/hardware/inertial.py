"""What inertial chips on I2C share: ranges, filters, mounting, and signs of life."""

import math
from typing import ClassVar

from blimp.airframe import Device as Row
from blimp.errors import BoardError, DeviceError
from blimp.hardware.bus import Buses
from blimp.hardware.calibration import Calibration, Correction
from blimp.hardware.device import read_options
from blimp.hardware.i2c_sensor import I2CSensor
from blimp.hardware.mounting import FLAT, Mounting
from blimp.hardware.plausible import Plausible
from blimp.types import ImuSample, Vec3

G_MPS2 = 9.80665
FROZEN_READS = 25
MAX_TEMPERATURE_STEP_C = 5.0
LEAST, MOST = -32768, 32767  # counts that only say that the truth is beyond

Counts = tuple[int, int, int]


class Options(Calibration, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mounting: which chip axis, with its sign, points forward, right and down.

    filter_hz: None takes the chip's own, the one nearest 45 Hz.
    """

    gyro_range_dps: int = 250
    filter_hz: int | None = None
    mounting: tuple[str, str, str] = FLAT


class InertialSensor(I2CSensor[ImuSample]):
    """Samples in the body frame (forward-right-down): (0, 0, -9.81) m/s² level and at rest.

    RANGES_DPS: setting and counts per degree/s of each gyro range. FILTERS_HZ: settings.
    """

    UNIT: ClassVar[str] = "m/s², rad/s"
    STALE_ERROR: ClassVar[str] = "frozen: the same bytes"
    ACCEL_LSB_PER_G: ClassVar[float] = 16384.0  # at ±2 g
    RANGES_DPS: ClassVar[dict[int, tuple[int, float]]]
    FILTERS_HZ: ClassVar[dict[int, int]]
    FILTER_HZ: ClassVar[int]

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._stale_s = FROZEN_READS / row.rate_hz
        options = read_options(row.options, Options, who=row.name)
        filter_hz = self.FILTER_HZ if options.filter_hz is None else options.filter_hz
        for key, value, known in (
            ("gyro_range_dps", options.gyro_range_dps, self.RANGES_DPS),
            ("filter_hz", filter_hz, self.FILTERS_HZ),
        ):
            if value not in known:
                raise BoardError(
                    f"{row.name}: {key} {value} is none of {', '.join(map(str, known))}"
                )
        self._filter = self.FILTERS_HZ[filter_hz]
        self._range, lsb_per_dps = self.RANGES_DPS[options.gyro_range_dps]
        self._mounting = Mounting(options.mounting, who=row.name)
        self._accel = self._mounting.turn(G_MPS2 / self.ACCEL_LSB_PER_G)
        self._gyro = self._mounting.turn(math.radians(1.0) / lsb_per_dps)
        self._correction = Correction(options, who=row.name)
        self._raw = b""
        self._temperature = Plausible(
            f"{self.name}: its temperature", "°C", low=-40.0, high=85.0, step=MAX_TEMPERATURE_STEP_C
        )

    def _is_news(self, raw: bytes, accel: Counts) -> bool:
        """Say whether the chip has measured since. Raises DeviceError on a sleeping one."""
        if accel == (0, 0, 0):
            # Not even free fall reads so: a power-cycled chip sleeps, and its registers are 0.
            raise self._lost("all accelerometer axes read 0: the chip is asleep")
        before, self._raw = self._raw, raw
        return raw != before

    def _sample(
        self,
        now_s: float,
        *,
        accel: Counts,
        gyro: Counts,
        temperature_c: float,
        magnetic_body_t: Vec3 | None = None,
        remark: str = "",
    ) -> ImuSample:
        """Return a sample and note that the chip lives. Raises DeviceError on garbage."""
        self._temperature.check(temperature_c)
        counts = accel + gyro
        if max(counts) == MOST or min(counts) == LEAST:
            what = "rate" if max(accel) < MOST and min(accel) > LEAST else "acceleration"
            raise DeviceError(f"{self.name}: {what}: counts {counts} at the end of its range")
        self._alive(now_s, remark)
        return ImuSample(
            t_s=now_s,
            accel_body_mps2=self._correction.acceleration(self._accel(*accel)),
            gyro_body_radps=self._correction.rates(self._gyro(*gyro)),
            temperature_c=temperature_c,
            magnetic_body_t=magnetic_body_t,
        )

    def _value(self, sample: ImuSample) -> tuple[float, ...]:
        return values(sample)


def values(sample: ImuSample) -> tuple[float, ...]:
    """Return what a person may want to see; the field, where there is one, in microtesla."""
    field = sample.magnetic_body_t or ()
    return (
        *sample.accel_body_mps2,
        *sample.gyro_body_radps,
        *(1e6 * value for value in field),
    )
