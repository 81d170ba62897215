"""A ship's wiring as a drawing (SVG), made from its airframe's table of devices.

Left the header of a Raspberry Pi, right the devices; a wire for every pin that the table names,
and for the two pins of every bus.
"""

from collections.abc import Iterator
from html import escape

import msgspec

from blimp.airframe import Airframe, Device
from blimp.hardware.board import CHIPS, I2C_PINS, SPI_PINS, UART_PINS, check

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
# What the table does not say, from each datasheet. A chip that is missing here is drawn, too.
SUPPLY = {
    "bmp280": "3V3",
    "bmp388": "3V3",
    "bmp390": "3V3",
    "drv8833": "VM: motor battery, 2.7 to 10.8 V",
    "bno055": "3V3; PS1 to 3V3 selects the UART",
    "dwm1001": "3V3",
    "esc-pwm": "motor battery; its own 5 V output stays open",
    "gps-nmea": "3V3",
    "gps-ubx": "3V3",
    "icm20948": "3V3",
    "ms5611": "3V3",
    "hcsr04": "5V; echo through a divider to 3.3 V",
    "ina219": "3V3; shunt in the battery's + wire",
    "ina226": "3V3; shunt in the battery's + wire",
    "ina260": "3V3; its shunt in the battery's + wire",
    "mpu6050": "3V3",
    "pca9685": "VCC 3V3; V+ servo supply, 5 to 6 V",
    "pmw3901": "3V3",
    "tb6612": "VCC 3V3; VM motor battery, 2.5 to 13.5 V",
    "tfluna": "5V; its pin 5 to GND selects I2C",
    "vl53l1x": "3V3",
}
COLOURS = {"SDA": "#1f6feb", "SCL": "#b07d00", "TX": "#1a7f37", "RX": "#1a7f37"}
GPIO_COLOUR = "#8250df"

_ROW, _TOP, _LEFT = 24, 70, 150  # of the header's pins
_TRACKS, _TRACK = 300, 9  # where the vertical wires begin, and how far apart they are
_BOX, _LINE, _GAP = 330, 18, 18  # width, height of a line, gap between the devices' boxes


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """pin: of the header; None if the airframe's table does not tell it."""

    device: str
    label: str
    pin: int | None
    colour: str
    net: str  # wires of one net share a track


def wires(airframe: Airframe) -> list[Wire]:
    """Return every wire of signals, in the order of the table."""
    return [wire for row in airframe.device for wire in _wires(row)]


def _wires(row: Device) -> Iterator[Wire]:
    kind = CHIPS[row.chip].WIRING.bus
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
        yield from _pair(row, ("RX", "TX"), UART_PINS.get(row.port), row.port)
    for name, bcm in row.pins.items():
        yield Wire(
            device=row.name, label=name, pin=HEADER[bcm], colour=GPIO_COLOUR, net=f"GPIO {bcm}"
        )


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
    nets = list(dict.fromkeys(wire.net for wire in every if wire.pin is not None))
    boxes_x = _TRACKS + _TRACK * len(nets) + 30
    parts: list[str] = []
    y = _TOP - _ROW // 2
    for row in airframe.device:
        mine = [wire for wire in every if wire.device == row.name]
        parts += _box(row, mine, nets, x=boxes_x, y=y)
        y += _height(row, mine) + _GAP
    height = max(y, _TOP + 20 * _ROW) + 20
    width = boxes_x + _BOX + 20
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
            f"<!-- blimp wiring {airframe.name} -->",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            f'<text x="20" y="28" font-size="18" font-weight="bold">{_safe(airframe.name)}: '
            "wiring</text>",
            f'<text x="20" y="46" fill="#57606a">{_safe(airframe.description)}; every GND is one '
            "wire</text>",
            *_header(every),
            *parts,
            "</svg>",
            "",
        ]
    )


def _header(every: list[Wire]) -> Iterator[str]:
    """Draw the 40 pins, seen from above with pin 1 at the top left."""
    used = {wire.pin: wire.colour for wire in every}
    yield (
        f'<rect x="{_LEFT - 18}" y="{_TOP - 16}" width="64" height="{20 * _ROW + 6}" rx="6" '
        'fill="#2d333b"/>'
    )
    for pin in range(1, 41):
        x, y = _place(pin)
        fill = used.get(pin) or {"3V3": "#e16f24", "5V": "#cf222e", "GND": "#6e7781"}.get(
            _NAMES[pin], "#d0d7de"
        )
        anchor, text_x = ("end", _LEFT - 26) if pin % 2 else ("start", _LEFT + 54)
        yield f'<circle cx="{x}" cy="{y}" r="9" fill="{fill}"/>'
        white = "#ffffff" if pin in used or pin in POWER else "#24292f"
        yield (
            f'<text x="{x}" y="{y + 4}" text-anchor="middle" font-size="10" fill="{white}">{pin}'
            "</text>"
        )
        yield f'<text x="{text_x}" y="{y + 4}" text-anchor="{anchor}">{_NAMES[pin]}</text>'


def _place(pin: int) -> tuple[int, int]:
    """Return the centre of a pin of the header."""
    return _LEFT + (0 if pin % 2 else 28), _TOP + (pin - 1) // 2 * _ROW


def _height(row: Device, mine: list[Wire]) -> int:
    return 44 + _LINE * max(len(mine), len(row.outputs))


def _box(row: Device, mine: list[Wire], nets: list[str], *, x: int, y: int) -> Iterator[str]:
    """Draw a device, its wires and what it drives."""
    where = f"0x{row.address:02x} on {row.bus}" if row.address is not None else row.port or row.bus
    supply = SUPPLY.get(row.chip, "supply: see its datasheet")
    yield (
        f'<rect x="{x}" y="{y}" width="{_BOX}" height="{_height(row, mine)}" rx="6" '
        'fill="#f6f8fa" stroke="#57606a"/>'
    )
    yield (
        f'<text x="{x + 12}" y="{y + 17}"><tspan font-weight="bold">{_safe(row.name)}</tspan> '
        f"{_safe(row.chip)}, {_safe(where)}</text>"
    )
    yield f'<text x="{x + 12}" y="{y + 33}" fill="#57606a">{_safe(supply)}; GND</text>'
    for i, wire in enumerate(mine):
        port_y = y + 50 + i * _LINE
        if wire.pin is None:
            other = {"RX": "TX", "TX": "RX"}.get(wire.label, wire.label)
            note = f"{wire.label}: to {other} of {row.port or row.bus}"
        else:
            note = f"{wire.label}: pin {wire.pin}, {_NAMES[wire.pin]}"
            yield _path(wire, track=nets.index(wire.net), x=x, y=port_y)
        yield f'<text x="{x + 12}" y="{port_y + 4}">{_safe(note)}</text>'
    for i, (channel, output) in enumerate(row.outputs.items()):
        yield (
            f'<text x="{x + _BOX - 12}" y="{y + 54 + i * _LINE}" text-anchor="end" '
            f'font-weight="bold">{_safe(channel)} → {_safe(output)}</text>'
        )


def _path(wire: Wire, *, track: int, x: int, y: int) -> str:
    """Draw a wire from the header, between its rows, along the net's track, to the device."""
    assert wire.pin is not None
    pin_x, pin_y = _place(wire.pin)
    track_x = _TRACKS + track * _TRACK
    gap_y = pin_y + _ROW // 2 - (2 if wire.pin % 2 else -2)
    return (
        f'<path d="M{pin_x} {pin_y} V{gap_y} H{track_x} V{y} H{x}" fill="none" '
        f'stroke="{wire.colour}" stroke-width="2" '
        f'data-pin="{wire.pin}" data-to="{_safe(wire.device)}.{_safe(wire.label)}"/>'
    )


def _safe(text: str) -> str:
    return escape(text, quote=True)
