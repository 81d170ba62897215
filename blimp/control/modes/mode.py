"""What every mode is: a small object that turns a state into a setpoint, and ends."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import msgspec

from blimp.airframe import Airframe
from blimp.control.failsafe import Action
from blimp.control.path import Reference
from blimp.control.trajectory import TrajectoryPoint
from blimp.control.weight import Weight
from blimp.geofence import Geofence
from blimp.types import Contact, Mode, SeenSample, Setpoint, Vec3, VehicleState


class Area:
    """Where this flight may go: the one part of a ship that a command changes."""

    def __init__(self) -> None:
        self.fence = Geofence()


class Ship(msgspec.Struct, frozen=True, kw_only=True):
    """What a mode may know of the ship besides its state."""

    airframe: Airframe
    wind_mps: Callable[[], tuple[float, float]]  # north, east, as estimated
    weight: Callable[[], Weight]  # as flight has shown it so far
    steers: bool  # it goes where its nose points: sideways it is weak
    sways: Callable[[], bool] = lambda: True  # it has a side force: a push aside does not turn it
    push_n: Callable[[], float] = lambda: 1.0  # what thrust can push down with
    grips_n: Callable[[], float] = lambda: inf  # the same, without driving over the ground
    pushes_n: Callable[[], float | None] = lambda: None  # and does now; None: not known
    lasts_s: Callable[[], float | None] = lambda: None  # the battery, at what it now gives
    astray: Callable[[], bool] = lambda: False  # an output pushes by itself, or stays where it is
    seen: Callable[[], SeenSample | None] = lambda: None  # the newest of the camera
    area: Area = msgspec.field(default_factory=Area)

    @property
    def highest_m(self) -> float:
        """The ceiling, of the airframe or of this flight."""
        highest_m, ceiling_m = self.airframe.limits.max_altitude_m, self.area.fence.ceiling_m
        return highest_m if ceiling_m is None else min(highest_m, ceiling_m)


class Stick(msgspec.Struct, frozen=True, kw_only=True):
    """Shares, -1 to 1, of the force forward, right and up (ALTHOLD: the climb), and of the turn."""

    forward: float = 0.0
    right: float = 0.0
    up: float = 0.0
    turn: float = 0.0
    until_s: float = 0.0


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a velocity that is being flown asks for at the moment."""

    yaw_rad: float
    velocity_ned_mps: Vec3
    down_m: float


class FlightMode:
    """One way to fly. A new object each time it is entered; it does no I/O, reads no clock.

    Pilot, supervisor and commander ask a mode for these attributes, never for its class; a
    default is what is safe for a mode that says nothing.

    number: its number in telemetry.
    remedy: the failsafe's action that it carries out, or does as much as.
    lifts: it takes a ship off the ground. landed: the ship is down and stays there by itself.
    contact: what it has found out about the ground; AIRBORNE if it looks for none.
    target_ned_m: the place it flies to; None for a mode that has none.
    """

    number: Mode
    remedy = Action.NONE
    lifts = False
    target_ned_m: Vec3 | None = None

    @property
    def landed(self) -> bool:
        return False

    @property
    def contact(self) -> Contact:
        return Contact.AIRBORNE

    @property
    def reference(self) -> Reference | None:
        """Where its leg is, for the leg that takes its place; None if none is under way."""
        return None

    @property
    def demand(self) -> Demand | None:
        """What it asks for as a velocity, for the one that takes its place."""
        return None

    @property
    def steered(self) -> bool:
        """Whether a person says which way at each moment: nobody has checked where that leads."""
        return False

    @property
    def done(self) -> bool:
        """Whether it has reached what it was asked to."""
        return False

    @property
    def fraction(self) -> float:
        """How far it is, 0 to 1."""
        return 0.0

    @property
    def gave_up(self) -> str:
        """Why it will not reach that any more, or "". It holds by then."""
        return ""

    @property
    def note(self) -> str:
        """A sentence for the ground, or ""."""
        return ""

    @property
    def result(self) -> dict[str, Any]:
        """What it tells the one who asked, once done."""
        return {}

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        """Return the setpoint for this cycle."""
        raise NotImplementedError

    def resume(self, state: VehicleState) -> None:
        """Go on from `state` after something else has flown for a while."""

    def push(self, stick: Stick) -> bool:  # noqa: ARG002
        """Take a demand of a person; return whether this mode is flown by one."""
        return False

    def end_before(
        self,
        name: str,  # noqa: ARG002
        points: Sequence[TrajectoryPoint],  # noqa: ARG002
    ) -> TrajectoryPoint | None:
        """Return the point that `points` go on from; None if they begin another trajectory."""
        return None

    def extend(self, points: Sequence[TrajectoryPoint], *, last: bool) -> None:
        """Take more points of the trajectory. Raises ValueError."""
        raise NotImplementedError
