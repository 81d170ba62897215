"""A serial port made of a pseudo-terminal: the device writes one end, pyserial reads the other."""

import contextlib
import fcntl
import os
import struct
import termios
import threading
import time
import tty

from blimp.errors import ConfigError

# The terminal keeps 4095 unread bytes. Beyond that a UART's driver drops what arrives, and
# so does this: nothing here ever waits for a reader.
_ROOM_BYTES = 4000
_FLIP_WAIT_S = 0.05  # at most, for the kernel to move bytes from one end to the other
# The machine's own, whatever the seam has put in their place.
_write, _ioctl, _monotonic = os.write, fcntl.ioctl, time.monotonic
_COUNT = struct.Struct("i")
_ZERO = bytes(_COUNT.size)


class PtyLine:
    """One port's pseudo-terminal. Close is idempotent. Raises ConfigError if there is none.

    baud: the device's; a reader at another speed gets broken bytes, as on a real line.
    lockstep: `settle` before anybody reads. The kernel makes bytes readable a little later, on its
    own time, and a run would not be repeatable to the bit.
    """

    def __init__(self, *, port: str, baud: int, lockstep: bool) -> None:
        self.port = port
        self.dropped_bytes = 0  # arrived while nobody had the port open, or too many unread
        self._speed = getattr(termios, f"B{baud}", None)
        self._lockstep = lockstep
        try:
            self._master, self._slave = os.openpty()
        except OSError as error:
            raise ConfigError(
                f"simulated serial port {port}: this computer gives no pseudo-terminal ({error}); "
                "mount devpts at /dev/pts, or raise kernel.pty.max"
            ) from error
        os.set_blocking(self._master, False)
        tty.setraw(self._slave)
        self.path = os.ttyname(self._slave)
        self.device_number = os.fstat(self._slave).st_rdev
        self._readers = 0
        self._expected = 0  # unread bytes, once the kernel has moved the last ones
        self._lock = threading.Lock()  # a remote world delivers from its own thread

    def opened(self) -> None:
        """Somebody has opened the port: what came before is gone."""
        if self._readers == 0:
            self._expected = 0
            termios.tcflush(self._slave, termios.TCIFLUSH)
            # A pseudo-terminal has no parity, and refuses a change in which parity is all that
            # changes: so let the second stop bit that SBUS has be a change, too.
            settings = termios.tcgetattr(self._slave)
            settings[2] &= ~termios.CSTOPB
            termios.tcsetattr(self._slave, termios.TCSANOW, settings)
        self._readers += 1

    def flush(self) -> None:
        """Drop what nobody has read yet."""
        self._expected = 0
        termios.tcflush(self._slave, termios.TCIFLUSH)

    def released(self) -> None:
        self._readers = max(0, self._readers - 1)

    def deliver(self, data: bytes) -> None:
        """Let bytes from the device arrive."""
        with self._lock:
            self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        if self._master < 0 or self._readers == 0:
            self.dropped_bytes += len(data)
            return
        if self._speed is not None and termios.tcgetattr(self._slave)[4] != self._speed:
            data = bytes(byte * 167 + 13 & 0xFF for byte in data)
        self._settle()
        waiting = self._waiting()
        fits = data[: max(0, _ROOM_BYTES - waiting)]
        try:
            written = _write(self._master, fits) if fits else 0
        except BlockingIOError:
            written = 0
        self.dropped_bytes += len(data) - written
        if self._lockstep and written:
            self._expected = waiting + written

    def settle(self) -> None:
        """In lockstep, wait until the bytes that have arrived can be read."""
        if self._expected:
            with self._lock:
                self._settle()

    def _settle(self) -> None:
        if not self._expected:
            return
        # The machine's time, not the world's: this waits for the kernel, which knows no other.
        until_s = _monotonic() + _FLIP_WAIT_S
        while self._waiting() < self._expected and _monotonic() < until_s:
            os.sched_yield()
        self._expected = 0

    def _waiting(self) -> int:
        count: int = _COUNT.unpack(_ioctl(self._slave, termios.FIONREAD, _ZERO))[0]
        return count

    def close(self) -> None:
        with self._lock:
            for fd in (self._master, self._slave):
                if fd >= 0:
                    with contextlib.suppress(OSError):
                        os.close(fd)
            self._master = self._slave = -1
