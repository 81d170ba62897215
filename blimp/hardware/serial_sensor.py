"""What all sensors on a serial port share: the port, and what a stream of bytes is cut into."""

from abc import abstractmethod
from typing import Generic, Protocol, TypeVar

from blimp.airframe import Device as Row
from blimp.errors import BusError
from blimp.hardware.bus import Buses, SerialPort
from blimp.hardware.device import Sample, Sensor, Steps

S = TypeVar("S", bound=Sample)
F = TypeVar("F")

UNREADABLE_BYTES = 256  # more than a line or frame: in so many one would have ended


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


class Reader(Protocol[F]):
    """Cuts bytes into lines or frames. `garbage` counts what it dropped."""

    garbage: int

    def feed(self, data: bytes) -> list[F]: ...

    def clear(self) -> None: ...


class StreamSensor(SerialSensor[S], Generic[S, F]):
    """A sensor that sends by itself; a reader cuts its bytes into lines or frames."""

    def __init__(self, *, row: Row, buses: Buses, reader: Reader[F]) -> None:
        super().__init__(row=row, buses=buses)
        self._reader = reader
        self._refused = 0
        self._unreadable = 0  # bytes since the last line or frame
        self._is_silent = True

    @property
    def garbage(self) -> int:
        """How many lines or frames could not be read."""
        return self._reader.garbage + self._refused

    def _start(self) -> Steps:
        self._open()
        self._reader.clear()
        self._unreadable = 0
        self._is_silent = True
        yield 0.0

    def _read(self, now_s: float) -> S | None:
        newest = None
        data = self._port.read_available()
        self._is_silent = self._is_silent and not data
        frames = self._reader.feed(data)
        self._unreadable = 0 if frames else self._unreadable + len(data)
        for frame in frames:
            try:
                newest = self._take(frame, now_s) or newest
            except ValueError as error:
                self._refused += 1
                self.error = f"{self.name}: refused: {error}"
        return newest

    def _stale_error(self) -> str:
        if self._is_silent:
            return f"{self.STALE_ERROR}, and not one byte (is its TX on the Pi's RX?)"
        if self._unreadable < UNREADABLE_BYTES:
            return self.STALE_ERROR
        return (
            f"{self.STALE_ERROR}, and {self._unreadable} bytes that cannot be read: it may not "
            f"send at {self._row.baud} baud, or not what {self._row.chip} reads"
        )

    @abstractmethod
    def _take(self, frame: F, now_s: float) -> S | None:
        """Return the sample that a line or frame completes; calls `_alive` at proof of life.

        Raises ValueError with the reason if it cannot be read or cannot be true.
        """
