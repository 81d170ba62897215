"""A chip in another's place is named, by what its own registers say."""

import pytest

from blimp.hardware.registers.identities import IDENTITIES
from blimp.hardware.who import answers_as
from tests.hardware.doubles import RegisterBus, RegisterChip, WideChip, WordChip


@pytest.mark.parametrize(
    ("address", "chip", "name"),
    [
        (0x76, RegisterChip({0xD0: b"\x61"}), "BME680 or BME688"),
        (0x77, RegisterChip({0xD0: b"\x55"}), "BMP180 or BMP085"),
        (0x76, RegisterChip({0x00: b"\x60"}), "BMP390"),
        (0x77, RegisterChip({0x0D: b"\x10"}), "DPS310 or SPL06"),
        (0x68, RegisterChip({0x75: b"\x47"}), "ICM-42688-P"),
        (0x69, RegisterChip({0x00: b"\xea"}), "ICM-20948"),
        (0x29, RegisterChip({0xC0: b"\xee\xaa"}), "VL53L0X"),
        (0x29, WideChip({0x010F: b"\xea\xaa"}), "VL53L3CX"),
        (0x29, WideChip({0x010F: b"\xeb\xaa"}), "VL53L4CD or VL53L4CX"),
        (0x29, WideChip({0x010F: b"\xec\xaa"}), "VL53L4ED"),
        (0x29, WideChip({0x0000: b"\xb4\x01"}), "VL6180X"),
        (0x40, WordChip({0xFE: 0x190F}), "SQ52201"),
        (0x40, WordChip({0xFE: 0x5449, 0xFF: 0x2260}), "INA226"),
        (0x44, WordChip({0x00: 0x399F}), "INA219 or INA220"),
        (0x40, RegisterChip({0x05: b"\xe0"}), "PCA9685"),
        (0x76, RegisterChip(), ""),
        (0x10, RegisterChip(), ""),
    ],
)
def test_it_is_named_and_nothing_is_written(address: int, chip: RegisterChip, name: str) -> None:
    bus = RegisterBus()
    bus.chips[address] = chip
    assert answers_as(bus, address) == name
    assert chip.writes == []


def test_an_empty_address_has_no_name() -> None:
    for address in IDENTITIES:
        assert answers_as(RegisterBus(), address) == ""
