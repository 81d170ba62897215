"""MANUAL: motors and servos as ordered, each for its own time, then back to neutral."""

import msgspec

from blimp.airframe import Airframe
from blimp.control.modes.mode import FlightMode
from blimp.types import ActuatorCommand, Mode, Setpoint, VehicleState
from blimp.wires.check import WireCheck


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One actuator's value until a time; `command_id` is who asked."""

    value: float
    until_s: float
    started_s: float
    command_id: str


class Manual(FlightMode):
    """Throttles in [-1, 1], angles in radians. An order that has run out is neutral."""

    number = Mode.MANUAL
    done = True
    fraction = 1.0

    def __init__(self, *, airframe: Airframe) -> None:
        self._airframe = airframe
        self._orders: dict[str, Order] = {}
        self.check: WireCheck | None = None  # drives every output until it has found something
        self.in_flight = False
        self._began_s = 0.0

    def begin(self, now_s: float, *, in_flight: bool) -> None:
        """Note when it took over, and whether from a mode that flew the ship in the air.

        One that was armed and carried up may be held by a person: no motor may start.
        """
        self._began_s, self.in_flight = now_s, in_flight

    def silent_s(self, now_s: float) -> float:
        """Return how long a ship in flight has had no order; 0 of one that was not flying."""
        if not self.in_flight:
            return 0.0
        ends_s = [order.until_s for order in self._orders.values()]
        return max(0.0, now_s - max([self._began_s, *ends_s]))

    def order(self, name: str, order: Order) -> None:
        """Take an order for one actuator; it replaces the one before."""
        self._orders[name] = order

    def running(self, name: str, now_s: float) -> Order | None:
        """Return the order in force for this actuator."""
        order = self._orders.get(name)
        return order if order is not None and now_s < order.until_s else None

    @property
    def checks(self) -> bool:
        """Whether the wires are being tried: no order is taken meanwhile."""
        return self.check is not None and self.check.finding is None

    def active(self, now_s: float) -> bool:
        return self.checks or any(now_s < order.until_s for order in self._orders.values())

    def clear(self) -> None:
        self._orders.clear()
        self.check = None

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:  # noqa: ARG002
        return Setpoint(actuators=self.command(state.t_s))

    def command(self, now_s: float) -> ActuatorCommand:
        if self.check is not None and self.checks:
            return self.check.update(now_s)

        def value(name: str, neutral: float) -> float:
            order = self.running(name, now_s)
            return neutral if order is None else order.value

        return ActuatorCommand(
            motors=tuple(value(t.name, 0.0) for t in self._airframe.thruster),
            servos=tuple(value(s.name, s.neutral_rad) for s in self._airframe.servo),
        )
