"""What the simulated inertial chips feel: specific force, turn rates, the Earth's field."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from random import Random

from blimp.rotation import rotate_back
from blimp.sim.chips.chip import Fitting, clamp
from blimp.sim.chips.mounting import body_to_chip
from blimp.sim.faults import Faults
from blimp.types import Vec3

CHANNELS = ("gyro_z", "gyro_x", "gyro_y", "accel_x", "accel_y", "accel_z", "temperature")
EARTH_FIELD_NED_T: Vec3 = (20.0e-6, -3.5e-6, 45.0e-6)  # about that of Europe's middle
_G_MPS2 = 9.80665
_DPS = 180.0 / pi


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviations of one sample."""

    accel_g: float
    gyro_dps: float


class Inertial:
    """One chip's accelerometer and gyro on its axes, with the biases of its own.

    The gyro's bias is that at the temperature of switching on, and moves with the temperature by
    gyro_dps_per_c, one standard deviation over parts.

    Channels, chip axes: gyro_x/y/z in rad/s, accel_x/y/z in m/s², temperature in °C.
    """

    def __init__(
        self,
        fitting: Fitting,
        *,
        random: Random,
        gyro_bias_dps: float,
        accel_bias_g: float,
        gyro_dps_per_c: float = 0.0,
    ) -> None:
        self._truth = fitting.truth
        self._random = random
        self.to_chip = body_to_chip(fitting.device)
        self._gyro_bias = [
            clamp(random.gauss(0.0, gyro_bias_dps), -3.0 * gyro_bias_dps, 3.0 * gyro_bias_dps)
            for _ in range(3)
        ]
        self._accel_bias = [random.gauss(0.0, accel_bias_g) for _ in range(3)]
        self.drift = fitting.random("temperature")  # of what temperature does to this part
        self._gyro_drift = [self.drift.gauss(0.0, gyro_dps_per_c) for _ in range(3)]
        self._on_c = fitting.truth.temperature_c

    def felt(self, faults: Faults, now_s: float, noise: Noise) -> tuple[Vec3, Vec3, float]:
        """Return specific force in g, rates in °/s and temperature in °C."""
        force = self.to_chip(self._truth.specific_force_body_mps2)
        rates = self.to_chip(self._truth.rates_body_radps)
        celsius = self._truth.temperature_c
        if faults.altered:
            measure = faults.measure
            fx, fy, fz = force
            p, q, r = rates
            force = (
                measure("accel_x", fx, now_s),
                measure("accel_y", fy, now_s),
                measure("accel_z", fz, now_s),
            )
            rates = (
                measure("gyro_x", p, now_s),
                measure("gyro_y", q, now_s),
                measure("gyro_z", r, now_s),
            )
            celsius = measure("temperature", celsius, now_s)
        (fx, fy, fz), (p, q, r) = force, rates
        bx, by, bz = self._accel_bias
        gx, gy, gz = self._gyro_bias
        warmer_c = self.warmer_c
        if warmer_c:
            dx, dy, dz = self._gyro_drift
            gx, gy, gz = gx + warmer_c * dx, gy + warmer_c * dy, gz + warmer_c * dz
        gauss = self._random.gauss
        sa, sg = noise.accel_g, noise.gyro_dps
        return (
            (
                fx / _G_MPS2 + bx + gauss(0.0, sa),
                fy / _G_MPS2 + by + gauss(0.0, sa),
                fz / _G_MPS2 + bz + gauss(0.0, sa),
            ),
            (
                p * _DPS + gx + gauss(0.0, sg),
                q * _DPS + gy + gauss(0.0, sg),
                r * _DPS + gz + gauss(0.0, sg),
            ),
            celsius,
        )

    @property
    def warmer_c(self) -> float:
        """How much warmer it is than when the chip was switched on."""
        return self._truth.temperature_c - self._on_c

    def magnetic_t(self) -> Vec3:
        """Return the Earth's field along the chip's axes."""
        return self.to_chip(rotate_back(self._truth.attitude, EARTH_FIELD_NED_T))


def counts(values: Sequence[float], scale: float) -> list[int]:
    """Return values times `scale` as 16-bit counts; beyond its range the chip stays at the end."""
    return [
        round(value * scale)
        if -32768.0 <= value * scale <= 32767.0
        else round(clamp(value * scale, -32768.0, 32767.0))
        for value in values
    ]
