"""The ship in the air: every force, one step at a time.

State is the attitude, the position of the hull's centre, its velocity relative to the air
in body axes, and the body rates. A step is drift, kick, drift: half a step of position and
attitude, accelerations there, velocities by a whole step, the other half of position and
attitude. Forces that depend on velocity take it half a step ahead by the last
acceleration, so that all is second order at one evaluation a step.

Plain floats throughout: on three components they are several times faster than arrays.
"""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from blimp.airframe import Airframe
from blimp.rotation import rotate_back
from blimp.sim.aerodynamics import Aerodynamics
from blimp.sim.arithmetic import SCALARS, Arithmetic
from blimp.sim.atmosphere import GRAVITY_MPS2, Air, isa
from blimp.sim.battery import BatteryPack
from blimp.sim.envelope import Envelope, checked_c
from blimp.sim.grip import Grip
from blimp.sim.ground import Ground, Rows
from blimp.sim.rigid_body import RigidBody
from blimp.sim.servo import ServoArm
from blimp.sim.thruster import Propeller
from blimp.sim.wind import Wind
from blimp.types import IN_AIR, LEVEL, ON_GROUND, ZERO3, Quaternion, Vec3, VehicleState

MAX_STEP_S = 0.01
ON_GROUND_M = 0.01


class Physics:
    """One ship. It starts at rest on its pad, nose north, with a full battery.

    seed: of the wind's direction and gusts. wind_mps: mean wind; 0 is still air.
    Deterministic: equal arguments and equal steps give equal states to the bit.
    """

    def __init__(
        self, *, airframe: Airframe, seed: int, wind_mps: float = 0.0, source: Any = None
    ) -> None:
        """source: of the wind's random numbers, see `Wind`."""
        wind = Wind(seed=seed, mean_mps=wind_mps, span_m=airframe.hull.length_m, source=source)
        self._build(airframe, SCALARS, wind, Ground(airframe=airframe))

    def _build(self, airframe: Airframe, arithmetic: Arithmetic, wind: Wind, ground: Any) -> None:
        """Set the ship down. For `Batch`, the numbers of the airframe may be arrays."""
        self._airframe = airframe
        self._arithmetic = arithmetic
        self._home_m = airframe.home.altitude_msl_m
        self._wind = wind
        self._ground: Ground = ground
        self._envelope = Envelope(hull=airframe.hull, arithmetic=arithmetic)
        self._warmer_c = 0.0
        self._aerodynamics = Aerodynamics(airframe=airframe, arithmetic=arithmetic)
        self._battery = BatteryPack(battery=airframe.battery, arithmetic=arithmetic)
        self._propellers = tuple(
            Propeller(thruster=t, arithmetic=arithmetic) for t in airframe.thruster
        )
        self._servos = tuple(ServoArm(servo=s, arithmetic=arithmetic) for s in airframe.servo)
        names = airframe.servo_names
        self._mounts = tuple(
            (t.position_m, t.turned, names.index(t.tilted_by) if t.tilted_by else -1)
            for t in airframe.thruster
        )
        self._moving = tuple(names.index(part.servo) for part in airframe.mass.moving)
        self._mass_kg = airframe.mass_kg
        self._carry(self.servo_angles_rad)
        self._t_s = 0.0
        self.held = False  # a person holds it where it is: motors turn, and nothing moves
        self.held_until_s = 0.0
        self.grip: Grip | None = None  # a person or a string, in which it moves
        self._attitude: Quaternion = LEVEL
        self._rates: Vec3 = ZERO3
        self._accelerations = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._specific_force: Vec3 = (0.0, 0.0, -GRAVITY_MPS2)
        self._air = self._air_at(0.0)
        self._position: Vec3 = (0.0, 0.0, self._ground.stand(self._heavy_n()))
        self._velocity_air: Vec3 = _minus(self._wind.velocity_ned_mps)  # level: body is NED

    def _carry(self, angles: Sequence[float]) -> None:
        """Work out the balance again: its mass, or a part that moves along it, has changed."""
        self._places = tuple(angles[i] for i in self._moving)
        self._body = RigidBody.of(self._airframe, mass_kg=self._mass_kg, angles_rad=angles)

    def _moved(self, angles: Sequence[float]) -> bool:
        return self._places != tuple(angles[i] for i in self._moving)

    def load(self, mass_kg: float) -> None:
        """Take on ballast, or lose it if negative, without a change of balance or inertia."""
        self._mass_kg += mass_kg
        self._carry(self.servo_angles_rad)

    def weather(self, *, warmer_c: float = 0.0, superheat_c: float = 0.0) -> None:
        """Set how much warmer than the ISA the air is, and than the air the gas.

        Raises ValueError beyond 60 degrees either way.
        """
        self._warmer_c = checked_c("warmer_c", warmer_c)
        self._envelope.superheat_c = checked_c("superheat_c", superheat_c)
        self._air = self._air_at(self._position[2])

    def leak(self, m3_per_day: float) -> None:
        """Let gas escape from now on. Raises ValueError for a rate that cannot be."""
        self._envelope.leak(m3_per_day)

    def _air_at(self, down_m: float) -> Air:
        return isa(self._home_m - down_m, self._warmer_c, self._arithmetic)

    def _heavy_n(self) -> float:
        """Return weight less buoyancy in the air around the ship."""
        return (self._mass_kg - self._envelope.lost_kg - self.displaced_kg) * GRAVITY_MPS2

    @property
    def heaviness_kg(self) -> float:
        """Weight minus buoyancy in the air around the ship, over g. Negative: light."""
        return self._mass_kg - self._envelope.lost_kg - self.displaced_kg

    @property
    def displaced_kg(self) -> float:
        """Mass of the air that the hull displaces."""
        return self._air.density_kg_m3 * self._envelope.volume_m3(self._air)

    # --- what the sensors measure, and tests compare with ---------------------------------

    @property
    def state(self) -> VehicleState:
        """The truth. Position is relative to the hull centre's place at rest on the pad."""
        return VehicleState(
            t_s=self._t_s,
            attitude=self._attitude,
            rates_body_radps=self._rates,
            position_ned_m=self._position,
            velocity_ned_mps=self._velocity_ned(rotation_rows(self._attitude)),
            touch=ON_GROUND if self._is_low else IN_AIR,
        )

    @property
    def _is_low(self) -> bool:
        far = self._ground.is_far(self._position)
        return not far and self.height_above_ground_m < ON_GROUND_M

    @property
    def body_rates_radps(self) -> Vec3:
        """The rates of `truth`, without all the rest of it."""
        return self._rates

    @property
    def specific_force_body_mps2(self) -> Vec3:
        """What an accelerometer at the centre of gravity feels: (0, 0, -9.81) at rest."""
        return self._specific_force

    @property
    def pressure_pa(self) -> float:
        return self._air.pressure_pa

    @property
    def temperature_c(self) -> float:
        return self._air.temperature_c

    @property
    def battery_v(self) -> float:
        return self._battery.voltage_v

    @property
    def battery_current_a(self) -> float:
        return self._battery.current_a

    @property
    def battery_charge(self) -> float:
        """1 full, 0 empty."""
        return self._battery.charge

    @property
    def height_above_ground_m(self) -> float:
        """Height of the ship's lowest point; a hair below 0 when it stands."""
        return self._ground.clearance_m(self._position, rotation_rows(self._attitude))

    @property
    def wind_ned_mps(self) -> Vec3:
        """The air's velocity at the ship, averaged over the hull."""
        return self._wind.velocity_ned_mps

    @property
    def wind(self) -> Wind:
        return self._wind

    @property
    def servo_angles_rad(self) -> tuple[float, ...]:
        return tuple(servo.angle_rad for servo in self._servos)

    @property
    def thrusts_n(self) -> tuple[float, ...]:
        return tuple(propeller.thrust_n for propeller in self._propellers)

    @property
    def touchdown_speed_mps(self) -> float:
        """Downward speed at the last contact after the ship was 5 cm clear; 0 before any."""
        return self._ground.touchdown_speed_mps

    @property
    def kinetic_energy_j(self) -> float:
        """Of ship and moved air, relative to the air."""
        return self._body.energy_j(self._velocity_air, self._rates)

    # --- moving it ----------------------------------------------------------------------

    def place(
        self,
        *,
        position_ned_m: Vec3 = ZERO3,
        attitude: Quaternion = LEVEL,
        velocity_ned_mps: Vec3 = ZERO3,
        rates_body_radps: Vec3 = ZERO3,
    ) -> None:
        """Put the ship somewhere, as the start of an experiment."""
        self._position = position_ned_m
        self._attitude = attitude
        self._rates = rates_body_radps
        wind = self._wind.velocity_ned_mps
        self._velocity_air = rotate_back(
            attitude,
            (
                velocity_ned_mps[0] - wind[0],
                velocity_ned_mps[1] - wind[1],
                velocity_ned_mps[2] - wind[2],
            ),
        )
        self._accelerations = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._air = self._air_at(position_ned_m[2])
        self._ground.release()

    def step(
        self, dt_s: float, throttles: Sequence[float], servo_targets_rad: Sequence[float]
    ) -> None:
        """Advance by `dt_s`, at most 0.01 s.

        throttles: one per thruster, saturated at -1 and 1. servo_targets_rad: one per servo.
        Raises ValueError, before anything moves, naming the output that is not finite.
        """
        self._check(dt_s, throttles, servo_targets_rad)
        angles = [s.step(dt_s, t) for s, t in zip(self._servos, servo_targets_rad, strict=True)]
        thrusts_n = self._throttle(dt_s, throttles)
        if self.held or self._t_s < self.held_until_s:
            self._keep_still(dt_s)
        else:
            self._fly(dt_s, thrusts_n, angles)

    def _keep_still(self, dt_s: float) -> None:
        """Let time pass for gas and air; the ship is at rest over ground."""
        self._envelope.step(dt_s)
        north, east, down = self._wind.velocity_ned_mps
        airspeed_mps = self._arithmetic.sqrt(north * north + east * east + down * down)
        self._wind.step(dt_s, height_m=-self._position[2], airspeed_mps=airspeed_mps)
        self._velocity_air = rotate_back(self._attitude, _minus(self._wind.velocity_ned_mps))
        self._rates = ZERO3
        self._accelerations = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._specific_force = rotate_back(self._attitude, (0.0, 0.0, -GRAVITY_MPS2))
        self._t_s += dt_s

    def _fly(self, dt_s: float, thrusts_n: Sequence[float], angles: Sequence[float]) -> None:
        """Advance by `dt_s` with these thrusts and servo angles."""
        if self._moving and self._moved(angles):
            self._carry(angles)
        self._envelope.step(dt_s)
        force, torque = self._pull(thrusts_n, angles)
        u, v, w = self._velocity_air
        self._wind.step(
            dt_s,
            height_m=-self._position[2],
            airspeed_mps=self._arithmetic.sqrt(u * u + v * v + w * w),
        )
        half_s = 0.5 * dt_s
        sqrt = self._arithmetic.sqrt
        attitude = _turn(self._attitude, self._rates, half_s, sqrt)
        rows = rotation_rows(attitude)
        position = self._drift(rows, half_s)

        p, q, r = self._rates
        du, dv, dw, dp, dq, dr = self._accelerations
        ahead: Vec3 = (u + half_s * du, v + half_s * dv, w + half_s * dw)
        rates: Vec3 = (p + half_s * dp, q + half_s * dq, r + half_s * dr)
        self._air = self._air_at(position[2])
        fx, fy, fz, nx, ny, nz = self._wrench(rows, ahead, rates, angles, force, torque)
        velocity = self._velocity_ned(rows, ahead)
        contacts = [self._ground.wrench(position, rows, velocity, rates)]
        if self.grip is not None:
            contacts.append(self.grip.wrench(self._t_s, position, attitude, velocity, rates))
        for contact in contacts:
            if contact is not None:
                (gx, gy, gz), (mx, my, mz) = contact
                fx, fy, fz = fx + gx, fy + gy, fz + gz
                nx, ny, nz = nx + mx, ny + my, nz + mz

        (a, b, c), (d, e, f), (g, h, i) = rows
        n, m, k = self._wind.acceleration_ned_mps2
        air: Vec3 = (a * n + d * m + g * k, b * n + e * m + h * k, c * n + f * m + i * k)
        rate = self._body.accelerations(ahead, rates, (fx, fy, fz), (nx, ny, nz), air)
        du, dv, dw, dp, dq, dr = self._accelerations = rate
        self._feel(ahead, rates, air, (g, h, i))

        self._velocity_air = (u + dt_s * du, v + dt_s * dv, w + dt_s * dw)
        self._rates = (p + dt_s * dp, q + dt_s * dq, r + dt_s * dr)
        self._position = position
        self._position = self._drift(rows, half_s)
        self._attitude = _turn(attitude, self._rates, half_s, sqrt)
        self._t_s += dt_s

    def _wrench(
        self,
        rows: Rows,
        velocity_mps: Vec3,
        rates_radps: Vec3,
        angles: Sequence[float],
        force: Vec3,
        torque: Vec3,
    ) -> tuple[float, float, float, float, float, float]:
        """Return all but the ground's force and torque: of air, thrust, weight and buoyancy.

        Weight pulls at the centre of gravity, buoyancy at the hull's centre: the origin.
        """
        fx, fy, fz, nx, ny, nz = self._aerodynamics.wrench(velocity_mps, rates_radps, angles)
        g, h, i = rows[2]
        heavy_n = self._heavy_n()
        weight_n = self._mass_kg * GRAVITY_MPS2
        x, y, z = self._body.center_of_gravity_m
        return (
            fx + force[0] + heavy_n * g,
            fy + force[1] + heavy_n * h,
            fz + force[2] + heavy_n * i,
            nx + torque[0] + weight_n * (y * i - z * h),
            ny + torque[1] + weight_n * (z * g - x * i),
            nz + torque[2] + weight_n * (x * h - y * g),
        )

    def _check(
        self, dt_s: float, throttles: Sequence[float], servo_targets_rad: Sequence[float]
    ) -> None:
        if not 0.0 < dt_s <= MAX_STEP_S:
            raise ValueError(f"dt_s is {dt_s!r}, must be above 0 and at most {MAX_STEP_S}")
        frame = self._airframe
        if len(throttles) != len(self._propellers) or len(servo_targets_rad) != len(self._servos):
            raise ValueError(
                f"{frame.name} has thrusters {', '.join(frame.thruster_names)} and servos "
                f"{', '.join(frame.servo_names) or 'none'}: got {len(throttles)} throttles and "
                f"{len(servo_targets_rad)} servo targets"
            )
        if isfinite(sum(throttles) + sum(servo_targets_rad)):
            return
        for i, throttle in enumerate(throttles):
            if not isfinite(throttle):
                raise ValueError(
                    f"throttle of {frame.thruster_names[i]!r} is {throttle!r}, must be finite"
                )
        for i, target in enumerate(servo_targets_rad):
            if not isfinite(target):
                raise ValueError(
                    f"target of servo {frame.servo_names[i]!r} is {target!r}, must be finite"
                )

    def _throttle(self, dt_s: float, throttles: Sequence[float]) -> list[float]:
        """Step propellers and battery; return the thrusts."""
        supply = self._battery.supply
        propellers = self._propellers
        thrusts = [p.step(dt_s, t, supply) for p, t in zip(propellers, throttles, strict=True)]
        current_a = 0.0
        for propeller in propellers:
            current_a += propeller.current_a
        self._battery.step(dt_s, current_a)
        return thrusts

    def _pull(self, thrusts_n: Sequence[float], angles: Sequence[float]) -> tuple[Vec3, Vec3]:
        """Return force and torque of the propellers."""
        fx = fy = fz = nx = ny = nz = 0.0
        for thrust_n, mount in zip(thrusts_n, self._mounts, strict=True):
            (x, y, z), ((ax, ay, az), (bx, by, bz), (cx, cy, cz)), servo = mount
            if servo >= 0:
                c, s = self._arithmetic.cos(angles[servo]), self._arithmetic.sin(angles[servo])
                ax, ay, az = ax + c * bx + s * cx, ay + c * by + s * cy, az + c * bz + s * cz
            ax, ay, az = thrust_n * ax, thrust_n * ay, thrust_n * az
            fx, fy, fz = fx + ax, fy + ay, fz + az
            nx += y * az - z * ay
            ny += z * ax - x * az
            nz += x * ay - y * ax
        return (fx, fy, fz), (nx, ny, nz)

    def _velocity_ned(self, rows: Rows, velocity_air_mps: Vec3 | None = None) -> Vec3:
        u, v, w = velocity_air_mps or self._velocity_air
        wind = self._wind.velocity_ned_mps
        (a, b, c), (d, e, f), (g, h, i) = rows
        return (
            a * u + b * v + c * w + wind[0],
            d * u + e * v + f * w + wind[1],
            g * u + h * v + i * w + wind[2],
        )

    def _drift(self, rows: Rows, dt_s: float) -> Vec3:
        north, east, down = self._velocity_ned(rows)
        x, y, z = self._position
        return (x + dt_s * north, y + dt_s * east, z + dt_s * down)

    def _feel(self, velocity_air: Vec3, rates: Vec3, air: Vec3, down: Vec3) -> None:
        """Set the specific force at the centre of gravity: acceleration less gravity."""
        u, v, w = velocity_air
        p, q, r = rates
        du, dv, dw, dp, dq, dr = self._accelerations
        x, y, z = self._body.center_of_gravity_m
        sx, sy, sz = q * z - r * y, r * x - p * z, p * y - q * x  # w x cg
        u, v, w = u + sx, v + sy, w + sz
        self._specific_force = (
            du + q * w - r * v + dq * z - dr * y + air[0] - GRAVITY_MPS2 * down[0],
            dv + r * u - p * w + dr * x - dp * z + air[1] - GRAVITY_MPS2 * down[1],
            dw + p * v - q * u + dp * y - dq * x + air[2] - GRAVITY_MPS2 * down[2],
        )


def _turn(attitude: Quaternion, rates_radps: Vec3, dt_s: float, sqrt: Any) -> Quaternion:
    """Advance by constant rates, to third order in the angle, which at 5 ms is small."""
    w, x, y, z = attitude
    k = 0.5 * dt_s
    p, q, r = k * rates_radps[0], k * rates_radps[1], k * rates_radps[2]
    c = 1.0 - 0.5 * (p * p + q * q + r * r)
    w, x, y, z = (
        c * w - p * x - q * y - r * z,
        c * x + p * w + r * y - q * z,
        c * y + q * w + p * z - r * x,
        c * z + r * w + q * x - p * y,
    )
    k = 1.0 / sqrt(w * w + x * x + y * y + z * z)
    return (k * w, k * x, k * y, k * z)


def rotation_rows(attitude: Quaternion) -> Rows:
    """Return the rotation matrix from body to NED, row by row."""
    w, x, y, z = attitude
    x2, y2, z2 = 2.0 * x, 2.0 * y, 2.0 * z
    xx, yy, zz = x * x2, y * y2, z * z2
    xy, xz, yz = x * y2, x * z2, y * z2
    wx, wy, wz = w * x2, w * y2, w * z2
    return (
        (1.0 - yy - zz, xy - wz, xz + wy),
        (xy + wz, 1.0 - xx - zz, yz - wx),
        (xz - wy, yz + wx, 1.0 - xx - yy),
    )


def _minus(v: Vec3) -> Vec3:
    return (-v[0], -v[1], -v[2])
