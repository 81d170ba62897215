"""Sensor readings in, vehicle state out.

The filters, each in its own file: attitude, heading, height, horizontal. This one decides which
sample may speak to which filter. It reads no clock and never raises on a bad sample: it leaves out
values that are not finite, not new or not healthy. The state says which quantities are valid, and
its health says why.
"""

from math import hypot, inf, isfinite

from blimp.airframe import Airframe
from blimp.constants import GRAVITY_MPS2
from blimp.control.attitude import AttitudeFilter
from blimp.control.bounds import bounds
from blimp.control.coast import UNWATCHED_RADPS, Coast
from blimp.control.heading import STEER_RAD, HeadingFilter
from blimp.control.height import HeightFilter
from blimp.control.horizontal import MAX_LATENCY_S, HorizontalFilter
from blimp.control.pressure import baro_height_m, pad_ratio
from blimp.control.samples import Samples, role
from blimp.control.witness import AIRBORNE_M, Witnesses
from blimp.control.yaw_rate import YawRateCheck
from blimp.rotation import rotate, rotate_back, wrap_pi, yaw_of
from blimp.types import (
    STANDS,
    ZERO3,
    BaroSample,
    Contact,
    EstimateHealth,
    FlightRecord,
    PositionSample,
    RangeSample,
    SensorReadings,
    Vec3,
    VehicleState,
    Wrench,
)
from blimp.vector import cross

_RANGE_M = (0.15, 8.0)  # TF-Luna's data sheet: 0.2 to 8 m, and a little nearer
_MAX_TILT_COS = 0.87  # past 30 degrees the beam meets a wall
_REFERENCE_SAMPLES = 20  # barometer samples that make the pad's pressure
_BLIND_S = 0.05  # without an IMU sample: five cycles at 100 Hz
_MAX_BLIND_S = 0.2  # a longer gap is not filled with predicted movement
_HEALTH_S = 0.1  # between two judgements of the sensors
_BACK_S = 0.5  # a smaller step back of the clock is ignored
_LEVEL_GYRO_RADPS = 5e-4  # of roll's and pitch's bias after a rest: 0.1 to 0.3 mrad/s, simulated
_TURNED_RAD = 1.0  # how far the ship may have turned before the gyro's fault was noticed
_LOST_GYRO_RAD = 0.08  # per sqrt(s): growth of the heading's deviation without a gyro
# Of the difference, at each pose of motion capture: 2 s at 40 Hz, and half a minute for the bias.
_POSE_TURN = 0.012
_POSE_BIAS = 2e-5  # see above
_POSE_HZ, _POSE_MOST = 40.0, 4.0
_POSE_GATE_RAD = 0.5  # of a camera's: mounts are off by a degree, or by a quarter turn
_POSE_RAD = 0.02  # of a heading by motion capture
# Tilt that a coast leaves, the swing: rms of three ships, growing over the first second, simulated.
_TILTED_RAD, _TILTS_RADPS = 0.05, 0.05
_POSED_S = 0.3  # so long after the last pose the ranger is used again
_STILL = Wrench()


class Estimator:
    """Position and motion of the ship, from the last values of the sensors."""

    def __init__(self, *, airframe: Airframe) -> None:
        noise, limits = airframe.estimator, bounds(airframe)
        self._airframe = airframe
        self._limits = limits
        self._roles = {device.name: role(device) for device in airframe.device}
        self._looks_down_only = "baro" not in self._roles.values()
        self._rest_m = {
            role(device): float(device.options.get("rest_m", 0.0)) for device in airframe.device
        }
        self._samples = Samples(airframe=airframe)
        self._attitude = AttitudeFilter()
        self._height = HeightFilter(noise=noise, climb_limit_mps=limits.climb_mps)
        self._heading = HeadingFilter(airframe=airframe)
        self._horizontal = HorizontalFilter(
            home=airframe.home,
            noise=noise,
            speed_limit_mps=limits.speed_mps,
            heading=self._heading,
        )
        self._yaw_rate = YawRateCheck(airframe=airframe)
        self._coast = Coast(airframe=airframe)
        self._coasted_radps: Vec3 | None = None  # body rates by the model; None with an IMU
        self._tilted_rad = 0.0  # what a coast leaves of the tilt
        self._imu_m = airframe.mass.center_of_gravity_m
        self._reference_pa: float | None = None
        self._reference: list[float] = []
        self._camera_doubt = ""  # of the heading
        self._posed_s = self._captured_s = -1e9  # by any source, and by motion capture
        self._high_s = -1e9
        self._moved_s = 0.0
        self._last_s = -1e9
        self._ground = Witnesses(airframe=airframe)
        self._health = EstimateHealth()
        self._health_s = -1e9

    @property
    def gyro_settled(self) -> bool:
        """Whether the gyro's bias is known well enough to take off with."""
        return self._attitude.rest.known

    @property
    def _heading_known(self) -> bool:
        """Switched on in the air, a ship knows its place but not where its nose points:
        its position is no use for steering."""
        known = self._attitude.rest.known or self._ground.down
        return known and self._heading.sigma_rad < STEER_RAD

    def pad_deg(self) -> tuple[float, float] | None:
        """Return latitude and longitude of the pad as GPS saw it, None before it did."""
        return self._horizontal.pad_deg

    def declare_landed(self) -> None:
        """The ship has touched down: this is height 0, whatever the barometer says."""
        self._height.land()
        self._ground.declare(down=True)

    @property
    def gyro_bias_radps(self) -> Vec3:
        return self._attitude.bias_radps

    @property
    def yaw_sigma_rad(self) -> float:
        """Standard deviation of the heading; infinite if there is no usable heading."""
        return self._heading.sigma_rad if self._heading_known else inf

    def begin_with(self, left: FlightRecord, *, age_s: float) -> None:
        """Use the heading and the gyro's bias of a flight process that died; call it before
        `update`.

        age_s: of the record. The ship may have turned meanwhile, so old ones are of no use.
        """
        sigma_rad = hypot(left.yaw_sigma_rad, UNWATCHED_RADPS * abs(age_s))
        if sigma_rad < STEER_RAD and all(map(isfinite, (left.yaw_rad, *left.gyro_bias_radps))):
            self._attitude.begin_with(left.yaw_rad, left.gyro_bias_radps)
            self._heading.rest(self._attitude.rest.sigma_radps, sigma_rad)

    def begin_in_air(self, height_m: float, baro: BaroSample | None) -> None:
        """Start again at `height_m`: the samples since the start were not taken on the pad."""
        self._height = HeightFilter(
            noise=self._airframe.estimator, climb_limit_mps=self._limits.climb_mps
        )
        self._height.begin_at(height_m)
        self._ground.declare(down=False)
        self._reference.clear()
        self._reference_pa = None if baro is None else baro.pressure_pa * pad_ratio(height_m)

    def update(
        self,
        readings: SensorReadings,
        *,
        now_s: float,
        powered: bool,
        believed: Contact = Contact.AIRBORNE,
        thrust: Wrench | None = _STILL,
    ) -> VehicleState:
        """Use the new values in `readings` and return the state at `now_s`.

        powered: something drives the ship; while nothing does and it lies on the ground it
        may be at rest, and then gyro bias and heights are set. believed: what the mode that flies
        has found out about the ground. thrust: what the thrusters give; None: not known, since an
        output is broken. Then it is compared with nothing.
        """
        self._note_time(now_s)
        bad = {self._roles.get(name, name) for name in readings.unhealthy}
        at_rest = not powered and self._ground.down and not self._seen_high(now_s)
        imu = readings.imu
        if imu is not None and ("imu" in bad or not isfinite(imu.t_s) or imu.t_s > now_s + 0.1):
            imu = None
        attitude = self._attitude
        dt_s = attitude.update(imu, at_rest=at_rest)
        q = attitude.attitude
        field_t = None if imu is None else imu.magnetic_body_t
        self._move(q, dt_s, now_s, thrust, at_rest=at_rest, field_t=field_t)
        self._update_height(readings, bad, now_s, at_rest)
        # The horizontal filter follows the IMU, which swings below the hull that the tag's
        # position is of: half of what the accelerometer feels in flight is that swing.
        arm_ned = rotate(q, self._imu_m)
        self._update_horizontal(readings, bad, now_s, at_rest, arm_ned)
        height, horizontal = self._height, self._horizontal
        turn_rad, bias_radps = horizontal.take_tilt()
        if turn_rad:
            attitude.right(turn_rad, bias_radps, horizontal.bias_mps2)
        height.vote(now_s)
        horizontal.vote(now_s)
        if not horizontal.valid(now_s):
            horizontal.coast(now_s, dt_s)
        if believed in STANDS:
            height.stand(now_s)
        elif not height.valid(now_s):
            height.coast(dt_s)
        known = height.valid(now_s)
        touch = self._ground.update(
            readings,
            now_s=now_s,
            height_m=height.height_m,
            climb_mps=height.climb_mps,
            known=known,
            believed=believed,
            driven=powered,
        )
        if now_s - self._health_s >= _HEALTH_S:
            self._health_s = now_s
            self._health = self._gather_health(now_s)
        q = attitude.attitude
        rates = attitude.rates_body_radps
        swing_ned = rotate(q, cross(rates, self._imu_m))
        north_m, east_m = horizontal.position_m
        north_mps, east_mps = horizontal.velocity_mps
        heading_known = self._heading_known
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
            attitude_valid=attitude.valid(now_s),
            height_valid=known,
            position_valid=horizontal.valid(now_s) and heading_known,
            position_age_s=min(horizontal.age_s(now_s), 1e6),
            heading_valid=heading_known,
            coasting=self._coasted_radps is not None,
            touch=touch,
            health=self._health,
        )

    def _note_time(self, now_s: float) -> None:
        """Notice a clock that went back; a small step counts as a late sample."""
        if now_s < self._last_s - _BACK_S:
            self._samples.begin_again()
            self._attitude.begin_again(now_s)
            self._moved_s = self._health_s = now_s
            self._high_s = -1e9
        self._last_s = now_s

    def _move(
        self,
        q: tuple[float, float, float, float],
        dt_s: float,
        now_s: float,
        thrust: Wrench | None,
        *,
        at_rest: bool,
        field_t: Vec3 | None,
    ) -> None:
        """Predict every filter with the IMU; with a larger uncertainty if the IMU is not
        trusted."""
        attitude, height, horizontal = self._attitude, self._height, self._horizontal
        if dt_s > 0.0:
            if self._coasted_radps is not None:
                self._coasted_radps = None
                horizontal.tilted(self._tilted_rad)
            self._moved_s = now_s
            self._turn(dt_s, thrust, at_rest=at_rest)
            if field_t is not None:
                self._heading.magnet(field_t, now_s, at_rest=at_rest, attitude=attitude)
            # A bias along down is no small thing in a ship that swings: a share of it is level.
            forward, right, down = attitude.specific_force_body_mps2
            north, east, down = rotate(q, (forward, right, down + height.bias_mps2))
            up = height.bias_mps2 - (down + GRAVITY_MPS2)
            limits, believed = self._limits, attitude.accel_usable
            if believed and abs(up) < limits.accel_up_mps2:
                height.predict(up, dt_s)
            else:
                height.drift(dt_s, now_s)
            if believed and abs(north) + abs(east) < 2.0 * limits.accel_mps2:
                still = at_rest and attitude.still
                if still and attitude.rest.known:
                    horizontal.rest(_LEVEL_GYRO_RADPS)
                turn_rad = attitude.rates_body_radps[2] * dt_s
                horizontal.predict(
                    north, east, dt_s, turn_rad=turn_rad, on_feet=at_rest, still=still
                )
            else:
                horizontal.drift(dt_s, now_s)
        elif self._coasted_radps is not None or now_s - self._moved_s > _BLIND_S:
            # Without an IMU the other sensors continue, with a larger uncertainty between samples.
            blind_s = min(now_s - self._moved_s, _MAX_BLIND_S)
            height.drift(blind_s, now_s)
            horizontal.drift(blind_s, now_s)
            self._coast_on(blind_s, thrust, now_s)
            self._moved_s = now_s

    def _coast_on(self, dt_s: float, thrust: Wrench | None, now_s: float) -> None:
        """Move the attitude on by the model of the hull; on the ground it stays."""
        attitude = self._attitude
        if self._coasted_radps is None:
            self._tilted_rad = 0.0
        self._tilted_rad = min(_TILTED_RAD, self._tilted_rad + _TILTS_RADPS * dt_s)
        p, q, r = self._coasted_radps or attitude.rates_body_radps
        turned, rates = attitude.attitude, ZERO3
        if not self._ground.down:
            r += self._yaw_rate.coast(r, thrust.torque_body_nm[2] if thrust else 0.0, dt_s)
            turned, rates = self._coast.step(turned, (p, q, r), dt_s)
            self._heading.drift(_LOST_GYRO_RAD * dt_s**0.5)
        attitude.carry(turned, rates[2], now_s)
        self._coasted_radps = rates

    def _turn(self, dt_s: float, thrust: Wrench | None, *, at_rest: bool) -> None:
        """Update the heading, and check whether the gyro measures the ship's turn."""
        attitude = self._attitude
        if thrust is None or at_rest or self._ground.down:
            self._yaw_rate.reset()
            attitude.yaw_rate_radps = None
            if at_rest:
                rest = attitude.rest
                self._heading.rest(rest.sigma_radps, turned_sigma_rad=rest.turned_sigma_rad)
            return
        check = self._yaw_rate
        believed = not check.doubt
        check.update(
            attitude.gyro_yaw_radps,
            thrust.torque_body_nm[2],
            dt_s,
            raw_radps=attitude.gyro_yaw_raw_radps,
        )
        if believed and check.doubt:
            self._heading.drift(_TURNED_RAD)
        attitude.yaw_rate_radps = check.rate_radps if check.doubt else None
        if check.doubt:
            self._heading.drift(_LOST_GYRO_RAD * dt_s**0.5)

    def _gather_health(self, now_s: float) -> EstimateHealth:
        height, climb = self._height.health(now_s)
        position, velocity = self._horizontal.health(now_s)
        return EstimateHealth(
            height=height,
            climb=climb,
            position=position,
            velocity=velocity,
            attitude=self._attitude.health(now_s, self._horizontal.tilt_sigma_rad),
            heading=self._heading.health(
                now_s,
                self._yaw_rate.doubt or self._camera_doubt,
                contested=self._yaw_rate.contested,
            ),
        )

    def _update_height(
        self, readings: SensorReadings, bad: set[str], now_s: float, at_rest: bool
    ) -> None:
        height, is_new = self._height, self._samples.is_new
        gps, baro = readings.gps, readings.baro
        # `_update_horizontal` uses the times of these and of GPS; here they only vote.
        for name, fix in (("tag", readings.tag), ("camera", readings.camera)):
            if fix is not None and name not in bad and is_new(f"{name}-height", fix, now_s):
                pose_m = self._pose_height(fix, now_s, gated=name == "camera")
                if pose_m is None:
                    height.update_witness(-fix.position_ned_m[2], name)
                    continue
                height.update_ranger(pose_m, now_s, source=name)
                if name == "tag":
                    self._captured_s = now_s
        if gps is not None and "gps" not in bad and is_new("gps-height", gps, now_s):
            height.update_witness(gps.altitude_msl_m - self._airframe.home.altitude_msl_m, "gps")
        if baro is not None and "baro" not in bad and is_new("baro", baro, now_s):
            if self._reference_pa is None:
                self._gather_reference(baro.pressure_pa)
            else:
                height_m = baro_height_m(baro.pressure_pa, baro.temperature_c, self._reference_pa)
                if isfinite(height_m):
                    height.update_baro(height_m, now_s)
        for name, sample in (("ranger", readings.ranger), ("sonar", readings.sonar)):
            if sample is not None and name not in bad and is_new(name, sample, now_s):
                ranged_m = self._ranged_m(name, sample, now_s)
                if ranged_m is None:
                    continue
                if now_s - self._captured_s < _POSED_S:
                    # A ranger measures the distance to the floor, motion capture the ship itself.
                    height.update_witness(ranged_m, name)
                else:
                    height.update_ranger(ranged_m, now_s, source=name)
        if at_rest and self._attitude.still:
            height.update_rest(now_s, counts=self._looks_down_only)

    def _pose_height(self, sample: PositionSample, now_s: float, *, gated: bool) -> float | None:
        """Return the height of a pose by motion capture or a camera, and use its heading.

        gated: unless it is far from what is known: a camera may sit otherwise than its row says.
        """
        yaw_rad, latency_s, down_m = sample.yaw_rad, sample.latency_s, sample.position_ned_m[2]
        if yaw_rad is None or latency_s is None or not isfinite(yaw_rad + latency_s + down_m):
            return None
        if not (0.0 <= latency_s <= MAX_LATENCY_S and self._attitude.rest.known):
            return None
        turned_rad = latency_s * self._attitude.rates_body_radps[2]
        error_rad = wrap_pi(yaw_rad + turned_rad - yaw_of(self._attitude.attitude))
        if gated:
            turned = abs(error_rad) > max(_POSE_GATE_RAD, 4.0 * self._heading.sigma_rad)
            self._camera_doubt = (
                f"the camera sees the nose {57.3 * error_rad:+.0f} degrees from there: is it "
                "mounted as its row says, and was the ship laid down nose north?"
                if turned
                else ""
            )
            if turned:
                return latency_s * self._height.climb_mps - down_m
        # A slower source's pose counts for those that it has left out, up to a tenth of a second.
        share = max(1.0, min(_POSE_MOST, (now_s - self._posed_s) * _POSE_HZ))
        self._attitude.turn(share * _POSE_TURN * error_rad, -share * _POSE_BIAS * error_rad)
        self._heading.seen(max(_POSE_RAD, sample.yaw_accuracy_rad, abs(error_rad)))
        self._posed_s = now_s
        return latency_s * self._height.climb_mps - down_m

    def _gather_reference(self, pressure_pa: float) -> None:
        """The first second of pressures, averaged, is the pad's level."""
        if isfinite(pressure_pa) and 3e4 < pressure_pa < 1.2e5:
            self._reference.append(pressure_pa)
            if len(self._reference) >= _REFERENCE_SAMPLES:
                self._reference_pa = sum(self._reference) / len(self._reference)

    def _ranged_m(self, name: str, sample: RangeSample, now_s: float) -> float | None:
        """Return the height of a plausible range."""
        if not _RANGE_M[0] <= sample.distance_m <= _RANGE_M[1]:  # also false for NaN
            return None
        beam_down = rotate_back(self._attitude.attitude, (0.0, 0.0, 1.0))[2]
        if beam_down < _MAX_TILT_COS:
            return None
        height_m = sample.distance_m * beam_down - self._rest_m.get(name, 0.0)
        if name not in self._height.outvoted:
            self._high_s = now_s if height_m > AIRBORNE_M else -1e9
        return height_m

    def _seen_high(self, now_s: float) -> bool:
        """Whether a sensor has just seen the ship off the ground, so that it does not rest on the
        pad."""
        return now_s - max(self._high_s, self._height.lifted_s) < 1.0

    def _update_horizontal(
        self, readings: SensorReadings, bad: set[str], now_s: float, at_rest: bool, arm_ned_m: Vec3
    ) -> None:
        gps, is_new = readings.gps, self._samples.is_new
        horizontal = self._horizontal
        heading = self._heading
        heading.watches = not self._ground.down and now_s - self._posed_s > _POSED_S
        for name, fix in (("tag", readings.tag), ("camera", readings.camera)):
            if fix is not None and name not in bad and is_new(name, fix, now_s):
                horizontal.update_tag(fix, now_s, arm_ned_m=arm_ned_m, source=name)
        if gps is not None and "gps" not in bad and is_new("gps", gps, now_s):
            on_pad = at_rest and self._attitude.still
            horizontal.update_gps(gps, now_s, arm_ned_m=arm_ned_m, on_pad=on_pad)
        turned_rad, bias_radps = heading.take()
        if turned_rad or bias_radps:
            self._attitude.turn(turned_rad, bias_radps)
            horizontal.turn(turned_rad)
