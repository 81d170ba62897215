"""The live terminal view: one snapshot drawn as a page, for `ground watch` and the demo.

Deterministic: it draws what it is given and reads no clock. Every value carries the age of
its source: grey after 1 s, marked with its age after 3.5 s. A value that stops is therefore always
visible as old.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from blimp.queue.log import printable
from blimp.types import SensorStatus, Snapshot
from ground_station.map import Point, draw_map
from ground_station.track import TrackLeg

STALE_S = 1.0
OLD_S = 3.5
MIN_WIDTH = 60
MIN_HEIGHT = 16
DEFAULT_HEIGHT = 24
LOW_ALTITUDE_SCALE_M = 5.0
GREY = "bright_black"


class FlightView(msgspec.Struct, frozen=True, kw_only=True):
    """A Rich renderable that fills the console it is printed on, from 60 x 16 up.

    snapshot: None until the ship `vehicle` publishes one.
    age_s: the age of the snapshot now. legs, current: the mission's lines and the one that
    is flown. trail: earlier positions, oldest first, (north, east) in metres.
    progress: one line about the mission or the command that is under way.
    altitude_set_m: the commanded altitude, if it is known.
    """

    vehicle: str
    snapshot: Snapshot | None
    age_s: float = 0.0
    legs: Sequence[TrackLeg] = ()
    current: TrackLeg | None = None
    trail: Sequence[Point] = ()
    progress: str = ""
    altitude_set_m: float | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(MIN_WIDTH, options.max_width)
        height = max(MIN_HEIGHT, options.height or min(console.height, options.max_height))
        lines = self.lines(width=width, height=height)
        page = Text("\n", no_wrap=True, overflow="crop", end="").join(lines)
        page.no_wrap, page.overflow = True, "crop"
        yield page

    def lines(self, *, width: int, height: int) -> list[Text]:
        """Return exactly `height` lines of `width` cells or less."""
        shown = msgspec.structs.replace(
            self,
            vehicle=printable(self.vehicle),
            snapshot=_printable(self.snapshot),
            progress=printable(self.progress),
        )
        return shown._lines(width=width, height=height)

    def _lines(self, *, width: int, height: int) -> list[Text]:
        if self.snapshot is None:
            words = Text(f" {self.vehicle}: no snapshot yet", "yellow")
            return _fill([words, Text(" " + self.progress)], height)
        right_width = max(38, min(56, width * 11 // 20))
        body_height = height - 3
        left = self._map(self.snapshot, width=width - right_width - 1, height=body_height)
        right = self._instruments(self.snapshot, width=right_width, height=body_height)
        top = [self._strip(self.snapshot, width), self._state_line(self.snapshot, width)]
        body = [_beside(a, b, width - right_width) for a, b in zip(left, right, strict=True)]
        return [*top, *body, self._message(self.snapshot, width)]

    # --- top and bottom -------------------------------------------------------------------

    def _strip(self, ship: Snapshot, width: int) -> Text:
        left = Text(f" {ship.vehicle} ", "bold reverse")
        if ship.simulated:
            left.append(" SIMULATED ", "bold black on yellow")
        left.append(f"  {ship.mode}  ", "bold")
        if ship.killed:
            left.append(" KILLED ", "bold white on red")
        elif ship.armed:
            left.append(" ARMED ", "bold black on green")
        else:
            left.append(" disarmed ", GREY)
        right = Text()
        right.append_text(self._battery(ship))
        right.append("  ")
        right.append_text(self._loop(ship))
        right.append("  ")
        if self.age_s >= OLD_S:
            right.append(f" NO LINK {_age(self.age_s)} ", "bold white on red")
        else:
            right.append(f"link {_age(self.age_s)} ", _style(self.age_s) or "green")
        return _ends(left, right, width)

    def _battery(self, ship: Snapshot) -> Text:
        volts = "battery ?" if ship.battery_v is None else f"{ship.battery_v:z.1f} V"
        return Text(volts, _style(self.age_s))

    def _loop(self, ship: Snapshot) -> Text:
        found = Text(f"{ship.loop.rate_hz:z.0f} Hz", _style(self.age_s))
        if ship.loop.overruns:
            found.append(f" {ship.loop.overruns} overruns", "yellow")
        return found

    def _state_line(self, ship: Snapshot, width: int) -> Text:
        if ship.failsafe:
            word, style = failsafe_word(ship), "black on yellow" if ship.armed else "white on red"
            return _cut(Text(f" {word} {ship.failsafe} ", f"bold {style}"), width)
        return _cut(Text(" " + (self.progress or ship.active_command), "bold"), width)

    def _message(self, ship: Snapshot, width: int) -> Text:
        if ship.deaf:
            return _cut(Text(f" A STOP MAY NOT ARRIVE: {ship.deaf} ", "bold white on red"), width)
        return _cut(Text(" " + (ship.messages[-1] if ship.messages else ""), "yellow"), width)

    # --- left: the map --------------------------------------------------------------------

    def _map(self, ship: Snapshot, *, width: int, height: int) -> list[Text]:
        picture = draw_map(
            columns=width,
            rows=height - 1,
            ship=ship.position_ned_m[:2],
            yaw_rad=ship.attitude_rad.yaw,
            legs=self.legs,
            current=self.current,
            trail=self.trail,
        )
        bar = f"├{'─' * max(0, picture.bar_columns - 2)}┤ {picture.bar_m:g} m"
        head = _ends(self._heading("map, north up"), Text(bar + " ", GREY), width)
        rows = []
        for cells in picture.rows:
            row = Text()
            for character, style in cells:
                row.append(character, style)
            rows.append(row)
        return [head, *rows]

    # --- right: instruments ---------------------------------------------------------------

    def _instruments(self, ship: Snapshot, *, width: int, height: int) -> list[Text]:
        lines = [self._heading("flight"), *self._flight(ship, width)]
        rest = height - len(lines) - 2  # two headings to come
        sensors_wanted = len(ship.sensors)
        for_actuators = max(min(3, len(ship.actuators)), rest - sensors_wanted)
        actuators = _at_most(self._actuators(ship, width), for_actuators)
        lines += [self._heading("actuators"), *actuators]
        sensors = _at_most(self._sensors(ship, width), height - len(lines) - 1)
        return _fill([*lines, self._heading("sensors"), *sensors], height)

    def _heading(self, title: str) -> Text:
        found = Text(f" {title}", "bold underline")
        if self.age_s >= OLD_S:
            found.append(f" {_age(self.age_s)} old", "not underline red")
        return found

    def _flight(self, ship: Snapshot, width: int) -> list[Text]:
        style = _style(self.age_s)
        north, east, down = ship.velocity_ned_mps
        turn = ship.attitude_rad
        where = ship.position_ned_m
        numbers = f"{ship.altitude_m:z6.2f} m"
        if self.altitude_set_m is not None:
            numbers += f" of {self.altitude_set_m:g}"
        top_m = _scale_top(max(ship.altitude_m, self.altitude_set_m or 0.0))
        bar = _bar(ship.altitude_m, 0.0, top_m, width - 28, mark=self.altitude_set_m)
        rows = [
            f" altitude {numbers:<17}{bar}",
            f" position N {where[0]:+z.2f}  E {where[1]:+z.2f} m",
            f" velocity N {north:+z.2f}  E {east:+z.2f}  up {-down:+z.2f} m/s",
            f" attitude roll {math.degrees(turn.roll):+z.1f}°  "
            f"pitch {math.degrees(turn.pitch):+z.1f}°  yaw {_heading_deg(turn.yaw)}°",
        ]
        return [_cut(Text(row, style), width) for row in rows]

    def _actuators(self, ship: Snapshot, width: int) -> list[Text]:
        rows = []
        for name, value in ship.actuators.items():
            servo = name in ship.servos
            limit = math.pi / 2.0 if servo else 1.0
            number = f"{math.degrees(value):+z4.0f}°" if servo else f"{100.0 * value:+z4.0f} %"
            bar = _bar(value, -limit, limit, width - 19)
            rows.append(_cut(Text(f" {name[:10]:<10}{bar} {number}", _style(self.age_s)), width))
        return rows

    def _sensors(self, ship: Snapshot, width: int) -> list[Text]:
        return [_sensor(name, status, self.age_s, width) for name, status in ship.sensors.items()]


def failsafe_word(snapshot: Snapshot) -> str:
    """Return what stands before a failsafe; one of a disarmed ship is that it is in the air."""
    return "FAILSAFE" if snapshot.armed else "UNPOWERED"


def flight_line(snapshot: Snapshot, age_s: float) -> str:
    """Return the snapshot as one line of text, for output that is not a terminal."""
    north, east, _ = snapshot.position_ned_m
    state = "killed" if snapshot.killed else "armed" if snapshot.armed else "disarmed"
    battery = "battery ?" if snapshot.battery_v is None else f"{snapshot.battery_v:z.1f} V"
    words = [
        f"{snapshot.t_s:z.1f} s",
        snapshot.vehicle,
        snapshot.mode,
        state,
        f"altitude {snapshot.altitude_m:z.2f} m",
        f"north {north:z.2f} m east {east:z.2f} m",
        f"yaw {_heading_deg(snapshot.attitude_rad.yaw)} deg",
        battery,
        f"age {_age(age_s)}",
    ]
    if snapshot.failsafe:
        words.append(f"{failsafe_word(snapshot)} {snapshot.failsafe}")
    if snapshot.simulated:
        words.append("SIMULATED")
    return "  ".join(words)


def status_table(snapshot: Snapshot, age_s: float) -> Table:
    """Return the whole snapshot as a table for `ground status`."""
    snapshot = _printable(snapshot)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    style = _style(age_s)
    north, east, _ = snapshot.position_ned_m
    v_north, v_east, v_down = snapshot.velocity_ned_mps
    turn = snapshot.attitude_rad
    rows = {
        "vehicle": snapshot.vehicle + ("  (SIMULATED)" if snapshot.simulated else ""),
        "mode": snapshot.mode,
        "state": "killed" if snapshot.killed else "armed" if snapshot.armed else "disarmed",
        "failsafe": snapshot.failsafe or "none",
        "age": _age(age_s),
        "pilot's link": _pilot_words(snapshot),
        "stop": snapshot.deaf or "would arrive",
        "altitude": f"{snapshot.altitude_m:z.2f} m",
        "position": f"north {north:z.2f} m, east {east:z.2f} m",
        "velocity": f"north {v_north:z.2f}, east {v_east:z.2f}, up {-v_down:z.2f} m/s",
        "attitude": f"roll {math.degrees(turn.roll):z.1f}, pitch {math.degrees(turn.pitch):z.1f}, "
        f"yaw {_heading_deg(turn.yaw)} deg",
        "battery": _battery_words(snapshot),
        "wind": _wind_words(snapshot, age_s),
        "loop": f"{snapshot.loop.rate_hz:z.1f} Hz, {snapshot.loop.overruns} overruns",
    }
    for name, words in rows.items():
        table.add_row(name, Text(words, style))
    for name, value in snapshot.actuators.items():
        servo = name in snapshot.servos
        number = f"{math.degrees(value):z.1f} deg" if servo else f"{100.0 * value:z.0f} %"
        table.add_row(Text(name), Text(number, style))
    for name, status in snapshot.sensors.items():
        table.add_row(Text(name), _sensor_words(status, age_s))
    for message in snapshot.messages:
        table.add_row("message", Text(message))
    return table


# --- pieces -------------------------------------------------------------------------------


def _printable(value: Any) -> Any:
    """Return a snapshot, or a part of it, with its texts escaped: a stranger may run the broker."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, tuple):
        return tuple(_printable(part) for part in value)
    if isinstance(value, dict):
        return {printable(name): _printable(part) for name, part in value.items()}
    if isinstance(value, msgspec.Struct):
        parts = {name: _printable(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **parts)
    return value


def _style(age_s: float) -> str:
    return "" if age_s < STALE_S else GREY


def _age(age_s: float) -> str:
    return f"{age_s:z.1f} s" if age_s < 99.95 else f"{age_s / 60.0:z.0f} min"


def _pilot_words(ship: Snapshot) -> str:
    if ship.pilot_age_s is None:
        return (
            "No ground station is sending a heartbeat, so the ship watches its own link "
            "to the broker."
        )
    return f"heartbeat {_age(ship.pilot_age_s)} ago"


def _wind_words(ship: Snapshot, age_s: float) -> str:
    """Return its speed and the direction that it comes from."""
    if ship.wind_ned_mps is None or ship.wind_age_s is None:
        return "unknown before some seconds of flight with a position"
    north, east, _ = ship.wind_ned_mps
    old = f", {_age(ship.wind_age_s + age_s)} ago" if ship.wind_age_s + age_s > 1.0 else ""
    return (
        f"{math.hypot(north, east):.2f} m/s from {_heading_deg(math.atan2(-east, -north))} deg{old}"
    )


def _battery_words(snapshot: Snapshot) -> str:
    if snapshot.battery_v is None:
        return "unknown"
    amps = snapshot.current_a
    current = "current not measured" if amps is None else f"{amps:z.2f} A"
    return f"{snapshot.battery_v:z.2f} V, {current}"


def _sensor(name: str, status: SensorStatus, link_age_s: float, width: int) -> Text:
    words = _sensor_words(status, link_age_s)
    mark = Text(" ● " if status.healthy else " ✗ ", "green" if status.healthy else "bold red")
    return _cut(Text.assemble(mark, f"{name[:11]:<12}", words), width)


def _sensor_words(status: SensorStatus, link_age_s: float) -> Text:
    """Return value, unit and, if it is old, the age: that of the sample plus the link's."""
    trouble = "" if status.healthy else status.error or "unhealthy"
    if status.value is None or status.age_s is None:
        return Text.assemble((trouble, "bold red"), " " if trouble else "", ("no sample", GREY))
    age_s = status.age_s + link_age_s
    found = Text()
    if trouble:
        found.append(trouble + "  ", "bold red")
    if age_s >= OLD_S:
        found.append(f"{_age(age_s)} old  ", "red")
    found.append(_quantity(status.value, status.unit), _style(age_s))
    if STALE_S <= age_s < OLD_S:
        found.append(f"  {_age(age_s)}", GREY)
    return found


def _quantity(value: float | tuple[float, ...], unit: str) -> str:
    """Return "11.40 V" or, if a device measures several things, each with its unit.

    Units are separated by commas; each belongs to an equal share of the values.
    """
    if not isinstance(value, tuple):
        return f"{_number(value, unit)} {unit}".rstrip()
    units = [part.strip() for part in unit.split(",")]
    share = len(value) // len(units)
    if share == 0 or len(value) % len(units):
        return f"{' '.join(map(_number, value))} {unit}".rstrip()
    groups = [value[i : i + share] for i in range(0, len(value), share)]
    words = [
        f"{' '.join(_number(value, unit) for value in group)} {unit}"
        for group, unit in zip(groups, units, strict=True)
    ]
    return ", ".join(words)


def _number(value: float, unit: str = "") -> str:
    if unit == "deg":  # only a position is in degrees: the fifth digit is a metre
        return f"{value:z.5f}"
    return f"{value:z.0f}" if abs(value) >= 1000.0 else f"{value:z.2f}"


def _heading_deg(yaw_rad: float) -> str:
    return f"{round(math.degrees(yaw_rad % math.tau)) % 360}" if math.isfinite(yaw_rad) else "?"


def _bar(value: float, low: float, high: float, width: int, *, mark: float | None = None) -> str:
    """Return a bar from zero to `value` in a frame, with `|` at zero or at `mark`."""
    inner = max(5, width - 2)

    def column(x: float) -> int:
        share = (min(high, max(low, x)) - low) / (high - low)
        return min(inner - 1, int(share * inner))

    if not math.isfinite(value):
        return "▕" + "?" * inner + "▏"
    zero, here = column(0.0), column(value)
    cells = ["█" if min(zero, here) <= i <= max(zero, here) else " " for i in range(inner)]
    if low < 0.0:
        cells[zero] = "┃" if here != zero else "│"
    elif here == zero and value < 0.5 * (high - low) / inner:
        cells[zero] = " "
    if mark is not None:
        cells[column(mark)] = "┃"
    return "▕" + "".join(cells) + "▏"


def _scale_top(altitude_m: float) -> float:
    top_m = LOW_ALTITUDE_SCALE_M
    while top_m < 1.1 * altitude_m < 1e6:
        top_m *= 2.0
    return top_m


def _ends(left: Text, right: Text, width: int) -> Text:
    """Put one text at each end of a line; drop the right one if there is no room."""
    gap = width - left.cell_len - right.cell_len
    if gap < 1:
        return _cut(left, width)
    return Text.assemble(left, " " * gap, right)


def _beside(left: Text, right: Text, width: int) -> Text:
    return Text.assemble(left, " " * max(1, width - left.cell_len), right)


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text


def _at_most(lines: list[Text], count: int) -> list[Text]:
    """Return `lines` that fit; if there are more, the last line is their count."""
    if len(lines) <= count:
        return lines
    left_out = len(lines) - count + 1
    return [*lines[: max(0, count - 1)], Text(f"   … {left_out} more", GREY)][: max(0, count)]


def _fill(lines: list[Text], height: int) -> list[Text]:
    return [*lines, *(Text() for _ in range(height - len(lines)))][:height]
