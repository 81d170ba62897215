"""The rows of docs/chips.md, and the twin with one of them in place of its own."""

import re
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from blimp import airframe
from blimp.airframe import Airframe, Device
from blimp.hardware.board import CHIPS
from blimp.hardware.device import Sensor

_PAGE = Path(__file__).parents[2] / "docs" / "chips.md"


@cache
def documented() -> dict[str, Device]:
    """Return every row of the page, by its chip; a second row of the PCA9685 is that with ESCs."""
    blocks = re.findall(r"```toml\n(.*?)```", _PAGE.read_text("utf-8"), re.DOTALL)
    rows = [
        msgspec.convert(row, Device) for text in blocks for row in tomllib.loads(text)["device"]
    ]
    found: dict[str, Device] = {}
    for row in rows:
        found[f"{row.chip} with ESCs" if row.chip in found else row.chip] = row
    return found


def sensors() -> list[str]:
    return [name for name, row in documented().items() if issubclass(CHIPS[row.chip], Sensor)]


def outputs() -> list[str]:
    return [name for name in documented() if name not in sensors()]


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
    chip, other_chip = CHIPS[row.chip], CHIPS[other.chip]
    if issubclass(chip, Sensor):
        return issubclass(other_chip, Sensor) and chip.ROLE == other_chip.ROLE
    return bool(set(row.outputs.values()) & set(other.outputs.values()))
