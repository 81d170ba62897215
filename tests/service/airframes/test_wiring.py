"""The drawing of a ship's wiring: what it shows is what the table says."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from blimp import airframe
from blimp.airframe import Airframe, names
from blimp.errors import BoardError
from blimp.service.airframes.wiring import HEADER, POWER, draw
from tests.forked import ran

PICTURE = Path(__file__).parents[3] / "docs" / "pictures" / "wiring-twin.svg"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(ship: Airframe) -> dict[str, int]:
    """Return the pin of the header that each wire of a drawing begins at, by its end."""
    root = ElementTree.fromstring(draw(ship))
    return {
        path.get("data-to", ""): int(path.get("data-pin", "")) for path in root.iter(f"{SVG}path")
    }


def text(ship: Airframe) -> str:
    return " ".join(ElementTree.fromstring(draw(ship)).itertext())


def test_the_picture_in_the_documents_is_what_the_command_draws() -> None:
    ended = ran([sys.executable, "-m", "blimp", "wiring", "twin"], check=True)
    assert ended.stdout == PICTURE.read_text("utf-8"), "blimp wiring twin --out docs/pictures/..."


@pytest.mark.parametrize("name", names())
def test_every_pin_of_the_table_has_its_wire(name: str) -> None:
    ship = airframe.load(name)
    wires, said = drawn(ship), text(ship)
    for row in ship.device:
        for label, bcm in row.pins.items():
            assert wires[f"{row.name}.{label}"] == HEADER[bcm]
        if row.bus == "i2c-1":
            assert (wires[f"{row.name}.SDA"], wires[f"{row.name}.SCL"]) == (3, 5)
            assert f"{row.chip}, 0x{row.address:02x} on i2c-1" in said
        for channel, output in row.outputs.items():
            assert f"{channel} → {output}" in said


def test_serial_lines_are_crossed_and_an_unknown_port_has_no_pin() -> None:
    twin = airframe.load("twin")
    wires = drawn(twin)
    assert (wires["tag.RX"], wires["tag.TX"]) == (8, 10)  # TXD is pin 8 of the header
    gps = next(row for row in twin.device if row.name == "gps")
    usb = msgspec.structs.replace(gps, port="/dev/ttyUSB0")
    ship = msgspec.structs.replace(twin, device=(*(r for r in twin.device if r != gps), usb))
    assert "gps.RX" not in drawn(ship)
    assert "RX: to TX of /dev/ttyUSB0" in text(ship)


def test_a_gps_has_the_second_uart_unless_its_pins_are_taken() -> None:
    """GPIO 4 sends and GPIO 5 receives, as docs/pi.md has one enable it."""
    twin = airframe.load("twin")
    wires = drawn(twin)
    assert (wires["gps.RX"], wires["gps.TX"]) == (HEADER[4], HEADER[5]) == (7, 29)
    assert "dtoverlay=uart3" in text(twin)
    sonar = next(row for row in twin.device if row.name == "sonar")
    taking = msgspec.structs.replace(sonar, pins={"trigger": 4, "echo": 24})
    rows = tuple(taking if row == sonar else row for row in twin.device)
    ship = msgspec.structs.replace(twin, device=rows)
    assert "gps.RX" not in drawn(ship)
    assert drawn(ship)["sonar.trigger"] == 7


def test_a_terminal_gets_a_file_and_not_the_drawing(tmp_path: Path) -> None:
    reader, terminal = pty.openpty()
    with os.fdopen(reader, "rb", buffering=0), os.fdopen(terminal, "wb", buffering=0) as screen:
        ended = subprocess.run(
            [sys.executable, "-m", "blimp", "wiring", "twin"],
            stdout=screen, stderr=subprocess.PIPE, text=True, check=True, cwd=tmp_path, timeout=60,
        )  # fmt: skip
    assert "twin-wiring.svg written: open it in a browser" in ended.stderr
    assert (tmp_path / "twin-wiring.svg").read_text("utf-8") == draw(airframe.load("twin"))


def test_an_spi_chip_has_four_wires() -> None:
    flow = airframe.Device(name="flow", chip="pmw3901", bus="spi-0.1", rate_hz=50.0)
    twin = airframe.load("twin")
    ship = msgspec.structs.replace(twin, device=(*twin.device, flow))
    wires = drawn(ship)
    assert [wires[f"flow.{line}"] for line in ("MISO", "MOSI", "SCLK", "CS")] == [21, 19, 23, 26]


def test_the_header_is_that_of_every_pi_with_40_pins() -> None:
    """Some pins as https://pinout.xyz has them; and none twice."""
    assert [HEADER[bcm] for bcm in (2, 3, 14, 15, 18, 27, 21)] == [3, 5, 8, 10, 12, 13, 40]
    assert sorted([*HEADER.values(), *POWER]) == list(range(1, 41))


def test_a_table_that_cannot_be_wired_is_not_drawn() -> None:
    twin = airframe.load("twin")
    rows = [msgspec.structs.replace(r, address=0x40) if r.name == "power" else r
            for r in twin.device]  # fmt: skip
    with pytest.raises(BoardError, match="both claim i2c-1 address 0x40"):
        draw(msgspec.structs.replace(twin, device=tuple(rows)))


def test_names_cannot_break_the_drawing() -> None:
    twin = airframe.load("twin")
    odd = msgspec.structs.replace(twin, description="<script>&\"'")
    assert "<script>&\"'" in text(odd)
