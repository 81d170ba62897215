"""What to do when something is lost: one table, worst first, no I/O.

`update(now_s, state, flags)` returns the worst action whose condition has lasted. Nothing here
moves the ship: the supervisor carries the decision out. Only the last stage stops the motors of a
ship in the air, and only of one that has weighed itself heavy: a light one would fly away. Each
row says why its action is safe for a light ship and for a heavy one.
"""

from collections.abc import Callable
from enum import IntEnum
from math import hypot

import msgspec

from blimp.ability import lacking
from blimp.actions import Need
from blimp.airframe import Airframe
from blimp.control.weight import UNKNOWN_WEIGHT, Weight
from blimp.geofence import Geofence
from blimp.types import LINK_HOLD_S, LINK_LAND_S, LINK_RETURN_S, VehicleState

FLIGHT_TIME_LOW = 0.8  # of the flight time: the reserve that a battery has between low and empty


class Action(IntEnum):
    """By severity: a higher one overrides a lower."""

    NONE = 0
    HOLD = 1
    RETURN = 2
    LAND = 3
    DESCEND = 4
    IDLE = 5


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """What the loop knows besides the state."""

    link_age_s: float = 0.0  # since the ground link last proved alive
    pilot_lost_s: float | None = None  # the transmitter has control, and is not heard, for so long
    heard: bool = False  # the transmitter is
    stops: bool = False  # it is, and its stop switch was tried
    stopped: bool = False  # its stop switch is on
    deaf: str = ""  # why an emergency stop of the ground would not come, "" if it would
    battery_v: float | None = None  # smoothed; None without a good sample
    power_age_s: float = 0.0  # since the battery was last known; 0 where nothing measures it
    flown: float = 0.0  # share of the battery's flight time that is used up; 0 without one
    unhealthy: tuple[str, ...] = ()  # devices
    broken: tuple[str, ...] = ()  # actuators that do not do what is commanded
    spared: float = 0.0  # share of surge, heave and yaw that is left without dead motors
    astray: bool = False  # one of them lifts, and runs by itself
    rising_s: float = 0.0  # sent down and rising all the same, for so long
    driven_up: bool = False  # and faster than without thrust
    unmoved_s: float = 0.0  # pushed down and not sinking, for so long
    weight: Weight = UNKNOWN_WEIGHT  # as flight has shown it
    unattended: bool = False  # in MANUAL in flight, and nobody drives
    gyro_settled: bool = True
    since_stall_s: float = 1e9  # since a cycle last came far too late


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long each condition is borne."""

    link_hold_s: float = LINK_HOLD_S
    link_return_s: float = LINK_RETURN_S
    link_land_s: float = LINK_LAND_S
    transmitter_return_s: float = LINK_RETURN_S  # as of the other link
    transmitter_land_s: float = LINK_LAND_S
    battery_warn_s: float = 5.0
    battery_empty_s: float = 3.0
    power_return_s: float = 5.0
    power_land_s: float = 60.0
    position_land_s: float = 30.0
    output_s: float = 2.0  # as long as an attitude is carried on without an IMU
    rising_s: float = 6.0
    unmoved_s: float = 12.0
    fence_s: float = 1.0
    fence_margin: float = 1.1  # of the airframe's limits
    spared: float = 0.4  # of each axis: with less a dead motor ends the flight


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    action: Action = Action.NONE
    text: str = ""  # "link lost: holding"


_NOTHING = Decision()


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row: `when` must hold for `after_s`.

    light, heavy: why the action is safe for a ship of that kind. latched: it outlasts its
    condition, until the pilot commands another mode, or arms again if the motors idle.
    needs: what a ship must be able to measure to have this row.
    """

    name: str
    when: Callable[[VehicleState, Flags], bool]
    action: Action
    text: str
    light: str
    heavy: str
    after_s: float = 0.0
    latched: bool = False
    needs: tuple[Need, ...] = ()


_PUSHED = "pushed down, then held there under power, and says so"
_LANDS = "sinks under control, is tried at touchdown and let go"
_POWERED = "stays under power and control"


def rules(
    airframe: Airframe, times: Times, fence: Callable[[], Geofence] = Geofence
) -> tuple[Rule, ...]:
    """Return the table of this ship, worst first.

    fence: of the flight; it comes on top of the airframe's.
    """
    lacks = {*lacking(airframe)}
    return tuple(
        rule for rule in _every(airframe, times, fence) if not lacks.intersection(rule.needs)
    )


def _every(airframe: Airframe, times: Times, fence: Callable[[], Geofence]) -> tuple[Rule, ...]:
    battery, limits = airframe.battery, airframe.limits

    def below(flags: Flags, volts: float) -> bool:
        return flags.battery_v is not None and flags.battery_v <= volts

    def lost(flags: Flags, seconds: float) -> bool:
        return flags.pilot_lost_s is not None and flags.pilot_lost_s >= seconds

    def outside(state: VehicleState) -> bool:
        north, east, _ = state.position_ned_m
        return state.position_valid and (
            hypot(north, east) > times.fence_margin * limits.max_distance_m
            or state.altitude_m > times.fence_margin * limits.max_altitude_m
            or bool(fence().breach((north, east), state.altitude_m))
        )

    return (
        Rule(
            name="outputs, last stage",
            when=lambda _, flags: (
                (flags.rising_s >= times.rising_s and (flags.driven_up or flags.weight.may_let_go))
                or (flags.unmoved_s >= times.unmoved_s and flags.weight.may_let_go)
            ),
            action=Action.IDLE,
            text="sent down and not sinking: motors idle until an arm",
            light="only if it rises faster than without thrust: slower then, and pushed down after",
            heavy="without thrust it sinks by its own weight; what pushed it up is off",
            latched=True,
        ),
        Rule(
            name="outputs astray",
            when=lambda _, flags: flags.astray and flags.weight.may_let_go,
            action=Action.IDLE,
            text="a motor that lifts runs by itself: motors asleep until an arm",
            light="never applies: what it weighed must say heavy",
            heavy="nothing else lifts it; asleep it sinks by its own weight, and brakes",
            latched=True,
        ),
        Rule(
            name="attitude",
            when=lambda state, _: not state.attitude_valid,
            action=Action.DESCEND,
            text="attitude lost: level descent",
            light="pushed down level, as it hangs by itself, for as long as the battery lasts",
            heavy="sinks level; motors idle once it must be down",
        ),
        Rule(
            name="height",
            when=lambda state, _: not state.height_valid,
            action=Action.DESCEND,
            text="height lost: blind descent",
            light="pushed down for as long as the battery lasts: never let go unseen",
            heavy="sinks gently; motors idle once it must be down",
        ),
        Rule(
            name="battery empty",
            needs=(Need.BATTERY,),
            when=lambda _, flags: below(flags, battery.empty_v),
            after_s=times.battery_empty_s,
            action=Action.LAND,
            text="battery empty: landing",
            light="down while there is power to push it; held, a person is called at once",
            heavy=_LANDS,
        ),
        Rule(
            name="flight time over",
            when=lambda _, flags: flags.flown >= 1.0,
            action=Action.LAND,
            text="flight time over: landing",
            light="down while there is power to push it; held, a person is called at once",
            heavy=_LANDS,
        ),
        Rule(
            name="outputs",
            when=lambda _, flags: bool(flags.broken) and flags.spared < times.spared,
            action=Action.LAND,
            text="an output does not do what is commanded: landing",
            light="down with what still works; " + _PUSHED,
            heavy="down with what still works, or by its weight",
            latched=True,
        ),
        *(
            Rule(
                name=device.name,
                when=lambda _, flags, name=device.name: name in flags.unhealthy,  # type: ignore[misc]
                after_s=times.output_s,
                action=Action.LAND,
                text=f"{device.name} lost: landing",
                light="down with what still works; " + _PUSHED,
                heavy="down with what still works, or by its weight",
            )
            for device in airframe.device
            if device.outputs and device.required
        ),
        Rule(
            name="battery low, no position",
            needs=(Need.BATTERY,),
            when=lambda state, flags: below(flags, battery.warn_v) and not state.position_valid,
            after_s=times.battery_warn_s,
            action=Action.LAND,
            text="battery low and position lost: landing",
            light=_PUSHED,
            heavy=_LANDS,
        ),
        Rule(
            name="battery unknown, last stage",
            needs=(Need.BATTERY,),
            when=lambda state, flags: (
                flags.power_age_s
                >= (times.power_land_s if state.position_valid else times.power_return_s)
            ),
            action=Action.LAND,
            text="battery unknown: landing",
            light="down while there is power to push it; " + _PUSHED,
            heavy=_LANDS,
        ),
        Rule(
            name="link, last stage",
            when=lambda _, flags: flags.link_age_s >= times.link_land_s,
            action=Action.LAND,
            text="link lost: landing",
            light=_PUSHED,
            heavy=_LANDS,
        ),
        Rule(
            name="transmitter, last stage",
            when=lambda _, flags: lost(flags, times.transmitter_land_s),
            action=Action.LAND,
            text="transmitter lost: landing",
            light=_PUSHED,
            heavy=_LANDS,
        ),
        Rule(
            name="MANUAL, no order",
            when=lambda _, flags: flags.unattended,
            action=Action.LAND,
            text="MANUAL without an order in force: landing",
            light="without thrust it rises for ever: " + _PUSHED,
            heavy="without thrust it touches down as fast as it falls: " + _LANDS,
            latched=True,
        ),
        Rule(
            name="position, last stage",
            needs=(Need.POSITION,),
            when=lambda state, _: not state.position_valid,
            after_s=times.position_land_s,
            action=Action.LAND,
            text="position lost: landing",
            light=_PUSHED,
            heavy=_LANDS,
        ),
        Rule(
            name="fence",
            needs=(Need.POSITION,),
            when=lambda state, _: outside(state),
            after_s=times.fence_s,
            action=Action.RETURN,
            text="outside the fence: returning",
            light=_POWERED,
            heavy=_POWERED,
        ),
        Rule(
            name="battery low",
            needs=(Need.BATTERY, Need.POSITION),
            when=lambda state, flags: below(flags, battery.warn_v) and state.position_valid,
            after_s=times.battery_warn_s,
            action=Action.RETURN,
            text="battery low: returning",
            light=_POWERED,
            heavy=_POWERED,
        ),
        Rule(
            name="flight time",
            needs=(Need.POSITION,),
            when=lambda state, flags: flags.flown >= FLIGHT_TIME_LOW and state.position_valid,
            action=Action.RETURN,
            text="flight time nearly over: returning",
            light=_POWERED,
            heavy=_POWERED,
        ),
        Rule(
            name="battery unknown",
            needs=(Need.BATTERY, Need.POSITION),
            when=lambda state, flags: (
                flags.power_age_s >= times.power_return_s and state.position_valid
            ),
            action=Action.RETURN,
            text="battery unknown: returning",
            light=_POWERED,
            heavy=_POWERED,
        ),
        Rule(
            name="link, second stage",
            needs=(Need.POSITION,),
            when=lambda state, flags: (
                flags.link_age_s >= times.link_return_s and state.position_valid
            ),
            action=Action.RETURN,
            text="link lost: returning",
            light=_POWERED,
            heavy=_POWERED,
        ),
        Rule(
            name="transmitter, second stage",
            needs=(Need.POSITION,),
            when=lambda state, flags: (
                lost(flags, times.transmitter_return_s) and state.position_valid
            ),
            action=Action.RETURN,
            text="transmitter lost: returning",
            light=_POWERED,
            heavy=_POWERED,
        ),
        Rule(
            name="position",
            needs=(Need.POSITION,),
            when=lambda state, _: not state.position_valid,
            action=Action.HOLD,
            text="position lost: holding height and heading",
            light="height is held under power; it drifts with the wind for half a minute",
            heavy="height is held under power; it drifts with the wind for half a minute",
        ),
        Rule(
            name="transmitter, first stage",
            when=lambda _, flags: lost(flags, 0.0),
            action=Action.HOLD,
            text="transmitter lost: holding",
            light=_POWERED,
            heavy=_POWERED,
        ),
        Rule(
            name="link, first stage",
            when=lambda _, flags: flags.link_age_s >= times.link_hold_s,
            action=Action.HOLD,
            text="link lost: holding",
            light=_POWERED,
            heavy=_POWERED,
        ),
    )


class Failsafe:
    """Walks the table; remembers only since when each row's condition has held."""

    def __init__(
        self,
        *,
        airframe: Airframe,
        times: Times | None = None,
        fence: Callable[[], Geofence] = Geofence,
    ) -> None:
        self._rules = rules(airframe, times or Times(), fence)
        self._since_s: dict[str, float] = {}
        self._latched: set[str] = set()

    def update(self, now_s: float, state: VehicleState, flags: Flags) -> Decision:
        """Return the worst action in force."""
        decision, since, latched = _NOTHING, self._since_s, self._latched
        for rule in self._rules:
            name = rule.name
            if name not in latched:
                if not rule.when(state, flags):
                    if since:
                        since.pop(name, None)
                    continue
                if now_s - since.setdefault(name, now_s) < rule.after_s:
                    continue
                if rule.latched:
                    latched.add(name)
            if decision.action < rule.action:
                decision = Decision(action=rule.action, text=rule.text)
        return decision

    def release(self, state: VehicleState, flags: Flags, *, up_to: Action) -> None:
        """Unlatch what no longer holds: the pilot says so. up_to: nothing worse than that."""
        self._latched -= {
            rule.name
            for rule in self._rules
            if rule.action <= up_to and not rule.when(state, flags)
        }

    def reset(self) -> None:
        self._since_s.clear()
        self._latched.clear()
