"""What to do when something is lost: one table, worst first, no I/O.

`update(now_s, state, flags)` returns the worst action whose condition has lasted. Nothing
here moves the ship: the supervisor carries the decision out. There is no action that stops
the motors of a ship in the air, because a light one would fly away.
"""

from collections.abc import Callable
from enum import IntEnum
from math import hypot

import msgspec

from blimp.airframe import Airframe
from blimp.types import VehicleState


class Action(IntEnum):
    """By severity: a higher one overrides a lower."""

    NONE = 0
    HOLD = 1
    RETURN = 2
    LAND = 3
    DESCEND = 4


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """What the loop knows besides the state."""

    link_age_s: float = 0.0  # since the ground link last proved alive
    battery_v: float | None = None  # smoothed; None without a good sample
    unhealthy: tuple[str, ...] = ()  # devices
    gyro_settled: bool = True
    since_stall_s: float = 1e9  # since a cycle last came far too late


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long each condition is borne."""

    link_hold_s: float = 3.0
    link_return_s: float = 30.0
    link_land_s: float = 60.0
    battery_warn_s: float = 5.0
    battery_empty_s: float = 3.0
    position_land_s: float = 30.0
    output_s: float = 1.0
    fence_s: float = 1.0
    fence_margin: float = 1.1  # of the airframe's limits


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    action: Action = Action.NONE
    text: str = ""  # "link lost: holding"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row: `when` must hold for `after_s`."""

    name: str
    when: Callable[[VehicleState, Flags], bool]
    action: Action
    text: str
    after_s: float = 0.0


def rules(airframe: Airframe, times: Times) -> tuple[Rule, ...]:
    """Return the table, worst first."""
    battery, limits = airframe.battery, airframe.limits

    def below(flags: Flags, volts: float) -> bool:
        return flags.battery_v is not None and flags.battery_v <= volts

    def outside(state: VehicleState) -> bool:
        north, east, _ = state.position_ned_m
        return state.position_valid and (
            hypot(north, east) > times.fence_margin * limits.max_distance_m
            or state.altitude_m > times.fence_margin * limits.max_altitude_m
        )

    return (
        Rule(
            name="attitude",
            when=lambda state, _: not state.attitude_valid,
            action=Action.DESCEND,
            text="attitude lost: level descent",
        ),
        Rule(
            name="height",
            when=lambda state, _: not state.height_valid,
            action=Action.DESCEND,
            text="height lost: blind descent",
        ),
        Rule(
            name="battery empty",
            when=lambda _, flags: below(flags, battery.empty_v),
            after_s=times.battery_empty_s,
            action=Action.LAND,
            text="battery empty: landing",
        ),
        *(
            Rule(
                name=device.name,
                when=lambda _, flags, name=device.name: name in flags.unhealthy,  # type: ignore[misc]
                after_s=times.output_s,
                action=Action.LAND,
                text=f"{device.name} lost: landing",
            )
            for device in airframe.device
            if device.outputs and device.required
        ),
        Rule(
            name="battery low, no position",
            when=lambda state, flags: below(flags, battery.warn_v) and not state.position_valid,
            after_s=times.battery_warn_s,
            action=Action.LAND,
            text="battery low and position lost: landing",
        ),
        Rule(
            name="link, last stage",
            when=lambda _, flags: flags.link_age_s >= times.link_land_s,
            action=Action.LAND,
            text="link lost: landing",
        ),
        Rule(
            name="position, last stage",
            when=lambda state, _: not state.position_valid,
            after_s=times.position_land_s,
            action=Action.LAND,
            text="position lost: landing",
        ),
        Rule(
            name="fence",
            when=lambda state, _: outside(state),
            after_s=times.fence_s,
            action=Action.RETURN,
            text="outside the fence: returning",
        ),
        Rule(
            name="battery low",
            when=lambda state, flags: below(flags, battery.warn_v) and state.position_valid,
            after_s=times.battery_warn_s,
            action=Action.RETURN,
            text="battery low: returning",
        ),
        Rule(
            name="link, second stage",
            when=lambda state, flags: (
                flags.link_age_s >= times.link_return_s and state.position_valid
            ),
            action=Action.RETURN,
            text="link lost: returning",
        ),
        Rule(
            name="position",
            when=lambda state, _: not state.position_valid,
            action=Action.HOLD,
            text="position lost: holding height and heading",
        ),
        Rule(
            name="link, first stage",
            when=lambda _, flags: flags.link_age_s >= times.link_hold_s,
            action=Action.HOLD,
            text="link lost: holding",
        ),
    )


class Failsafe:
    """Walks the table; remembers only since when each row's condition has held."""

    def __init__(self, *, airframe: Airframe, times: Times | None = None) -> None:
        self._rules = rules(airframe, times or Times())
        self._since_s: dict[str, float] = {}

    def update(self, now_s: float, state: VehicleState, flags: Flags) -> Decision:
        """Return the worst action in force."""
        decision = Decision()
        for rule in self._rules:
            if not rule.when(state, flags):
                self._since_s.pop(rule.name, None)
                continue
            since_s = self._since_s.setdefault(rule.name, now_s)
            if now_s - since_s >= rule.after_s and decision.action < rule.action:
                decision = Decision(action=rule.action, text=rule.text)
        return decision

    def reset(self) -> None:
        self._since_s.clear()
