"""The one table of modes that `mode NAME` can enter: a new mode is a file and a line."""

from collections.abc import Callable

from blimp.control.modes.hold import Hold
from blimp.control.modes.land import Land
from blimp.control.modes.loiter import Loiter
from blimp.control.modes.mode import FlightMode, Ship
from blimp.control.modes.rtl import ReturnToPad
from blimp.control.modes.sticks import Sticks
from blimp.control.modes.velocity import Velocity
from blimp.types import Mode, VehicleState

Factory = Callable[[VehicleState, Ship], FlightMode]

# MANUAL is not made here: the pilot keeps the one that the bench uses too.
MODES: dict[Mode, Factory] = {
    Mode.LAND: lambda state, ship: Land(state, ship=ship, weigh=True),
    Mode.VELOCITY: lambda state, ship: Velocity(
        state, ship=ship, velocity_ned_mps=(0.0, 0.0, 0.0), seconds=1.0
    ),
    Mode.LOITER: lambda state, ship: Loiter(state, ship=ship),
    Mode.RTL: lambda state, ship: ReturnToPad(state, ship=ship),
    Mode.HOLD: lambda state, ship: Hold(state, ship=ship),
    Mode.STABILIZE: lambda state, ship: Sticks(state, ship=ship, number=Mode.STABILIZE),
    Mode.ALTHOLD: lambda state, ship: Sticks(state, ship=ship, number=Mode.ALTHOLD),
}
