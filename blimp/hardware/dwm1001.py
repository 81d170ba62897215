"""DWM1001: indoor position tag, its shell's `lep` lines on a serial port.

Source: DWM1001 firmware API guide 2.2, 6.9 (`lep`: `POS,x,y,z,quality`, metres, 0 to 100).
The tag's frame is taken with x east, y north, z up from the pad.
"""

from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring, read_options
from blimp.hardware.lines import LineReader, number
from blimp.hardware.registers.position import DWM1001 as R
from blimp.hardware.serial_sensor import StreamSensor
from blimp.types import PositionSample, Vec3

LINE_LIMIT = 120
MAX_M = 1000.0  # no room is larger; beyond it a line is garbage


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """best_m and worst_m: one standard deviation at quality 100 and at quality 0.

    The module's data sheet promises 0.1 m; the fall between is this project's choice.
    """

    best_m: float = 0.1
    worst_m: float = 1.0
    min_quality: int = 10


class Dwm1001(StreamSensor[PositionSample, str]):
    """Position in the room, north-east-down from the pad."""

    UNIT: ClassVar[str] = "m"
    WIRING: ClassVar = Wiring(bus="serial")
    STALE_S: ClassVar[float] = 3.0
    STALE_ERROR: ClassVar[str] = "no new position line"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses, reader=LineReader(limit=LINE_LIMIT))
        self._options = read_options(row.options, Options, who=row.name)
        self._position_ned_m: Vec3 | None = None
        self._heard = False
        self._started = False

    def _start(self) -> Steps:
        yield from super()._start()
        # `lep` toggles, so it is sent only to a tag that was listened to and said nothing.
        silent, self._heard = self._started and not self._heard, False
        self._started = True
        if silent:
            self._port.write(R.ENTER)
            yield 1.0  # between the returns and the first command, the shell comes up
            self._port.write(R.TOGGLE_POSITION_LINES)
            yield 0.0

    def _take(self, line: str, now_s: float) -> PositionSample | None:
        start = line.rfind(R.PREFIX + ",")  # a prompt, or half a line, may precede it
        if start < 0:
            raise ValueError(f"no position in line {line[:40]!r}")
        _, *fields = line[start:].split(",")
        self._heard = True
        values = [number(field.strip()) for field in fields]
        if len(values) != 4 or None in values:
            raise ValueError(f"unreadable line {line[:40]!r}")
        east_m, north_m, up_m, quality = (value for value in values if value is not None)
        if max(abs(east_m), abs(north_m), abs(up_m)) > MAX_M or not 0 <= quality <= R.QUALITY_MAX:
            raise ValueError(f"position or quality out of range in {line[:40]!r}")
        position = (north_m, east_m, -up_m)
        if position == self._position_ned_m:
            return None  # the noise of a living tag never repeats for long
        self._position_ned_m = position
        if quality < self._options.min_quality:
            self._alive(now_s, f"quality {quality:g} is below {self._options.min_quality}")
            return None
        self._alive(now_s)
        share = quality / R.QUALITY_MAX
        return PositionSample(
            t_s=now_s,
            position_ned_m=position,
            accuracy_m=self._options.worst_m
            + share * (self._options.best_m - self._options.worst_m),
        )

    def _value(self, sample: PositionSample) -> tuple[float, ...]:
        return sample.position_ned_m
