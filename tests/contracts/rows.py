"""The rows of docs/chips.md, and the twin with one of them in place of its own.

`python -m tests.contracts.rows` writes the page's table of chips from `blimp/chips.py`.
"""

import re
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from blimp import airframe
from blimp.airframe import Airframe, Device
from blimp.chips import CHIPS
from blimp.hardware.board import wiring_of

_BUSES = {
    "i2c": "I2C", "spi": "SPI", "gpio": "pins", "pwm": "PWM", "serial": "serial port, {} baud",
    "camera": "camera port",
}  # fmt: skip
_PAGE = Path(__file__).parents[2] / "docs" / "chips.md"


@cache
def documented() -> dict[str, Device]:
    """Return every row of the page, by its chip; a second row of the PCA9685 is that with ESCs.

    A sensor on I2C that has none there is as most boards have it.
    """
    blocks = re.findall(r"```toml\n(.*?)```", _PAGE.read_text("utf-8"), re.DOTALL)
    rows = [
        msgspec.convert(row, Device) for text in blocks for row in tomllib.loads(text)["device"]
    ]
    found: dict[str, Device] = {}
    for row in rows:
        found[f"{row.chip} with ESCs" if row.chip in found else row.chip] = row
    for name in CHIPS.keys() - found.keys():
        chip = CHIPS[name]
        found[name] = Device(
            name=chip.role, chip=name, bus="i2c-1", address=chip.addresses[0], rate_hz=chip.rate_hz
        )
    return found


def table() -> str:
    """Return the page's table of chips."""
    lines = ["| `chip` | it is | it is connected by | its supply |", "|---|---|---|---|"]
    for name, chip in CHIPS.items():
        place = _BUSES[wiring_of(name).bus].format(chip.baud)
        if chip.addresses:
            place += f", {_places(chip.addresses)}"
        lines += [f"| `{name}` | {chip.role or 'an output'} | {place} | {chip.supply} |"]
    return "\n".join(lines) + "\n"


def on_page() -> str:
    """Return the table as the page has it."""
    found = re.search(r"\| `chip` .*\n(\|.*\n)+", _PAGE.read_text("utf-8"))
    assert found is not None, "docs/chips.md has no table of chips"
    return found[0]


def _places(addresses: tuple[int, ...]) -> str:
    if len(addresses) > 2:
        return f"0x{min(addresses):02X} to 0x{max(addresses):02X}"
    return " or ".join(f"0x{address:02X}" for address in addresses)


def sensors() -> list[str]:
    """Return the sensors; of those that share driver and twin, as cameras do, the first."""
    first: dict[tuple[str, str], str] = {}
    for name, row in documented().items():
        chip = CHIPS[row.chip]
        if chip.role:
            first.setdefault((chip.driver, chip.twin), name)
    return list(first.values())


def outputs() -> list[str]:
    return [name for name, row in documented().items() if not CHIPS[row.chip].role]


def ship(*names: str) -> Airframe:
    """The twin, with these rows in place of those that measure or drive the same."""
    twin = airframe.load("twin")
    kept = list(twin.device)
    for name in names:
        row = documented()[name]
        kept = [other for other in kept if not _same(row, other)]
        kept.append(row)
    return msgspec.structs.replace(twin, device=tuple(kept))


def _same(row: Device, other: Device) -> bool:
    if role := CHIPS[row.chip].role:
        return CHIPS[other.chip].role == role
    return bool(set(row.outputs.values()) & set(other.outputs.values()))


if __name__ == "__main__":
    _PAGE.write_text(_PAGE.read_text("utf-8").replace(on_page(), table()), "utf-8")
