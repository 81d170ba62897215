"""What all sensors on I2C share: opening, who they are, and settings that are read back."""

from typing import ClassVar, TypeVar

from blimp.airframe import Device as Row
from blimp.errors import DeviceError
from blimp.hardware.bus import Buses, I2CBus
from blimp.hardware.device import Sample, Sensor
from blimp.hardware.who import answers_as

S = TypeVar("S", bound=Sample)


class I2CSensor(Sensor[S]):
    """A sensor at one address. WIDE: its registers have 16-bit numbers."""

    WIDE: ClassVar[bool] = False

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._where = f"{self.name}: {row.chip} at {row.bus} address 0x{self._address:02X}"
        self._opened: I2CBus | None = None
        self._answers_as: str | None = None  # asked once: that is several reads in one poll

    def close(self) -> None:
        self._opened = None

    def _open(self) -> I2CBus:
        bus = self._opened = self._buses.i2c(self._row.bus)
        return bus

    @property
    def _bus(self) -> I2CBus:
        """The open bus. Raises DeviceError on a closed device."""
        if self._opened is None:
            raise DeviceError(f"{self.name}: closed")
        return self._opened

    def _load(self, register: int, length: int) -> bytes:
        bus = self._bus
        return (bus.read16 if self.WIDE else bus.read)(self._address, register, length)

    def _store(self, register: int, data: bytes) -> None:
        bus = self._bus
        (bus.write16 if self.WIDE else bus.write)(self._address, register, data)

    def _identify(
        self, label: str, register: int, *expected: int, length: int = 1, shift: int = 0
    ) -> int:
        """Return the identity in `register`, big-endian. Raises DeviceError on another chip.

        shift: by how many bits, which hold a revision.
        """
        found = int.from_bytes(self._load(register, length), "big") >> shift
        if found not in expected:
            digits = 2 * length
            known = " or ".join(f"0x{value:0{digits}X}" for value in expected)
            raise DeviceError(
                f"{self._where}: {label} (0x{register:02X}) reads 0x{found:0{digits}X}, "
                f"expected {known}{self._instead()}"
            )
        return found

    def _instead(self) -> str:
        """Return what an error says of the chip that is there in place of the expected one."""
        if self._answers_as is None:
            self._answers_as = answers_as(self._bus, self._address)
        return f"; it answers as {self._answers_as}" if self._answers_as else ""

    def _set(self, register: int, data: bytes) -> None:
        """Write and read back. Raises DeviceError if the chip did not keep it."""
        self._store(register, data)
        self._check_kept(register, data)

    def _check_kept(self, register: int, data: bytes) -> None:
        kept = self._load(register, len(data))
        if kept != data:
            raise DeviceError(
                f"{self._where}: registers from 0x{register:02X} read {kept.hex(' ')} "
                f"after {data.hex(' ')} was written"
            )

    def _word(self, register: int, *, signed: bool = False) -> int:
        """Return a 16-bit big-endian register."""
        return int.from_bytes(self._load(register, 2), "big", signed=signed)
