"""Motion capture on a serial port: a bridge in the room sends the ship's pose by radio.

The bridge is a program of this project's own protocol, one line a pose, since no motion capture
system sends what a small ship's serial radio carries:
`MC,<seq>,<age ms>,<north m>,<east m>,<down m>,<yaw deg>*<xor of the bytes before, hex>`.
The pose is that of the hull's centre, from the pad; its age is what capture, solver and bridge
took, so that the estimator can tell when it was.
"""

from math import radians
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.hardware.bus import Buses
from blimp.hardware.device import Wiring, read_options
from blimp.hardware.lines import LineReader, number
from blimp.hardware.registers.position import MOCAP as R
from blimp.hardware.serial_sensor import StreamSensor
from blimp.types import PositionSample

LINE_LIMIT = 100
MAX_M = 1000.0
MAX_AGE_S = 0.5  # an older pose says too little of where the ship is


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Standard deviations; link_s: what the radio takes, beyond the age that the line says."""

    accuracy_m: float = 0.005
    yaw_accuracy_deg: float = 0.5
    link_s: float = 0.0


class Mocap(StreamSensor[PositionSample, str]):
    """Position and heading in the room, north-east-down from the pad, with their age."""

    UNIT: ClassVar[str] = "m"
    WIRING: ClassVar = Wiring(bus="serial")
    STALE_S: ClassVar[float] = 1.0
    STALE_ERROR: ClassVar[str] = "no new pose"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses, reader=LineReader(limit=LINE_LIMIT))
        self._options = read_options(row.options, Options, who=row.name)
        self._pose: tuple[float, ...] | None = None

    def _take(self, line: str, now_s: float) -> PositionSample | None:
        body, _, checksum = line.rpartition("*")
        prefix, *fields = body.split(",")
        values = [number(field) for field in fields]
        pose = tuple(value for value in values if value is not None)
        is_whole = len(values) == len(pose) == R.FIELDS
        if prefix != R.PREFIX or not is_whole or checksum != R.checksum(body):
            raise ValueError(f"unreadable line {line[:40]!r}")
        if max(map(abs, pose[2:5])) > MAX_M or abs(pose[5]) > 360.0:
            raise ValueError(f"position or heading out of range in {line[:40]!r}")
        _, age_ms, north_m, east_m, down_m, yaw_deg = pose
        age_s = 1e-3 * age_ms + self._options.link_s
        if not 0.0 <= age_s <= MAX_AGE_S:
            raise ValueError(f"a pose {age_s:.2f} s old, the limits are 0 to {MAX_AGE_S:g} s")
        if pose[2:] == self._pose:
            return None  # the system has lost the ship and repeats itself
        self._pose = pose[2:]
        self._alive(now_s)
        return PositionSample(
            t_s=now_s,
            position_ned_m=(north_m, east_m, down_m),
            accuracy_m=self._options.accuracy_m,
            latency_s=age_s,
            yaw_rad=radians(yaw_deg),
            yaw_accuracy_rad=radians(self._options.yaw_accuracy_deg),
        )

    def _value(self, sample: PositionSample) -> tuple[float, ...]:
        return sample.position_ned_m
