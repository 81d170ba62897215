"""What a flight process leaves of each cycle, as few microseconds of it as possible.

Binary here, JSON in the file: the recorder converts in its own process. The same tape runs in
Lockstep, where it is written to the file at once.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from enum import IntEnum
from math import nan
from typing import Any, Protocol

import msgspec

from blimp.reading import ready
from blimp.rotation import euler
from blimp.types import Contact, Setpoint, VehicleState

Write = Callable[[int, bytes], bool]


class Kind(IntEnum):
    """What a record of the tape is."""

    SESSION = 1  # a `Session` as JSON: always the first of a flight process
    CYCLE = 2  # one cycle: `CYCLE` and the actuators as doubles
    MESSAGE = 3  # a Command, an Outcome or a Snapshot as JSON, with its type
    INJECTED = 4  # what Lockstep did to ship or world, an `Injected` as JSON
    TRUTH = 5  # where a simulated ship really is, from `truth_of`
    PICTURE = 6  # of the ship's camera, from `picture_record`


_EXPOSED = struct.Struct("<d")


def picture_record(t_s: float, jpeg: bytes) -> bytes:
    """Return the record of a picture that was exposed at `t_s`."""
    return _EXPOSED.pack(t_s) + jpeg


def picture_of(record: bytes) -> tuple[float, bytes]:
    """Return time and JPEG of a record that `picture_record` made. Raises struct.error."""
    return _EXPOSED.unpack_from(record)[0], record[_EXPOSED.size :]


@ready
class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a flight process.

    epoch_s: add it to a time of this session for seconds since the Unix epoch.
    follows: the boot id of the flight process that died before it, "" if none did.
    actuators: their names, in the order of a cycle's values; of these `servos` are angles.
    lockstep: whether the commands and what was injected are all that this flight depends on.
    """

    vehicle: str
    boot_id: str
    simulated: bool
    rate_hz: float
    epoch_s: float
    actuators: tuple[str, ...]
    servos: tuple[str, ...]
    airframe: dict[str, Any]
    lockstep: bool = False
    seed: int | None = None
    wind_mps: float | None = None
    bench: bool = False
    follows: str = ""
    plant: dict[str, Any] | None = None  # the simulated ship, if it is not `airframe`


@ready
class Injected(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a Lockstep flight beside its commands, at the end of `cycle`."""

    t_s: float
    cycle: int
    what: str  # "fault", "link", "gusts", "heartbeat", "crash"
    device: str = ""
    kind: str = ""
    options: dict[str, Any] = {}


# t, cycle; position, velocity, attitude quaternion, rates; setpoint position, velocity, yaw and yaw
# rate, with NaN for None; flags. The actuators' values follow, then step time and digest.
CYCLE = struct.Struct("<dQ3d3d4d3d3d3dddQ")
CYCLE_END = struct.Struct("<dI")
_SNAPSHOT = b'{"type":"snapshot"'
TRUTH_HZ = 10.0  # as often as /status
_STATUS_EVERY = 2  # of 20 snapshots a second: the cycles hold what changes faster
ARMED, ON_GROUND, IDLE, CONTACT = 1, 2, 4, 8  # the last one times the contact's place
CONTACTS = tuple(Contact)  # 0 in a log of before: unknown


class Loop(Protocol):
    """What the tape asks of a flight loop after each cycle, see `blimp/control/loop.py`."""

    state: VehicleState
    setpoint: Setpoint

    @property
    def armed(self) -> bool: ...


class Tape:
    """Writes what a flight process does, by `write`, which must never wait.

    Until the session's record is accepted nothing else is written: it says how to read the rest.
    """

    def __init__(self, session: Session, *, write: Write) -> None:
        self.session = msgspec.json.encode(session)
        self._write = write
        self._begun = False
        self._digest = self._snapshots = 0
        self._values = struct.Struct(f"<{len(session.actuators)}d")
        self.failed = 0

    def cycle(
        self, loop: Loop, actuators: Mapping[str, float], *, number: int, step_s: float
    ) -> None:
        """Write cycle `number`, after it. actuators: all of them, in the session's order.

        Its digest covers it and all cycles before it, to the bit, but for `step_s`.
        """
        if not self._begun and not self._begin():
            return
        state, setpoint = loop.state, loop.setpoint
        yaw_rad = setpoint.yaw_rad
        flags = (
            (ARMED if loop.armed else 0)
            | (ON_GROUND if state.on_ground else 0)
            | (IDLE if setpoint.idle else 0)
            | CONTACT * CONTACTS.index(state.touch.contact)
        )
        try:
            data = CYCLE.pack(
                state.t_s, number,
                *state.position_ned_m, *state.velocity_ned_mps, *state.attitude,
                *state.rates_body_radps,
                *[nan if one is None else one for one in setpoint.position_ned_m],
                *setpoint.velocity_ned_mps,
                nan if yaw_rad is None else yaw_rad, setpoint.yaw_rate_radps, flags,
            ) + self._values.pack(*actuators.values())  # fmt: skip
        except (struct.error, TypeError):  # no recording is worth a flight
            self.failed += 1
            return
        self._digest = zlib.crc32(data, self._digest)
        self._write(Kind.CYCLE, data + CYCLE_END.pack(step_s, self._digest))

    def message(self, data: bytes) -> None:
        """Write a command, an outcome or every second snapshot, as the mailbox carries it."""
        if data.startswith(_SNAPSHOT):
            self._snapshots += 1
            if self._snapshots % _STATUS_EVERY:
                return
        if self._begun or self._begin():
            self._write(Kind.MESSAGE, data)

    def injected(self, what: Injected) -> None:
        if self._begun or self._begin():
            self._write(Kind.INJECTED, msgspec.json.encode(what))

    def truth(self, state: VehicleState) -> None:
        """Write where a simulated ship really is."""
        if self._begun or self._begin():
            self._write(Kind.TRUTH, truth_of(state, t_s=state.t_s))

    def _begin(self) -> bool:
        self._begun = self._write(Kind.SESSION, self.session)
        return self._begun


def truth_of(state: VehicleState, *, t_s: float) -> bytes:
    """Return a simulated world's state as the JSON of /truth. t_s: on the flight loop's clock."""
    angles = zip(("roll", "pitch", "yaw"), euler(state.attitude), strict=True)
    return msgspec.json.encode(
        {
            "t_s": round(t_s, 4),
            "position_ned_m": [round(value, 4) for value in state.position_ned_m],
            "velocity_ned_mps": [round(value, 4) for value in state.velocity_ned_mps],
            "attitude_rad": {name: round(angle, 4) for name, angle in angles},
        }
    )
