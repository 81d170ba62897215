"""A camera: its process finds position and things, and sends each as a datagram a picture.

The camera is not this process's: whatever becomes of it, nobody here waits.
"""

from math import hypot, isfinite, pi
from typing import ClassVar

import msgspec

from blimp.airframe import CameraRow
from blimp.airframe import Device as Row
from blimp.errors import BusError
from blimp.hardware.bus import Buses, Datagrams
from blimp.hardware.device import Sensor, Steps, Wiring, read_options
from blimp.types import CameraPose, PositionSample, SeenSample

SOCKET = "camera.sock"
MAX_M = 1000.0
MAX_AGE_S = 0.5  # an older picture says too little of where the ship is
_AHEAD_S = 0.05  # one clock for both processes: a picture of a later time has none
MAX_SEEN = 32  # things in a picture
_UNIT = 0.01  # a direction's length may be so far from 1
_decoder = msgspec.msgpack.Decoder(CameraPose | SeenSample)


class TagCamera(Sensor[PositionSample]):
    """Position, height and heading in the room, north-east-down from the pad, with their age.

    Healthy while pictures come, with a remark while they show no position.
    """

    UNIT: ClassVar[str] = "m"
    WIRING: ClassVar = Wiring(bus="camera")
    STALE_S: ClassVar[float] = 1.0
    STALE_ERROR: ClassVar[str] = "no word of its process (does `blimp camera` run?)"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self.options = read_options(row.options, CameraRow, who=row.name)
        self._opened: Datagrams | None = None
        self._boot_id = ""
        self._sequence = -1
        self._position: tuple[float, ...] | None = None

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _start(self) -> Steps:
        self.close()
        self._opened = self._buses.datagrams(SOCKET)
        yield 0.0

    def _read(self, now_s: float) -> PositionSample | None:
        if self._opened is None:
            raise BusError(f"{self.name}: {SOCKET} is closed")
        newest: CameraPose | None = None
        problem = ""
        for data in self._opened.receive():
            try:
                pose = _decoder.decode(data)
                if isinstance(pose, SeenSample):
                    self._look(pose, now_s)
                    continue
                self._check(pose, now_s)
            except ValueError as error:
                problem = f"{self.name}: refused: {error}"
                continue
            self._boot_id, self._sequence = pose.boot_id, pose.sequence
            newest = pose
        if newest is None:
            self.error = problem or self.error
            return None
        if newest.position_ned_m is None:
            self._alive(now_s, newest.reason[:100] or "no position")
            return None
        if newest.position_ned_m == self._position:
            return None  # the same to the bit: the picture stands still
        self._position = newest.position_ned_m
        self._alive(now_s)
        return PositionSample(
            t_s=now_s,
            position_ned_m=newest.position_ned_m,
            accuracy_m=newest.accuracy_m,
            latency_s=max(0.0, now_s - newest.exposed_s),
            yaw_rad=newest.yaw_rad,
            yaw_accuracy_rad=newest.yaw_accuracy_rad,
            bias_m=newest.bias_m,
        )

    def _look(self, seen: SeenSample, now_s: float) -> None:
        """Take what was seen. Raises ValueError for what cannot be true, or is older."""
        _check_age(seen.t_s, now_s)
        if self.seen is not None and seen.t_s <= self.seen.t_s:
            raise ValueError("a picture older than the last one")
        if len(seen.found) > MAX_SEEN:
            raise ValueError(f"{len(seen.found)} things in a picture, the limit is {MAX_SEEN}")
        directions = [seen.axis_body, *(one.direction_body for one in seen.found)]
        if not all(abs(hypot(*one) - 1.0) < _UNIT for one in directions):
            raise ValueError("a direction that is no unit vector")
        sized = all(0.0 < one.size_rad < pi and 0.0 <= one.confidence <= 1.0 for one in seen.found)
        if not (sized and hypot(*seen.camera_body_m) < MAX_M):
            raise ValueError("an angle, a confidence or a place out of range")
        self.seen = seen

    def _check(self, pose: CameraPose, now_s: float) -> None:
        """Raise ValueError for what cannot be true, or is not newer than the last one."""
        if pose.boot_id == self._boot_id and pose.sequence <= self._sequence:
            raise ValueError(f"picture {pose.sequence} after {self._sequence}")
        _check_age(pose.exposed_s, now_s)
        sigmas = (pose.accuracy_m, pose.bias_m, pose.yaw_accuracy_rad)
        position = pose.position_ned_m or (0.0, 0.0, 0.0)
        if not isfinite(sum(position) + sum(sigmas) + pose.yaw_rad):
            raise ValueError("a position that is no number")
        if hypot(*position) > MAX_M or abs(pose.yaw_rad) > 7.0 or min(sigmas) < 0.0:
            raise ValueError(f"position {position} or heading {pose.yaw_rad:g} out of range")

    def _value(self, sample: PositionSample) -> tuple[float, ...]:
        return sample.position_ned_m


def _check_age(exposed_s: float, now_s: float) -> None:
    age_s = now_s - exposed_s
    if not -_AHEAD_S <= age_s <= MAX_AGE_S:
        raise ValueError(f"a picture {age_s:.2f} s old, the limits are 0 to {MAX_AGE_S:g} s")
