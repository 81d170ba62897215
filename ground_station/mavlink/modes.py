"""Flight modes by numbers: a custom mode is PX4's main and sub mode, which MAVSDK knows.

MAVSDK takes any autopilot that is not ArduPilot for PX4, and names the modes by these numbers. All
others read the names from AVAILABLE_MODES, but for pymavlink and MAVProxy: for an airship they send
the numbers of ArduPilot's Blimp. Those that are none of PX4's main modes are taken for it; 2 and 6
are PX4's ALTCTL and OFFBOARD.
"""

import msgspec

from blimp.types import Mode


class ModeRow(msgspec.Struct, frozen=True):
    """main, sub: of PX4 where it has such a mode. standard: MAV_STANDARD_MODE, 0 for none."""

    mode: Mode
    main: int
    sub: int
    standard: int = 0

    @property
    def custom(self) -> int:
        return self.main << 16 | self.sub << 24


MODES = (
    ModeRow(Mode.LAND, 4, 6, 7),
    ModeRow(Mode.MANUAL, 1, 0),
    ModeRow(Mode.VELOCITY, 6, 0),  # offboard
    ModeRow(Mode.LOITER, 4, 3, 1),
    ModeRow(Mode.RTL, 4, 5, 5),
    ModeRow(Mode.AUTO, 4, 4, 6),
    ModeRow(Mode.HOLD, 4, 12),  # needs no position: PX4 has none
    ModeRow(Mode.STABILIZE, 7, 0),
    ModeRow(Mode.ALTHOLD, 2, 0, 4),
    ModeRow(Mode.FOLLOW, 4, 8),
)
BY_NAME = {row.mode.name: row for row in MODES}
_BY_CUSTOM = {row.custom: row for row in MODES}
_OF_BLIMP = (Mode.LAND, Mode.LOITER, Mode.RTL, Mode.AUTO)
_BY_STANDARD = {row.standard: row for row in MODES if row.standard}


def asked_mode(first: float, second: float) -> Mode | None:
    """Return the mode of DO_SET_MODE's parameters 2 and 3: main and sub, or the whole number."""
    if not (0.0 <= first < 2**32 and first == int(first)):
        return None
    sub = int(second) if 0.0 <= second <= 255.0 else 0
    custom = int(first) if first >= 2**16 else int(first) << 16 | sub << 24
    row = _BY_CUSTOM.get(custom)
    if row is None and second == 0.0 and first in _OF_BLIMP:
        return Mode(int(first))
    return None if row is None else row.mode


def standard_mode(number: float) -> Mode | None:
    """Return the mode that is MAVLink's standard mode of this number."""
    row = _BY_STANDARD.get(int(number)) if 0.0 <= number < 2**16 else None
    return None if row is None else row.mode
