"""What every mode is: a small object that turns a state into a setpoint, and ends."""

from collections.abc import Callable
from math import inf
from typing import Any, Protocol

import msgspec

from blimp.airframe import Airframe
from blimp.geofence import Geofence
from blimp.types import Mode, Setpoint, VehicleState


class Area:
    """Where this flight may go: the one part of a ship that a command changes."""

    def __init__(self) -> None:
        self.fence = Geofence()


class Ship(msgspec.Struct, frozen=True, kw_only=True):
    """What a mode may know of the ship besides its state."""

    airframe: Airframe
    heaviness_kg: Callable[[], float]  # negative: light
    wind_mps: Callable[[], tuple[float, float]]  # north, east, as estimated
    weighed: Callable[[], bool]  # in level flight since the arm; else `heaviness_kg` is assumed
    steers: bool  # it goes where its nose points: sideways it is weak
    felt_kg: Callable[[], float] | None = None  # heaviness by the last seconds, less sure
    doubt: Callable[[], str] = lambda: ""  # why raw sensors say that it is not down, or ""
    least_kg: Callable[[], float] | None = None  # heaviness at the least, by both
    push_n: Callable[[], float] = lambda: 1.0  # what thrust can push down with
    grips_n: Callable[[], float] = lambda: inf  # the same, without driving over the ground
    pushes_n: Callable[[], float | None] = lambda: None  # and does now; None: not known
    lasts_s: Callable[[], float | None] = lambda: None  # the battery, at what it now gives
    astray: Callable[[], bool] = lambda: False  # an output pushes by itself, or stays where it is
    area: Area = msgspec.field(default_factory=Area)


class FlightMode(Protocol):
    """One way to fly. A new object each time it is entered; it does no I/O, reads no clock.

    number: its number in telemetry. done: it has reached what it was asked to.
    fraction: how far it is, 0 to 1. note: a sentence for the ground, or "".
    result: what it tells the one who asked, once done.
    """

    number: Mode

    @property
    def done(self) -> bool: ...

    @property
    def fraction(self) -> float: ...

    @property
    def note(self) -> str: ...

    @property
    def result(self) -> dict[str, Any]: ...

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        """Return the setpoint for this cycle."""
        ...

    def resume(self, state: VehicleState) -> None:
        """Go on from `state` after something else has flown for a while."""
        ...
