"""Setpoint and state in, wrench out: cascaded loops from position to force.

Horizontal:  v* = v_ref + position_p (p* - p)            bounded by the speed limit
             a* = a_ref + velocity_p (v* - v) + I        I grows by velocity_i, world frame
Vertical:    c* = c_ref + height_p (h* - h)              bounded by climb and descent limits,
                                                         and by the ceiling (`ceiling.py`)
             a* = a_ref + climb_p (c* - c) + I           I carries heaviness
Force:       F = (m + added mass) a* + drag(v* - wind) + heaviness, turned into the body frame
             plus a force against the swing (`blimp/control/swing.py`), if the airframe says so
Yaw:         r* = r_ref + yaw_p (yaw* - yaw)             bounded by the yaw rate limit
             N = (Izz + added inertia) (yaw_rate_p (r* - r) + I)
An integral stops growing into an axis the mixer calls saturated. What the integrals settle
at is information: wind, and how heavy or light the ship is.
"""

from collections import deque
from math import atan2, cos, hypot, inf, sin

from blimp.airframe import Airframe
from blimp.constants import AIR_DENSITY_KGM3, GRAVITY_MPS2
from blimp.control.bounds import FELT, LIGHT
from blimp.control.horizontal import RECKONED_S
from blimp.control.pid import Pid
from blimp.control.swing import SwingDamper
from blimp.control.weight import Weight, level_sigma_kg
from blimp.control.wind import WindObserver, turned, turned_back
from blimp.rotation import rotate, rotate_back, wrap_pi, yaw_of
from blimp.types import LEVEL, ZERO3, Quaternion, Setpoint, Vec3, VehicleState, Wrench
from blimp.vector import within

Saturation = tuple[int, int, int, int, int, int]
OneWay = tuple[float, float]  # the most along an axis, and against it

_INTEGRAL_SHARE = 0.6  # of an axis's force: the rest is left to hold the ship steady
_LEVEL_MPS = 0.08  # flight is level below this climb
_LEVEL_S = 2.0  # drag has settled by then
_WEIGH_S = 8.0  # averages gusts
_SWAYS = 0.7  # of its surge, a side force that counts as one
_TURN_SHARE = 0.6  # of the yaw torque, where propellers share it with side force
_CIRCLE = 0.3  # of the yaw torque
_WEIGHED_S = 4.0  # of level flight, to know
_KEPT_S = 6  # of level flight, that a fault of an output takes to be named
_FEEL_S = 3.0  # time constant of the felt weight
_NEXT = 1.5  # of a cycle's time: the one after has come by then
_UNSEEN_S = 0.5  # the slowest source of height gives 10 Hz
_LIFTED_S = 2.0  # in the air, to feel a first weight
_FELT_S = 0.5  # and roughly: a light ship that is let go is in a person's reach by then
_CLEAR_M = 0.4  # the ground carries nothing of a ship that is higher
_LEAD = 1.0  # of the missing speed the course leads by: nothing else brakes a sideways slip
_STEERED = 0.25  # of the surge, if one propeller alone pushes aside, too: the rest is left to turn
_STEERED_SPEED = 0.4  # of its speed: it has to turn before it can brake
_HEADWIND_MPS = 0.15  # in such a wind its nose stays near it, or it turns about before it brakes
_NEAR_WIND_RAD = 1.0  # off the wind, and no further
_CALM_MPS = 0.08  # less air than this to fly against: no course is worth a turn
_FADE_S = 10.0  # without a position the wind correction goes stale


class Controller:
    """One instance a ship; `update` once a cycle.

    force_limit_n, yaw_limit_nm: what the mixer can give both ways, surge, sway, heave and yaw;
    surge_n, heave_n: ahead and back, down and up, of a propeller that is weaker in reverse. They
    bound the integrals and the demand.
    """

    def __init__(
        self,
        *,
        airframe: Airframe,
        force_limit_n: Vec3,
        yaw_limit_nm: float,
        surge_n: OneWay | None = None,
        heave_n: OneWay | None = None,
    ) -> None:
        gains, aero = airframe.gains, airframe.aero
        self._gains = gains
        self._limits = airframe.limits
        self._nominal_n = GRAVITY_MPS2 * airframe.mass.heaviness_kg
        self._heaviness_kg = airframe.mass.heaviness_kg
        mass_kg = AIR_DENSITY_KGM3 * airframe.hull.volume_m3 + airframe.mass.heaviness_kg
        ax, ay, az = aero.added_mass_kg
        self._mass_kg: Vec3 = (mass_kg + ax, mass_kg + ay, mass_kg + az)
        # Without a force from outside, the hull swings about the common centre of its mass
        # and the air it moves: the velocity there is the ship's, not the swing's.
        hang_m = airframe.mass.center_of_gravity_m[2] * mass_kg
        self._swing_m = (hang_m / self._mass_kg[0], hang_m / self._mass_kg[1])
        self.wind = WindObserver(
            aero=aero, mass_kg=self._mass_kg[:2], limit_mps=airframe.limits.speed_mps
        )
        self._wind_s = 0.0  # when it was learnt about last
        self._damper = SwingDamper(
            airframe=airframe,
            ship_kg=mass_kg,
            mass_kg=self._mass_kg[:2],
            force_limit_n=force_limit_n[:2],
        )
        self._displaced_kg = AIR_DENSITY_KGM3 * airframe.hull.volume_m3
        self._rough_kg = FELT * self._displaced_kg
        self._given_n = ZERO3
        self._level_s = 0.0
        self._weighed_s = self._mean_kg = 0.0
        self._kept_kg: deque[float] = deque(maxlen=_KEPT_S)
        self._weighs = True
        self._felt_kg = airframe.mass.heaviness_kg  # by the last seconds, climbing or not
        self._lasting_kg = self._felt_kg  # the same, later
        self._clear_kg = self._felt_kg  # the same, above `_CLEAR_M`
        self._air_kg = airframe.mass.heaviness_kg  # the mean of what was felt in this flight
        self._air_s = 0.0
        self.weight = self._weight()
        self._sink_mps, self._sink_s = 0.0, -inf  # of the last cycle that felt the weight
        self.asked_mps = 0.0  # downwards, by the last setpoint
        self._course_rad: float | None = None
        self._force_limit_n = force_limit_n
        self._surge_n = surge_n or (force_limit_n[0], force_limit_n[0])
        self._heave_n = heave_n or (force_limit_n[2], force_limit_n[2])
        # A ship as strong sideways turns by the same thrusters: a turn must not take them all.
        sways = force_limit_n[1] > _SWAYS * force_limit_n[0]
        self._yaw_limit_nm = yaw_limit_nm * (_TURN_SHARE if sways else 1.0)
        self._inertia_kg_m2 = airframe.mass.inertia_kg_m2[2] + aero.added_inertia_kg_m2[2]
        self._linear = aero.linear_drag
        self._quadratic = aero.quadratic_drag
        horizontal_n = min(force_limit_n[0], force_limit_n[1])
        horizontal = _INTEGRAL_SHARE * horizontal_n / max(self._mass_kg[0], self._mass_kg[1])
        # All of it: what it carries is the weight, which leaves no other way to be steady.
        vertical = max(self._heave_n) / self._mass_kg[2]
        turning = _INTEGRAL_SHARE * yaw_limit_nm / self._inertia_kg_m2
        self._north = Pid(p=gains.velocity_p, i=gains.velocity_i, integral_limit=horizontal)
        self._east = Pid(p=gains.velocity_p, i=gains.velocity_i, integral_limit=horizontal)
        self._down = Pid(p=gains.climb_p, i=gains.climb_i, integral_limit=vertical)
        self._turn = Pid(p=gains.yaw_rate_p, i=gains.yaw_rate_i, integral_limit=turning)

    def wind_ned_mps(self) -> Vec3 | None:
        """Return the horizontal wind over ground; None before some seconds of flight."""
        return (*self.wind.north_east_mps, 0.0) if self.wind.settled else None

    def wind_age_s(self, now_s: float) -> float | None:
        """Return the time since the flight last showed the wind; None while it is not known."""
        return now_s - self._wind_s if self.wind.settled else None

    def _weight(self) -> Weight:
        """Return the heaviness with its uncertainty: what the whole ship decides by.

        What the last seconds clear of the ground felt beyond their own error, by ballast that fell
        or a height that lies, is uncertainty. Before level flight has shown it, the mean is what
        was felt since the ship lifted, never what the airframe says: somebody may have changed the
        ballast. What is far off that mean counts little in it: `felt_kg` follows an output that
        breaks before it can be named. What felt it last may have failed with a height that is gone:
        a weighed ship is as light as it has felt for some seconds.
        """
        level_kg, felt_kg = self._heaviness_kg, self._felt_kg
        weighed = self._weighed_s >= _WEIGHED_S
        mean_kg, least_kg = level_kg, felt_kg - self._rough_kg
        if weighed:
            beyond_kg = max(0.0, abs(self._clear_kg - level_kg) - self._rough_kg)
            known_kg = level_sigma_kg(level_kg, displaced_kg=self._displaced_kg)
            sigma_kg, evidence = hypot(known_kg, beyond_kg), "weighed in level flight"
            least_kg = min(level_kg, self._lasting_kg)
        elif self._air_s > _FELT_S:
            mean_kg, evidence = self._air_kg, "felt in the air"
            sigma_kg = self._rough_kg * max(1.0, _LIFTED_S / self._air_s) ** 0.5
        else:
            sigma_kg, evidence = LIGHT * self._displaced_kg, "not weighed yet"
        return Weight(
            mean_kg=mean_kg,
            sigma_kg=sigma_kg,
            weighed=weighed,
            level_kg=level_kg,
            felt_kg=felt_kg,
            least_kg=least_kg,
            evidence=evidence,
        )

    def reset(self) -> None:
        """Forget wind and yaw trim, for a ship at rest; heaviness is kept: it is the ship's."""
        self._north.reset()
        self._east.reset()
        self._turn.reset()
        self.wind.reset()

    def weigh_again(self) -> None:
        """A new flight: what it weighs is assumed until level flight has shown it."""
        self._weighed_s = self._air_s = 0.0
        self._kept_kg.clear()
        self.weight = self._weight()

    def correct(self, *, lifts: bool = True) -> None:
        """Forget what was learnt in the last seconds: it came from thrusts that were not given.

        lifts: an output that pushes up or down is among them. Else the weight stays as felt: a
        heavy ship whose side motor was named in its take-off fell, its weight forgotten.
        """
        for axis in (self._north, self._east, self._turn):
            axis.reset()
        self.wind.go_back()
        if not lifts:
            return
        if not self.weight.weighed:
            self._weighed_s = 0.0
        elif self._kept_kg:
            self._heaviness_kg = self._mean_kg = self._kept_kg[0]
        self.weight = self._weight()
        heavier_n = self._nominal_n - GRAVITY_MPS2 * self._heaviness_kg
        self._down.integral = heavier_n / self._mass_kg[2]

    def update(
        self,
        state: VehicleState,
        setpoint: Setpoint,
        *,
        dt_s: float,
        achieved: Wrench,
        saturated: Saturation,
        sways: bool = True,
        straight: bool = True,
        weighs: bool = True,
        height_first: bool = False,
    ) -> Wrench:
        """Return the wrench about the centre of gravity that follows `setpoint`.

        achieved, saturated: what the mixer made of the last one. sways: whether there is side
        force; without, the ship gets to its place by turning the nose, whatever yaw is asked.
        straight: whether surge comes without side force.
        weighs: whether thrusts are what is commanded, and nothing else carries the ship, so that
        they tell its weight.
        height_first: the ship does not sink as asked: no thrust goes into place and heading, but
        for what turns it slowly.

        Without a valid attitude the ship is taken to hang level, which it does by itself,
        and only the vertical axis is driven; without a valid position the horizontal force
        is what the wind last known needs; without a valid height the vertical force is
        what the drag of the speed asked for leaves of the heaviness last known.
        """
        self._given_n, self._weighs = achieved.force_body_n, weighs
        if setpoint.press_n is not None:  # the ground holds it: its stillness weighs nothing
            self.asked_mps = 0.0
            return Wrench(force_body_n=(0.0, 0.0, setpoint.press_n))
        self._course_rad = None if sways else self._course(state, setpoint)
        attitude = state.attitude if state.attitude_valid else LEVEL
        force = self._force_ned(
            state, setpoint, attitude, dt_s, saturated, sways=sways, straight=straight
        )
        torque_nm = 0.0
        if height_first:  # turning, it does not go far by what pushes it aside
            force = (0.0, 0.0, force[2])
            torque_nm = 0.0 if state.on_ground else self._circling_nm(state, attitude)
        elif state.attitude_valid:
            torque_nm = self._yaw_torque(state, setpoint, attitude, dt_s, saturated[5])
        return Wrench(
            force_body_n=rotate_back(attitude, force), torque_body_nm=(0.0, 0.0, torque_nm)
        )

    def _force_ned(
        self,
        state: VehicleState,
        setpoint: Setpoint,
        attitude: Quaternion,
        dt_s: float,
        saturated: Saturation,
        *,
        sways: bool,
        straight: bool,
    ) -> Vec3:
        yaw = yaw_of(attitude)
        heading = (cos(yaw), sin(yaw))
        velocity = self._velocity_demand(state, setpoint)
        self.asked_mps = velocity[2]
        fx = fy = 0.0
        ahead, aside, push = setpoint.thrust_body
        if ahead is not None and aside is not None:
            fx, fy = ahead * self._surge_n[ahead < 0.0], aside * self._force_limit_n[1]
        elif state.position_valid and state.attitude_valid:
            fx, fy = self._horizontal_force(state, setpoint, velocity, heading, dt_s, saturated)
            if self._course_rad is not None:
                fx, fy = (fx if straight else within(fx, _STEERED * self._force_limit_n[0])), 0.0
        elif state.attitude_valid:
            fx, fy = self._blind_force(state, heading, dt_s)
        felt = state.attitude_valid and not state.coasting
        if self._damper.on and ahead is None and felt and not state.on_ground:
            p, q, _ = state.rates_body_radps
            against_x, against_y = self._damper.update(q, p, dt_s)
            fx, fy = fx + against_x, fy + (against_y if sways else 0.0)
        fx = _one_way(fx, self._surge_n)
        fy = within(fy, self._force_limit_n[1])
        if push is not None:
            weight_n = self._nominal_n - self._mass_kg[2] * self._down.integral
            fz = push * self._heave_n[push < 0.0] - weight_n
            if setpoint.climb_mps is not None:
                integral = self._down.integral
                least_n = self._vertical_force(
                    state, -setpoint.climb_mps, 0.0, None, dt_s, saturated[2]
                )
                # Braking below the ceiling is no weight, and a push that climbs no faster no error.
                if setpoint.climb_mps > 0.0 or least_n < fz:
                    self._down.integral = integral
                fz = max(fz, least_n)
            return (*turned_back((fx, fy), heading), _one_way(fz, self._heave_n))
        speeding = setpoint.acceleration_ned_mps2[2]
        fz = self._vertical_force(
            state, velocity[2], speeding, setpoint.sink_mps, dt_s, saturated[2]
        )
        return (*turned_back((fx, fy), heading), fz)

    def _horizontal_force(
        self,
        state: VehicleState,
        setpoint: Setpoint,
        demand: Vec3,
        heading: tuple[float, float],
        dt_s: float,
        saturated: Saturation,
    ) -> tuple[float, float]:
        """Return the force along and across the heading: there mass and drag are diagonal."""
        p, q, r = state.rates_body_radps
        north_mps, east_mps, _ = state.velocity_ned_mps
        vx, vy = turned((north_mps, east_mps), heading)
        vx, vy = vx + q * self._swing_m[0], vy - p * self._swing_m[1]
        ahead = turned(setpoint.acceleration_ned_mps2[:2], heading)
        self.wind.update(
            force_n=self._given_n[:2],
            velocity_mps=(vx, vy),
            heading=heading,
            yaw_rate_radps=r,
            dt_s=dt_s,
        )
        self._wind_s = state.t_s
        wish = turned(demand[:2], heading)
        wind = turned(self.wind.north_east_mps, heading)
        short_north, short_east = turned_back((saturated[0], saturated[1]), heading)
        north_mps, east_mps = turned_back((vx, vy), heading)
        an = self._north.update(demand[0] - north_mps, dt_s, saturated=_sign(short_north))
        ae = self._east.update(demand[1] - east_mps, dt_s, saturated=_sign(short_east))
        ax, ay = turned((an, ae), heading)
        return (
            self._mass_kg[0] * (ahead[0] + ax) + self.wind.drag(0, wish[0] - wind[0]),
            self._mass_kg[1] * (ahead[1] + ay) + self.wind.drag(1, wish[1] - wind[1]),
        )

    def _blind_force(
        self, state: VehicleState, heading: tuple[float, float], dt_s: float
    ) -> tuple[float, float]:
        """Without a position: brake while the reckoned velocity is good for it, then hold
        against the wind last known. Without a heading: drift."""
        keep = max(0.0, 1.0 - dt_s / _FADE_S)
        self._north.integral *= keep
        self._east.integral *= keep
        if not state.heading_valid:  # by a wrong one, a brake pushes on
            return 0.0, 0.0
        north, east = self._north.integral, self._east.integral
        if state.position_age_s < RECKONED_S:
            north -= self._gains.velocity_p * state.velocity_ned_mps[0]
            east -= self._gains.velocity_p * state.velocity_ned_mps[1]
        ax, ay = turned((north, east), heading)
        wind = turned(self.wind.north_east_mps, heading)
        return (
            self._mass_kg[0] * ax + self.wind.drag(0, -wind[0]),
            self._mass_kg[1] * ay + self.wind.drag(1, -wind[1]),
        )

    def _vertical_force(
        self,
        state: VehicleState,
        down_mps: float,
        ahead_mps2: float,
        sink_mps: float | None,
        dt_s: float,
        saturated: int,
    ) -> float:
        fresh, integral = state.health.height.age_s < _UNSEEN_S, self._down.integral
        # The accelerometer carries the climb on for two seconds; without it nothing does.
        felt = state.attitude_valid and not state.coasting
        if state.height_valid and (fresh or felt):
            if fresh and felt:
                self._weigh(state, down_mps, dt_s)
                self.weight = self._weight()
            error = down_mps - state.velocity_ned_mps[2]
            demand = ahead_mps2 + self._down.update(error, dt_s, saturated=saturated)
            fz = self._mass_kg[2] * demand + self._drag(2, down_mps) - self._nominal_n
        else:
            fz = self._drag(2, down_mps) - GRAVITY_MPS2 * self.weight.least_kg
        if sink_mps is not None:
            weight_n = GRAVITY_MPS2 * min(self._heaviness_kg, self._felt_kg)
            most_n = self._drag(2, sink_mps) - weight_n
            if fz > most_n:  # the mixer reports no saturation here, so the integral would wind up
                fz, self._down.integral = most_n, min(integral, self._down.integral)
        return _one_way(fz, self._heave_n)

    def _weigh(self, state: VehicleState, demand_mps: float, dt_s: float) -> None:
        """In level flight the mean of what it feels is what the ship is too heavy by."""
        sink_mps = state.velocity_ned_mps[2]
        now_kg = self._feel(sink_mps, state.t_s, dt_s)
        if not state.on_ground:
            self._air_s += dt_s
            if self._weighs and state.altitude_m > _CLEAR_M:
                self._clear_kg = self._felt_kg
            off_kg = now_kg - self._air_kg
            if self._air_s > _LIFTED_S:
                off_kg = within(off_kg, self._rough_kg)
            self._air_kg += dt_s / min(_WEIGH_S, self._air_s) * off_kg
        level = abs(demand_mps) <= _LEVEL_MPS and abs(sink_mps) <= _LEVEL_MPS
        if not level or state.on_ground or not self._weighs:
            self._level_s = 0.0
            return
        self._level_s += dt_s
        if self._level_s < _LEVEL_S:  # still slowing down from a climb
            return
        if int(self._weighed_s + dt_s) > int(self._weighed_s):
            self._kept_kg.append(self._mean_kg)
        self._weighed_s += dt_s
        self._mean_kg += dt_s / min(_WEIGH_S, self._weighed_s) * (now_kg - self._mean_kg)
        if self._weighed_s >= _WEIGHED_S:  # nothing is left in it of what the airframe says
            self._heaviness_kg = self._mean_kg

    def _feel(self, sink_mps: float, now_s: float, dt_s: float) -> float:
        """Weigh in any flight, quickly and roughly: lost ballast shows on the way down.

        Returns what this cycle says.
        """
        change_mps, since_s = sink_mps - self._sink_mps, now_s - self._sink_s
        self._sink_mps, self._sink_s = sink_mps, now_s
        if dt_s <= 0.0 or since_s > _NEXT * dt_s:  # what came between was not felt
            return self._felt_kg
        inertia_n = self._mass_kg[2] * change_mps / dt_s
        now_kg = (inertia_n + self._drag(2, sink_mps) - self._given_n[2]) / GRAVITY_MPS2
        self._felt_kg += dt_s / _FEEL_S * (now_kg - self._felt_kg)
        self._lasting_kg += dt_s / _FEEL_S * (self._felt_kg - self._lasting_kg)
        return now_kg

    def _velocity_demand(self, state: VehicleState, setpoint: Setpoint) -> Vec3:
        limits = self._limits
        north, east, down = setpoint.velocity_ned_mps
        n, e, d = setpoint.position_ned_m
        pn, pe, pd = state.position_ned_m
        if n is not None and e is not None:
            kp = self._gains.position_p
            dn, de = _no_faster(kp * (n - pn), kp * (e - pe), limits.speed_mps)
            north, east = north + dn, east + de
        if d is not None:
            down += self._gains.height_p * (d - pd)
        speed = 1.3 * limits.speed_mps  # room above the reference to catch up with it
        if self._course_rad is not None:
            speed *= _STEERED_SPEED
        down = max(-1.3 * limits.climb_mps, min(1.3 * limits.descent_mps, down))
        if setpoint.climb_mps is not None:
            down = max(-setpoint.climb_mps, down)
        return (*_no_faster(north, east, speed), down)

    def _course(self, state: VehicleState, setpoint: Setpoint) -> float | None:
        """Return the heading in which surge alone flies the demand through the wind."""
        known = state.position_valid and state.attitude_valid
        if not known or setpoint.thrust_body[0] is not None:
            return None
        north, east, _ = self._velocity_demand(state, setpoint)
        v_north, v_east, _ = state.velocity_ned_mps
        north += _LEAD * (north - v_north) - self.wind.north_mps
        east += _LEAD * (east - v_east) - self.wind.east_mps
        if hypot(north, east) > _CALM_MPS:
            return self._near_wind(atan2(east, north))
        return self._course_rad if self._course_rad is not None else yaw_of(state.attitude)

    def _near_wind(self, course_rad: float) -> float:
        """Return the course, no further off the wind than the ship brakes without a turn.

        Downwind the ship drifts, nose to the wind.
        """
        north, east = self.wind.north_east_mps
        if hypot(north, east) < _HEADWIND_MPS:
            return course_rad
        upwind_rad = atan2(-east, -north)
        return upwind_rad + within(wrap_pi(course_rad - upwind_rad), _NEAR_WIND_RAD)

    def _yaw_torque(
        self,
        state: VehicleState,
        setpoint: Setpoint,
        attitude: Quaternion,
        dt_s: float,
        saturated: int,
    ) -> float:
        rate = setpoint.yaw_rate_radps
        heading = setpoint.yaw_rad if self._course_rad is None else self._course_rad
        if heading is not None:
            rate += self._gains.yaw_p * wrap_pi(heading - yaw_of(attitude))
        rate = within(rate, self._limits.yaw_rate_radps)
        yaw_rate = rotate(attitude, state.rates_body_radps)[2]
        # A model's rate teaches nothing, and is no reason to push hard.
        learns_s, share = (0.0, _CIRCLE) if state.coasting else (dt_s, 1.0)
        demand = self._turn.update(rate - yaw_rate, learns_s, saturated=saturated)
        torque_nm = self._inertia_kg_m2 * demand + self._drag(5, rate)
        return within(torque_nm, share * self._yaw_limit_nm)

    def _circling_nm(self, state: VehicleState, attitude: Quaternion) -> float:
        """Return the torque that turns the ship slowly on, without a heading to keep."""
        missing = self._limits.yaw_rate_radps - rotate(attitude, state.rates_body_radps)[2]
        torque_nm = self._inertia_kg_m2 * self._gains.yaw_rate_p * missing
        return within(torque_nm, _CIRCLE * self._yaw_limit_nm)

    def forward_mps(self, state: VehicleState) -> float:
        """Return the speed through the air along the body's x axis; 0 if it is not known."""
        if not (state.position_valid and state.attitude_valid):
            return 0.0
        north, east, down = state.velocity_ned_mps
        air = (north - self.wind.north_mps, east - self.wind.east_mps, down)
        return rotate_back(state.attitude, air)[0]

    def _drag(self, axis: int, speed: float) -> float:
        return speed * (self._linear[axis] + self._quadratic[axis] * abs(speed))


def _one_way(force_n: float, most_n: OneWay) -> float:
    return max(-most_n[1], min(most_n[0], force_n))


def _no_faster(north_mps: float, east_mps: float, limit_mps: float) -> tuple[float, float]:
    """Return the velocity, shortened to the limit."""
    speed_mps = hypot(north_mps, east_mps)
    if speed_mps <= limit_mps:
        return north_mps, east_mps
    shrink = limit_mps / speed_mps
    return north_mps * shrink, east_mps * shrink


def _sign(value: float) -> int:
    return (value > 0.5) - (value < -0.5)
