"""What all sensors on a serial port share: opening it, and giving it back."""

from typing import TypeVar

from blimp.airframe import Device as Row
from blimp.errors import BusError
from blimp.hardware.bus import Buses, SerialPort
from blimp.hardware.device import Sample, Sensor

S = TypeVar("S", bound=Sample)


class SerialSensor(Sensor[S]):
    """A sensor with a port of its own."""

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._opened: SerialPort | None = None

    def close(self) -> None:
        port, self._opened = self._opened, None
        if port is not None:
            port.close()

    def _open(self) -> SerialPort:
        """Open the port afresh: after a pulled plug the old file never speaks again."""
        self.close()
        port = self._opened = self._buses.serial(self._row.port, self._row.baud)
        return port

    @property
    def _port(self) -> SerialPort:
        """The open port. Raises BusError on a closed device."""
        if self._opened is None:
            raise BusError(f"{self.name}: serial port {self._row.port} is closed")
        return self._opened
