"""A row of the table of chips is complete: driver, twin, registers, its line in the document."""

import ast
import inspect
import sys
from pathlib import Path

import pytest

from blimp.chips import CHIPS, load
from blimp.hardware import registers
from blimp.hardware.board import driver
from blimp.hardware.device import Output, Sensor
from blimp.sim.chips.chip import Chip, I2CChip
from blimp.sim.electronics import twin
from blimp.types import SensorReadings
from tests.contracts import rows

REGISTERS = "blimp.hardware.registers."


def imported(kind: type) -> set[str]:
    """Return the register maps that a class's file imports."""
    return {
        alias.name
        for node in ast.walk(ast.parse(inspect.getsource(sys.modules[kind.__module__])))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(REGISTERS)
        for alias in node.names
    }


@pytest.mark.parametrize("name", CHIPS)
def test_a_row_names_a_driver_and_a_twin_of_their_rooms(name: str) -> None:
    chip = CHIPS[name]
    assert (chip.driver[0], chip.twin[0]) == (".", "."), "neither side loads from another room"
    assert issubclass(driver(name), Sensor if chip.role else Output)
    assert not chip.role or chip.role in SensorReadings.__struct_fields__
    assert issubclass(twin(name), Chip)
    assert bool(chip.addresses) == issubclass(twin(name), I2CChip)
    assert (driver(name).WIRING.bus == "serial") == bool(chip.baud)


def test_the_rows_name_every_register_map() -> None:
    written = {
        node.name
        for path in Path(registers.__path__[0]).glob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    assert {name for chip in CHIPS.values() for name in chip.registers} == written
    unnamed: dict[str, set[str]] = {}  # by file, which several rows may share
    for name, chip in CHIPS.items():
        for kind in (driver(name), twin(name)):
            unnamed.setdefault(kind.__module__, imported(kind)).difference_update(chip.registers)
    assert {file: maps for file, maps in unnamed.items() if maps} == {}


def test_the_page_has_the_table() -> None:
    assert rows.on_page() == rows.table(), "python -m tests.contracts.rows"


def test_a_driver_of_another_program_is_loaded_by_its_whole_path() -> None:
    assert load("blimp.hardware.ina219:Ina219", "blimp.hardware") is driver("ina219")
