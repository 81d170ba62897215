"""Sensor readings in, vehicle state out.

Three filters, each in its own file: attitude, height, horizontal. This one decides which
sample may speak to which filter. It reads no clock and never raises on a bad sample:
what is not finite, not new or not healthy is left out, and the state says what is valid.
"""

from math import isfinite

from blimp.airframe import Airframe, Device
from blimp.control.attitude import AttitudeFilter
from blimp.control.constants import GRAVITY_MPS2
from blimp.control.height import HeightFilter, baro_height_m, pad_ratio
from blimp.control.horizontal import MAX_LATENCY_S, HorizontalFilter
from blimp.control.vector import cross
from blimp.rotation import euler, rotate, rotate_back, wrap_pi
from blimp.types import BaroSample, PositionSample, RangeSample, SensorReadings, Vec3, VehicleState

# What a chip is to the estimator, if the device's name does not say it.
ROLE_BY_CHIP = {
    "bno055": "imu",
    "icm20948": "imu",
    "mpu6050": "imu",
    "bmp280": "baro",
    "bmp388": "baro",
    "bmp390": "baro",
    "ms5611": "baro",
    "tfluna": "ranger",
    "vl53l1x": "ranger",
    "hcsr04": "sonar",
    "dwm1001": "tag",
    "mocap": "tag",
    "pmw3901": "flow",
    "gps-nmea": "gps",
    "gps-ubx": "gps",
    "ina219": "power",
    "ina226": "power",
    "ina260": "power",
}
ROLES = frozenset(("imu", "baro", "ranger", "sonar", "tag", "gps", "power", "flow"))

_RANGE_M = (0.15, 8.0)
_MAX_TILT_COS = 0.87  # past 30 degrees the beam meets a wall
_REFERENCE_SAMPLES = 20  # barometer samples that make the pad's pressure
_BLIND_S = 0.05  # without an IMU sample: five cycles at 100 Hz
_MAX_BLIND_S = 0.2
_GROUND_M = 0.15
_AIRBORNE_M = 0.35
_GROUND_CLIMB_MPS = 0.15
_GROUND_S = 0.5
_AIRBORNE_S = 0.1
# Of the difference, at each pose of motion capture: 2 s at 40 Hz, and half a minute for the bias.
_POSE_TURN = 0.012
_POSE_BIAS = 2e-5
_POSED_S = 0.3  # after the last pose the ranger is heard again


def role(device: Device) -> str:
    """Return which sample of `SensorReadings` this device makes; "" if none."""
    return device.name if device.name in ROLES else ROLE_BY_CHIP.get(device.chip, "")


class Estimator:
    """Where the ship is and how it moves, from what the sensors last said."""

    def __init__(self, *, airframe: Airframe) -> None:
        self._roles = {device.name: role(device) for device in airframe.device}
        self._rest_m = {
            role(device): float(device.options.get("rest_m", 0.0)) for device in airframe.device
        }
        self._attitude = AttitudeFilter()
        self._height = HeightFilter()
        self._horizontal = HorizontalFilter(home=airframe.home)
        self._imu_m = airframe.mass.center_of_gravity_m
        self._reference_pa: float | None = None
        self._reference: list[float] = []
        self._baro_t_s = -1.0
        self._range_t_s = {"ranger": -1.0, "sonar": -1.0}
        self._pose_t_s = -1.0
        self._posed_s = -1e9
        self._high_s = -1e9
        self._moved_s = 0.0
        self._ground = _GroundDetector()

    @property
    def gyro_settled(self) -> bool:
        """Whether the gyro's bias has been measured at rest."""
        return self._attitude.settled

    @property
    def _heading_known(self) -> bool:
        """Switched on in the air, a ship knows its place but not where its nose points:
        its position is no use for steering."""
        return self._attitude.settled or self._ground.down

    def declare_landed(self) -> None:
        """The ship has touched down: this is height 0, whatever the barometer says."""
        self._height.land()
        self._ground.declare()

    def begin_in_air(self, height_m: float, baro: BaroSample | None) -> None:
        """Start again at `height_m`: what was gathered since the start was not on the pad."""
        self._height = HeightFilter()
        self._height.begin_at(height_m)
        self._ground.down = False
        self._reference.clear()
        self._reference_pa = None if baro is None else baro.pressure_pa * pad_ratio(height_m)

    def update(self, readings: SensorReadings, *, now_s: float, powered: bool) -> VehicleState:
        """Take what is new in `readings` and return the state at `now_s`.

        powered: something drives the ship; while nothing does and it lies on the ground it
        may be at rest, and then gyro bias and heights are set.
        """
        bad = {self._roles.get(name, name) for name in readings.unhealthy}
        at_rest = not powered and self._ground.down and not self._seen_high(now_s)
        imu = None if "imu" in bad else readings.imu
        dt_s = self._attitude.update(imu, now_s, at_rest=at_rest)
        q = self._attitude.attitude
        if dt_s > 0.0:
            north, east, down = rotate(q, self._attitude.specific_force_body_mps2)
            self._height.predict(-(down + GRAVITY_MPS2), dt_s)
            turn_rad = self._attitude.rates_body_radps[2] * dt_s
            self._horizontal.predict(north, east, dt_s, turn_rad=turn_rad)
            self._moved_s = now_s
        elif now_s - self._moved_s > _BLIND_S:
            # No IMU: the other sensors carry on, with a wider guess in between.
            blind_s = min(now_s - self._moved_s, _MAX_BLIND_S)
            self._height.drift(blind_s)
            self._horizontal.drift(blind_s)
            self._moved_s = now_s
        self._update_height(readings, bad, now_s, at_rest)
        # The horizontal filter follows the IMU, which swings below the hull that the tag's
        # position is of: half of what the accelerometer feels in flight is that swing.
        arm_ned = rotate(q, self._imu_m)
        self._update_horizontal(readings, bad, now_s, at_rest, arm_ned)
        if not self._horizontal.valid(now_s):
            self._horizontal.coast(now_s, dt_s)
        if not self._height.valid(now_s):
            self._height.coast(dt_s)
        height = self._height
        self._ground.update(height.height_m, height.climb_mps, now_s)
        rates = self._attitude.rates_body_radps
        swing_ned = rotate(q, cross(rates, self._imu_m))
        north_m, east_m = self._horizontal.position_m
        north_mps, east_mps = self._horizontal.velocity_mps
        return VehicleState(
            t_s=now_s,
            attitude=q,
            rates_body_radps=rates,
            position_ned_m=(north_m - arm_ned[0], east_m - arm_ned[1], -height.height_m),
            velocity_ned_mps=(
                north_mps - swing_ned[0],
                east_mps - swing_ned[1],
                -height.climb_mps,
            ),
            attitude_valid=self._attitude.valid(now_s),
            height_valid=height.valid(now_s),
            position_valid=self._horizontal.valid(now_s) and self._heading_known,
            position_age_s=min(self._horizontal.age_s(now_s), 1e6),
            on_ground=self._ground.down,
        )

    def _update_height(
        self, readings: SensorReadings, bad: set[str], now_s: float, at_rest: bool
    ) -> None:
        baro = readings.baro
        if baro is not None and "baro" not in bad and baro.t_s != self._baro_t_s:
            self._baro_t_s = baro.t_s
            if self._reference_pa is None:
                self._gather_reference(baro.pressure_pa)
            else:
                height_m = baro_height_m(baro.pressure_pa, baro.temperature_c, self._reference_pa)
                if isfinite(height_m):
                    self._height.update_baro(height_m, now_s)
        ranged = self._range("ranger", readings.ranger, bad, now_s)
        if ranged is None:
            ranged = self._range("sonar", readings.sonar, bad, now_s)
        pose_m = self._pose_height(readings.tag, bad, now_s)
        if now_s - self._posed_s < _POSED_S:
            ranged = pose_m  # a ranger sees the floor, and motion capture the ship
        if ranged is not None:
            self._height.update_ranger(ranged, now_s)
        if at_rest and self._attitude.still:
            self._height.update_rest()

    def _pose_height(
        self, sample: PositionSample | None, bad: set[str], now_s: float
    ) -> float | None:
        """Return the height that a new pose of motion capture means, and turn to its heading."""
        if sample is None or "tag" in bad or sample.t_s == self._pose_t_s:
            return None
        self._pose_t_s = sample.t_s
        yaw_rad, latency_s, down_m = sample.yaw_rad, sample.latency_s, sample.position_ned_m[2]
        if yaw_rad is None or latency_s is None or not isfinite(yaw_rad + latency_s + down_m):
            return None
        if not 0.0 <= latency_s <= MAX_LATENCY_S:
            return None
        if not self._attitude.settled:
            return None
        turned_rad = latency_s * self._attitude.rates_body_radps[2]
        error_rad = wrap_pi(yaw_rad + turned_rad - euler(self._attitude.attitude)[2])
        self._attitude.turn(_POSE_TURN * error_rad, -_POSE_BIAS * error_rad)
        self._posed_s = now_s
        return latency_s * self._height.climb_mps - down_m

    def _gather_reference(self, pressure_pa: float) -> None:
        """The first second of pressures, averaged, is the pad's level."""
        if isfinite(pressure_pa) and 3e4 < pressure_pa < 1.2e5:
            self._reference.append(pressure_pa)
            if len(self._reference) >= _REFERENCE_SAMPLES:
                self._reference_pa = sum(self._reference) / len(self._reference)

    def _range(
        self, name: str, sample: RangeSample | None, bad: set[str], now_s: float
    ) -> float | None:
        """Return the height a new and believable range means."""
        if sample is None or name in bad or sample.t_s == self._range_t_s[name]:
            return None
        self._range_t_s[name] = sample.t_s
        if not _RANGE_M[0] <= sample.distance_m <= _RANGE_M[1]:  # also false for NaN
            return None
        beam_down = rotate_back(self._attitude.attitude, (0.0, 0.0, 1.0))[2]
        if beam_down < _MAX_TILT_COS:
            return None
        height_m = sample.distance_m * beam_down - self._rest_m.get(name, 0.0)
        self._high_s = now_s if height_m > _AIRBORNE_M else -1e9
        return height_m

    def _seen_high(self, now_s: float) -> bool:
        """Whether a ranger has just seen the ground well below: not at rest on the pad."""
        return now_s - self._high_s < 1.0

    def _update_horizontal(
        self, readings: SensorReadings, bad: set[str], now_s: float, at_rest: bool, arm_ned_m: Vec3
    ) -> None:
        if readings.tag is not None and "tag" not in bad:
            self._horizontal.update_tag(readings.tag, now_s, arm_ned_m=arm_ned_m)
        if readings.gps is not None and "gps" not in bad:
            on_pad = at_rest and self._attitude.still
            self._horizontal.update_gps(readings.gps, now_s, arm_ned_m=arm_ned_m, on_pad=on_pad)


class _GroundDetector:
    """Down after half a second low and slow; up as soon as it is clearly higher."""

    def __init__(self) -> None:
        self.down = True
        self._since_s: float | None = None

    def declare(self) -> None:
        self.down = True
        self._since_s = None

    def update(self, height_m: float, climb_mps: float, now_s: float) -> None:
        if self.down:
            changing = height_m > _AIRBORNE_M
            needed_s = _AIRBORNE_S
        else:
            changing = height_m < _GROUND_M and abs(climb_mps) < _GROUND_CLIMB_MPS
            needed_s = _GROUND_S
        if not changing:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s >= needed_s:
            self.down = not self.down
            self._since_s = None
