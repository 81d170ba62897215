"""Can this ship fly? Errors refuse it, warnings name thin margins; each rule is one function.

The words are the same in `blimp airframe check`, `blimp doctor` and the refusal of `blimp fly`.
"""

from collections.abc import Callable, Iterator
from math import atan2, degrees, inf, isfinite, pi, radians, sqrt

import msgspec

from blimp import airframe as airframes
from blimp.ability import lacking, without
from blimp.actions import MODE_NEEDS, Need
from blimp.airframe import Airframe
from blimp.constants import AIR_DENSITY_KGM3
from blimp.errors import AirframeError, BoardError
from blimp.hardware import board
from blimp.service.airframes.figures import AXES, Figures, compute
from blimp.service.airframes.gains import unstable_loops
from blimp.sim.atmosphere import GRAVITY_MPS2, gas_density_kg_m3

LEVEL_LIMIT_RAD = 0.26  # 15 degrees: arming refuses a ship that stands more tilted
BUDGET_SHARE = 0.02  # of the ship's mass, by which its items may miss it
PLACE_SHARE = 0.02  # of the hull's longest side, by which the balance of the items may miss
INERTIA_SHARE = 0.2
GAS_SHARE = 0.05
FULL_CELL_V, DEAD_CELL_V = 4.2, 3.0
CELL_V = 3.7
MOTOR_EFFICIENCY = 0.5  # of motor and propeller together, which small ones do not reach


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found. figures: None if the file is too broken to compute them."""

    name: str
    errors: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    figures: Figures | None = None

    @property
    def ok(self) -> bool:
        return not self.errors


class _Found(msgspec.Struct, frozen=True):
    text: str
    error: bool


Found = Iterator[_Found]


def error(text: str) -> _Found:
    return _Found(text, error=True)


def warning(text: str) -> _Found:
    return _Found(text, error=False)


def check_file(name_or_path: str) -> Report:
    """Judge an airframe by its name or file; one that cannot be read is a report, too."""
    try:
        airframe = airframes.load(name_or_path)
    except AirframeError as problem:
        return Report(name=name_or_path, errors=(str(problem),))
    report = check(airframe)
    return msgspec.structs.replace(report, warnings=(*report.warnings, *retired(name_or_path)))


def retired(name_or_path: str) -> Iterator[str]:
    """Yield a warning for each key of the file that this version passes over."""
    for key in airframes.retired(name_or_path):
        yield f"{key} has no effect in this version: delete its line"


def check(airframe: Airframe) -> Report:
    """Judge a ship. Nothing is opened, and nothing is flown."""
    found = [one for rule in OF_THE_FILE for one in rule(airframe)]
    figures = None
    # A servo that turns for ever makes the mixer's table endless.
    if not any(one.error for one in _servos(airframe)):
        try:
            figures = compute(airframe)
        except AirframeError as problem:
            found.append(error(str(problem)))
        else:
            found += [one for rule in OF_THE_FIGURES for one in rule(airframe, figures)]
    return Report(
        name=airframe.name,
        errors=tuple(one.text for one in found if one.error),
        warnings=tuple(one.text for one in found if not one.error),
        figures=figures,
    )


def demand_airworthy(airframe: Airframe) -> None:
    """Raise AirframeError with every reason why this ship cannot fly."""
    report = check(airframe)
    if not report.ok:
        raise AirframeError(
            f"airframe {airframe.name} cannot fly: {'; '.join(report.errors)} "
            "(see: blimp airframe check)"
        )


# --- of the file alone ------------------------------------------------------------------------


def _hull(airframe: Airframe) -> Found:
    hull = airframe.hull
    spheroid_m3 = pi / 6.0 * hull.length_m * hull.diameter_m * _height_m(airframe)
    share = hull.volume_m3 / spheroid_m3
    if share < 0.2:
        yield error(
            f"hull: volume_m3 {hull.volume_m3:.3g} is {100.0 * share:.2g} % of a spheroid of its "
            f"length, diameter and height, {spheroid_m3:.3g} m3; lengths are in metres, limit 20 %"
        )
    elif share < 0.5:
        yield warning(
            f"hull: volume_m3 {hull.volume_m3:.3g} is {100.0 * share:.0f} % of a spheroid of its "
            f"length, diameter and height, {spheroid_m3:.3g} m3"
        )


def _balance(airframe: Airframe) -> Found:
    x, y, z = airframe.mass.center_of_gravity_m
    if z <= 0.0:
        yield error(
            f"mass: the centre of gravity is {-z:g} m above the centre of buoyancy: it turns over; "
            "center_of_gravity_m[2] must be above 0, which is below"
        )
        return
    tilt_rad = atan2(max(abs(x), abs(y)), z)
    if tilt_rad > LEVEL_LIMIT_RAD:
        yield error(
            f"mass: it hangs tilted by {degrees(tilt_rad):.0f} degrees, limit 15: the centre of "
            f"gravity is {x:g} m ahead and {y:g} m to the right of the centre of buoyancy"
        )
    elif tilt_rad > radians(5.0):
        yield warning(f"mass: it hangs tilted by {degrees(tilt_rad):.0f} degrees; move the battery")


def _inertia(airframe: Airframe) -> Found:
    hull = airframe.hull
    sides_m = (hull.length_m, hull.diameter_m, _height_m(airframe))
    low_m, high_m = 0.1 * min(sides_m), 0.6 * max(sides_m)
    for k, inertia in enumerate(airframe.mass.inertia_kg_m2):
        radius_m = sqrt(inertia / airframe.mass_kg)
        if not low_m <= radius_m <= high_m:
            yield error(
                f"mass: inertia_kg_m2[{k}] {inertia:g} would have its {airframe.mass_kg:.3g} kg "
                f"{radius_m:.3g} m from the axis, where the hull allows {low_m:.2g} to {high_m:.2g}"
            )
    a, b, c = sorted(airframe.mass.inertia_kg_m2)
    if c > 1.02 * (a + b):
        yield warning(
            f"mass: inertia_kg_m2 {c:g} is more than the other two together, as no body's"
        )


def _budget(airframe: Airframe) -> Found:
    items, mass_kg = airframe.mass.item, airframe.mass_kg
    purity = airframe.hull.helium_purity
    gas = next((item for item in items if item.name == "helium"), None)
    if purity is not None:
        if gas is None:
            yield error("hull: helium_purity says nothing without a mass.item 'helium'")
        else:
            expected_kg = gas_density_kg_m3(purity) * airframe.hull.volume_m3
            if abs(gas.mass_kg - expected_kg) > GAS_SHARE * expected_kg:
                yield error(
                    f"mass: item 'helium' weighs {gas.mass_kg:g} kg, but volume_m3 of "
                    f"helium_purity {purity:g} weighs {expected_kg:.4g} kg"
                )
    if not items:
        return
    sum_kg = sum(item.mass_kg for item in items)
    if abs(sum_kg - mass_kg) > BUDGET_SHARE * mass_kg:
        yield error(
            f"mass: the items weigh {sum_kg:.4g} kg together, but volume_m3 and heaviness_kg make "
            f"{mass_kg:.4g} kg: it is {1e3 * (sum_kg - mass_kg):+.0f} g off"
        )
        return
    if abs(sum_kg - mass_kg) > 0.1 * BUDGET_SHARE * mass_kg:
        yield warning(f"mass: the items are {1e3 * (sum_kg - mass_kg):+.0f} g off heaviness_kg")
    center = [sum(i.mass_kg * i.position_m[k] for i in items) / sum_kg for k in range(3)]
    limit_m = PLACE_SHARE * max(airframe.hull.length_m, airframe.hull.diameter_m)
    for k, axis in enumerate("xyz"):
        stated_m = airframe.mass.center_of_gravity_m[k]
        if abs(center[k] - stated_m) > limit_m:
            yield error(
                f"mass: the items balance at {axis} {center[k]:.3g} m, but center_of_gravity_m "
                f"says {stated_m:g}"
            )
    for k, stated in enumerate(airframe.mass.inertia_kg_m2):
        expected = sum(
            i.inertia_kg_m2[k]
            + i.mass_kg * sum((i.position_m[j] - center[j]) ** 2 for j in range(3) if j != k)
            for i in items
        )
        if abs(stated - expected) > INERTIA_SHARE * expected:
            yield error(
                f"mass: the items have inertia {expected:.3g} kg m2 in {AXES[3 + k]}, but "
                f"inertia_kg_m2 says {stated:g}"
            )


def _air(airframe: Airframe) -> Found:
    aero, displaced_kg = airframe.aero, AIR_DENSITY_KGM3 * airframe.hull.volume_m3
    for k, axis in enumerate(AXES):
        if aero.polar is None and not (aero.linear_drag[k] or aero.quadratic_drag[k]):
            yield error(f"aero: no drag in {axis}: nothing would ever stop it")
    for k, added_kg in enumerate(aero.added_mass_kg):
        if added_kg > 3.0 * displaced_kg:
            yield error(
                f"aero: added_mass_kg[{k}] {added_kg:g} is more than three times the air that it "
                f"displaces, {displaced_kg:.3g} kg"
            )
        elif added_kg == 0.0 and aero.polar is None:  # a polar's mass may hold what air it moves
            yield warning(f"aero: no added mass in {AXES[k]}; a hull of air has some")
    if aero.fin_lift_per_rad > 0.0 and aero.fin_position_m >= 0.0:
        yield error(f"aero: fin_position_m {aero.fin_position_m:g} must be astern, below 0")


def _thrusters(airframe: Airframe) -> Found:
    volts = CELL_V * airframe.battery.cells
    widest_m = 0.5 * max(airframe.hull.length_m, airframe.hull.diameter_m)
    for t in airframe.thruster:
        power_w = MOTOR_EFFICIENCY * volts * t.max_current_a
        thrust_n = max(t.max_thrust_n, t.reverse_thrust_n)
        # Momentum theory: P^2 = T^3 / (2 rho A).
        area_m2 = thrust_n**3 / (2.0 * AIR_DENSITY_KGM3 * power_w**2) if power_w else inf
        if sqrt(4.0 / pi * area_m2) > widest_m:
            yield error(
                f"thruster {t.name!r}: {thrust_n:g} N from {volts:.1f} V and {t.max_current_a:g} A "
                f"needs a propeller of {sqrt(4.0 / pi * area_m2):.2g} m; thrust is in newtons "
                "(1 gram of force is 0.0098 N), current in amperes"
            )
    total_n, weight_n = _total_n(airframe), GRAVITY_MPS2 * airframe.mass_kg
    if total_n > weight_n:
        yield error(
            f"thrusters: {total_n:.3g} N together would lift the whole ship of {weight_n:.3g} N; "
            "thrust is in newtons (1 gram of force is 0.0098 N)"
        )


def _servos(airframe: Airframe) -> Found:
    for servo in airframe.servo:
        if max(abs(servo.min_rad), abs(servo.max_rad)) > pi:
            yield error(
                f"servo {servo.name!r}: from {servo.min_rad:g} to {servo.max_rad:g} rad is beyond "
                "half a turn; angles are in radians"
            )


def _escs(airframe: Airframe) -> Found:
    for row in airframe.device:
        reverses = row.options.get("esc", {}).get("reversible")
        if row.chip == "pca9685" and reverses and "oscillator_hz" not in row.options:
            yield warning(
                f"device {row.name!r}: its oscillator is 23 to 27 MHz, not 25, so the middle of a "
                "reversible ESC is off by up to 0.12 ms and may turn a propeller: measure the "
                "pulses, and give oscillator_hz"
            )


def _battery(airframe: Airframe) -> Found:
    battery = airframe.battery
    full_v = FULL_CELL_V * battery.cells
    if battery.warn_v <= battery.empty_v:
        yield error(
            f"battery: warn_v {battery.warn_v:g} is not above empty_v {battery.empty_v:g}: it "
            "would land before it warns"
        )
    if battery.warn_v >= full_v:
        yield error(
            f"battery: warn_v {battery.warn_v:g} is not below {full_v:g} V, {battery.cells} full "
            "cells: it would never arm"
        )
    if battery.empty_v < DEAD_CELL_V * battery.cells:
        yield warning(
            f"battery: empty_v {battery.empty_v:g} is below {DEAD_CELL_V:g} V a cell: harmful"
        )
    current_a = battery.idle_current_a + sum(t.max_current_a for t in airframe.thruster)
    drop_v = current_a * battery.settled_ohm
    if full_v - drop_v < battery.empty_v:
        yield error(
            f"battery: {current_a:.3g} A through resistance_ohm and polarisation_ohm, "
            f"{battery.settled_ohm:g} together, take "
            f"{drop_v:.2g} V: at full power a full battery is below empty_v"
        )
    minutes = 60.0 * battery.capacity_ah / (battery.idle_current_a + 0.3 * current_a)
    if minutes < 5.0:
        yield warning(f"battery: {minutes:.1f} min of flight at a third of the power")


def _devices(airframe: Airframe) -> Found:
    try:
        board.check(airframe)
    except BoardError as problem:
        yield error(str(problem))
    lacks = lacking(airframe)
    for need in (Need.ATTITUDE, Need.HEIGHT):
        if need in lacks:
            yield error(f"devices: {without(need)}: {need} would never be known: it would not arm")
    if Need.POSITION in lacks:
        by_hand = ", ".join(m.name for m, needs in MODE_NEEDS.items() if Need.POSITION not in needs)
        yield warning(f"devices: {without(Need.POSITION)}: it has the modes {by_hand}")
    if Need.BATTERY in lacks and not airframe.battery.flight_time_s:
        yield error(
            f"devices: {without(Need.BATTERY)}, and battery.flight_time_s is not given: nothing "
            "would say when it must land, and it would not arm"
        )


# --- of what follows from it ------------------------------------------------------------------


def _lift(airframe: Airframe, figures: Figures) -> Found:
    lift_n, authority = figures.static_lift_n, figures.authority
    grams = abs(figures.ballast_g)
    weakest_n = 0.02 * abs(lift_n) + 1e-4
    if authority.up_n < weakest_n:
        wings = airframe.aero.polar is not None and airframe.aero.polar.lift[1] > 0.0
        but = (
            "; wings lift it only while it moves, so it cannot take off, hold or land by this "
            "control: it is here to be simulated and replayed"
        )
        yield error(f"thrusters: none lifts: its height cannot be held{but if wings else ''}")
        return
    if authority.down_n < weakest_n:
        text = "thrusters: none pushes down"
        if lift_n >= 0.0:
            yield error(f"{text}, and it is {grams:.1f} g light: it would fly away")
        else:
            yield warning(f"{text}: {grams:.1f} g of lost ballast or warm gas, and it flies away")
    if -lift_n >= authority.up_n:
        yield error(
            f"mass: {grams:.1f} g heavy at home takes {-lift_n:.3g} N, and the thrusters lift "
            f"{authority.up_n:.3g} N: it cannot leave the ground"
        )
    elif lift_n >= authority.down_n > weakest_n:
        yield error(
            f"mass: {grams:.1f} g light at home takes {lift_n:.3g} N, and the thrusters push down "
            f"{authority.down_n:.3g} N: it cannot come down"
        )
    elif figures.thrust_margin < 1.0:
        yield error(
            f"thrusters: {100.0 * figures.thrust_margin:.0f} % of what climb_mps and descent_mps "
            "take with this heaviness"
        )
    elif figures.thrust_margin < 1.5:
        yield warning(
            f"thrusters: only {figures.thrust_margin:.2f} times what climb_mps and descent_mps take"
        )
    # A light ship, too, must tear off the feet that hold it to its mat.
    take_off_n = max(0.0, -lift_n) + airframe.ground.hold_n
    if authority.up_n <= take_off_n and -lift_n < authority.up_n:
        yield error(
            f"ground: to tear its feet off takes {take_off_n:.3g} N with its heaviness, and the "
            f"thrusters lift {authority.up_n:.3g} N: it never leaves the ground"
        )
    elif authority.up_n < 1.3 * take_off_n:
        yield warning(
            f"ground: only {authority.up_n / take_off_n:.2f} times what tears its feet off"
        )
    if lift_n > 0.0:
        yield warning(f"mass: {grams:.1f} g light: with its motors off it rises; add ballast")


def _steering(airframe: Airframe, figures: Figures) -> Found:
    authority, hull = figures.authority, airframe.hull
    size_m = max(hull.length_m, hull.diameter_m)
    if authority.forward_n <= 0.0:
        yield error("thrusters: none pushes forward: no position can be held")
    elif authority.aside_m > 0.1 * size_m:
        yield error(
            f"thrusters: forward thrust acts {authority.aside_m:.2g} m beside the centre of "
            f"gravity and turns the ship, limit {0.1 * size_m:.2g}; put motors on both sides"
        )
    elif authority.aside_share > 0.3:
        yield error(
            f"thrusters: {100.0 * authority.aside_share:.0f} % of forward thrust pushes to the "
            "side, limit 30 %; put motors on both sides"
        )
    if figures.yaw_rate_radps < 0.05:
        yield error(
            f"thrusters: they turn it at {figures.yaw_rate_radps:.2g} rad/s, must be 0.05: "
            "its nose cannot be held"
        )
    elif figures.yaw_rate_radps < airframe.limits.yaw_rate_radps:
        yield warning(
            f"limits: yaw_rate_radps {airframe.limits.yaw_rate_radps:g} is above what full thrust "
            f"reaches, {figures.yaw_rate_radps:.2g}"
        )
    for what, tilt_rad in (
        ("half the lift rolls", authority.lift_roll_rad),
        ("half the forward thrust pitches", authority.surge_pitch_rad),
    ):
        if tilt_rad > radians(45.0):
            yield error(f"thrusters: {what} it by {degrees(tilt_rad):.0f} degrees, limit 45")
        elif tilt_rad > radians(15.0):
            yield warning(f"thrusters: {what} it by {degrees(tilt_rad):.0f} degrees")


def _motion(airframe: Airframe, figures: Figures) -> Found:
    limits, forward_mps = airframe.limits, figures.terminal_speeds_mps["forward"]
    if limits.speed_mps > forward_mps:
        yield warning(
            f"limits: speed_mps {limits.speed_mps:g} is above what full thrust reaches, "
            f"{forward_mps:.2g}"
        )
    if figures.max_wind_mps < 0.3:
        yield warning(f"wind: it holds {figures.max_wind_mps:.2g} m/s: for still halls only")
    if not 0.05 <= figures.swing_hz <= 5.0 and airframe.mass.center_of_gravity_m[2] > 0.0:
        yield warning(f"swing: {figures.swing_hz:.2g} Hz; ships are between 0.05 and 5")
    if not isfinite(figures.thrust_margin):
        yield error("thrusters: no margin can be computed: climbing takes no force")


def _gains(airframe: Airframe) -> Found:
    for loop, most in unstable_loops(airframe):
        cures = " or ".join(f"{name} to at most about {value:.2g}" for name, value in most.items())
        yield error(
            f"gains: the control of {loop} swings up by itself: "
            f"{f'set {cures}' if cures else 'several of its gains are too high'}"
        )


OF_THE_FILE: tuple[Callable[[Airframe], Found], ...] = (
    _hull,
    _balance,
    _inertia,
    _budget,
    _air,
    _thrusters,
    _servos,
    _escs,
    _battery,
    _devices,
    _gains,
)
OF_THE_FIGURES: tuple[Callable[[Airframe, Figures], Found], ...] = (_lift, _steering, _motion)


def _height_m(airframe: Airframe) -> float:
    return airframe.hull.height_m or airframe.hull.diameter_m


def _total_n(airframe: Airframe) -> float:
    return sum(t.max_thrust_n for t in airframe.thruster)
