"""A ship's wiring as a drawing (SVG), made from its airframe's table of devices.

In the middle the header of a Raspberry Pi, on both sides the devices; a wire for every pin that the
table names, and for the two pins of every bus. Wires that are joined have a dot.
"""

from collections.abc import Iterator
from html import escape

import msgspec

from blimp.airframe import Airframe, Device
from blimp.chips import CHIPS
from blimp.hardware.board import I2C_PINS, SPI_PINS, UART_PINS, check, wiring_of
from blimp.service.airframes.wiring_layout import FIRST, LINE, ROW, TOP, Box, End, Side, arrange

# BCM number -> pin of the header; the same on every Pi with 40 pins.
HEADER = {
    2: 3, 3: 5, 4: 7, 14: 8, 15: 10, 17: 11, 18: 12, 27: 13, 22: 15, 23: 16, 24: 18, 10: 19,
    9: 21, 25: 22, 11: 23, 8: 24, 7: 26, 0: 27, 1: 28, 5: 29, 6: 31, 12: 32, 13: 33, 19: 35,
    16: 36, 26: 37, 20: 38, 21: 40,
}  # fmt: skip
POWER = {1: "3V3", 17: "3V3", 2: "5V", 4: "5V"} | dict.fromkeys(
    (6, 9, 14, 20, 25, 30, 34, 39), "GND"
)
_NAMES = {pin: f"GPIO {bcm}" for bcm, pin in HEADER.items()} | POWER
# A second UART, on a Pi 4 and 5 alone: docs/pi.md. BCM numbers: sends, receives.
SECOND_UART = {"/dev/ttyAMA1": (4, 5)}
SECOND_UART_NEEDS = "dtoverlay=uart3, Pi 5: uart2-pi5"
COLOURS = {"SDA": "#1f6feb", "SCL": "#b07d00", "TX": "#1a7f37", "RX": "#1a7f37"}
# Neighbours differ, so that a wire can be followed where others run beside it.
GPIO_COLOURS = ("#8250df", "#bc4c00", "#0a7d8c", "#bf3989", "#4d7c0f", "#953800")

_LABEL = 62  # width of a pin's name beside the header
_TRACK = 12  # how far apart the vertical wires are
_BOX = 330  # width


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """pin: of the header; None if the airframe's table does not tell it."""

    device: str
    label: str
    pin: int | None
    colour: str
    net: str  # wires of one net share a track


def wires(airframe: Airframe) -> list[Wire]:
    """Return every wire of signals, in the order of the table."""
    taken = {bcm for row in airframe.device for bcm in row.pins.values()}
    second = {port: pins for port, pins in SECOND_UART.items() if taken.isdisjoint(pins)}
    uarts = UART_PINS | second
    return [wire for row in airframe.device for wire in _wires(row, uarts)]


def _wires(row: Device, uarts: dict[str, tuple[int, int]]) -> Iterator[Wire]:
    kind = wiring_of(row.chip).bus
    if kind == "i2c":
        yield from _pair(row, ("SDA", "SCL"), I2C_PINS.get(row.bus), row.bus)
    if kind == "spi":
        for label, bcm in zip(
            ("MISO", "MOSI", "SCLK", "CS"), SPI_PINS.get(row.bus, ()), strict=False
        ):
            colour = COLOURS["SCL" if label == "SCLK" else "SDA"]
            net = row.bus if label == "CS" else "spi"
            yield Wire(
                device=row.name, label=label, pin=HEADER[bcm], colour=colour, net=f"{net} {label}"
            )
    if kind == "serial":
        # Crossed: what one end sends the other receives.
        yield from _pair(row, ("RX", "TX"), uarts.get(row.port), row.port)
    for name, bcm in row.pins.items():
        pin = HEADER[bcm]
        colour = GPIO_COLOURS[pin % len(GPIO_COLOURS)]
        yield Wire(device=row.name, label=name, pin=pin, colour=colour, net=f"GPIO {bcm}")


def _pair(
    row: Device, labels: tuple[str, str], bcm: tuple[int, int] | None, place: str
) -> Iterator[Wire]:
    for i, label in enumerate(labels):
        pin = HEADER[bcm[i]] if bcm else None
        net = f"{place} {label}"
        yield Wire(device=row.name, label=label, pin=pin, colour=COLOURS[label], net=net)


def draw(airframe: Airframe) -> str:
    """Return the drawing. Raises BoardError if the table cannot be wired."""
    check(airframe)
    every = wires(airframe)
    left, right = _sides(airframe, every)
    header_x = 20 + _BOX + 30 + _TRACK * len(left.tracks) + _LABEL + 36
    width = header_x + 28 + 36 + _LABEL + _TRACK * len(right.tracks) + 30 + _BOX + 20
    bottoms = [top + box.height for side in (left, right) for box, top in side.boxes]
    height = max([*bottoms, TOP + 20 * ROW]) + 20
    rows = {row.name: row for row in airframe.device}
    parts: list[str] = []
    for side, is_left in ((left, True), (right, False)):
        parts += _side(side, rows, every, header_x=header_x, width=width, is_left=is_left)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
            f"<!-- blimp wiring {airframe.name} -->",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            f'<text x="20" y="24" font-size="18" font-weight="bold">{_safe(airframe.name)}: '
            "wiring</text>",
            f'<text x="20" y="42" fill="#57606a">{_safe(airframe.description)}; every GND is one '
            "wire; a dot joins wires, a crossing does not</text>",
            *parts,
            *_header(every, header_x),
            "</svg>",
            "",
        ]
    )


def _sides(airframe: Airframe, every: list[Wire]) -> tuple[Side, Side]:
    """Give each device the side of most of its pins; without a pin, that with fewer lines."""
    boxes: tuple[list[Box], list[Box]] = ([], [])
    unwired = []
    for row in airframe.device:
        mine = sorted((w for w in every if w.device == row.name), key=lambda w: w.pin or 99)
        odd = [w.pin % 2 for w in mine if w.pin is not None]
        on_right = bool(odd) and sum(odd) * 2 < len(odd)
        ends = tuple(End(w.net, _leaves_at(w.pin, on_right=on_right), w.label) for w in mine)
        box = Box(row.name, ends, max(len(mine), len(row.outputs)))
        if odd:
            boxes[on_right].append(box)
        else:
            unwired.append(box)
    for box in unwired:
        min(boxes, key=lambda side: sum(other.height for other in side)).append(box)
    middle_y = TOP + 10 * ROW
    return arrange(boxes[0], middle_y=middle_y), arrange(boxes[1], middle_y=middle_y)


def _leaves_at(pin: int | None, *, on_right: bool) -> int | None:
    """Return the height at which a pin's wire leaves the header: its own, or the gap below it.

    A pin of the other column goes through between two rows.
    """
    if pin is None:
        return None
    y = TOP + (pin - 1) // 2 * ROW
    return y if (pin % 2 == 0) == on_right else y + ROW // 2


def _header(every: list[Wire], header_x: int) -> Iterator[str]:
    """Draw the 40 pins, seen from above with pin 1 at the top left."""
    used = {wire.pin: wire.colour for wire in every}
    for pin in range(1, 41):
        x, y = _place(pin, header_x)
        fill = used.get(pin) or {"3V3": "#e16f24", "5V": "#cf222e", "GND": "#6e7781"}.get(
            _NAMES[pin], "#d0d7de"
        )
        anchor, text_x = ("end", header_x - 24) if pin % 2 else ("start", header_x + 52)
        yield f'<circle cx="{x}" cy="{y}" r="9" fill="{fill}" stroke="#2d333b" stroke-width="3"/>'
        white = "#ffffff" if pin in used or pin in POWER else "#24292f"
        yield (
            f'<text x="{x}" y="{y + 4}" text-anchor="middle" font-size="10" fill="{white}">{pin}'
            "</text>"
        )
        yield f'<text x="{text_x}" y="{y + 4}" text-anchor="{anchor}">{_NAMES[pin]}</text>'


def _place(pin: int, header_x: int) -> tuple[int, int]:
    """Return the centre of a pin of the header."""
    return header_x + (0 if pin % 2 else 28), TOP + (pin - 1) // 2 * ROW


def _side(
    side: Side,
    rows: dict[str, Device],
    every: list[Wire],
    *,
    header_x: int,
    width: int,
    is_left: bool,
) -> Iterator[str]:
    """Draw one side's boxes, and the wires to them."""
    out = -1 if is_left else 1
    label_x = header_x + (0 if is_left else 28) + out * (26 + _LABEL)  # the far end of its names
    track_x = {net: label_x + out * (10 + _TRACK * i) for i, net in enumerate(side.tracks)}
    edge_x = 20 + _BOX if is_left else width - 20 - _BOX
    for box, top in side.boxes:
        yield from _box(rows[box.name], box, every, top=top, edge_x=edge_x, is_left=is_left)
        for i, end in enumerate(box.ends):
            wire = next(w for w in every if (w.device, w.label) == (box.name, end.label))
            if end.y_header is None or wire.pin is None:
                continue
            pin_x, pin_y = _place(wire.pin, header_x)
            y, x = top + FIRST + i * LINE, track_x[end.net]
            begin = f"M{label_x} {pin_y}" if end.y_header == pin_y else f"M{pin_x} {pin_y}"
            yield (
                f'<path d="{begin} V{end.y_header} H{x} V{y} H{edge_x}" fill="none" '
                f'stroke="{wire.colour}" stroke-width="2" data-net="{_safe(wire.net)}" '
                f'data-pin="{wire.pin}" data-to="{_safe(wire.device)}.{_safe(wire.label)}"/>'
            )
            if sum(w.net == wire.net for w in every) > 1:
                yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{wire.colour}"/>'


def _box(
    row: Device, box: Box, every: list[Wire], *, top: int, edge_x: int, is_left: bool
) -> Iterator[str]:
    """Draw a device, what its wires are, and what it drives."""
    x = edge_x - _BOX if is_left else edge_x
    where = f"0x{row.address:02x} on {row.bus}" if row.address is not None else row.port or row.bus
    supply = CHIPS[row.chip].supply
    if row.port in SECOND_UART:
        supply += f"; {SECOND_UART_NEEDS}"
    yield (
        f'<rect x="{x}" y="{top}" width="{_BOX}" height="{box.height}" rx="6" '
        'fill="#f6f8fa" stroke="#57606a"/>'
    )
    yield (
        f'<text x="{x + 12}" y="{top + 17}"><tspan font-weight="bold">{_safe(row.name)}</tspan> '
        f"{_safe(row.chip)}, {_safe(where)}</text>"
    )
    yield f'<text x="{x + 12}" y="{top + 33}" fill="#57606a">{_safe(supply)}; GND</text>'
    # Wires come in on the header's side; what is driven is on the other.
    wires_x, wires_anchor = (edge_x - 12, "end") if is_left else (edge_x + 12, "start")
    driven_x, driven_anchor = (x + 12, "start") if is_left else (x + _BOX - 12, "end")
    for i, end in enumerate(box.ends):
        wire = next(w for w in every if (w.device, w.label) == (box.name, end.label))
        if wire.pin is None:
            other = {"RX": "TX", "TX": "RX"}.get(wire.label, wire.label)
            note = f"{wire.label}: to {other} of {row.port or row.bus}"
        else:
            note = f"{wire.label}: pin {wire.pin}, {_NAMES[wire.pin]}"
        yield (
            f'<text x="{wires_x}" y="{top + FIRST + i * LINE + 4}" text-anchor="{wires_anchor}">'
            f"{_safe(note)}</text>"
        )
    for i, (channel, output) in enumerate(row.outputs.items()):
        yield (
            f'<text x="{driven_x}" y="{top + FIRST + i * LINE + 4}" text-anchor="{driven_anchor}" '
            f'font-weight="bold">{_safe(channel)} → {_safe(output)}</text>'
        )


def _safe(text: str) -> str:
    return escape(text, quote=True)
