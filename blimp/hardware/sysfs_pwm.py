"""Hardware PWM through the kernel's /sys/class/pwm: pulses that do not jitter.

Source: Documentation/ABI/testing/sysfs-class-pwm. On a Pi `dtoverlay=pwm-2chan` in config.txt
puts two channels on pins; the kernel keeps the pulses going when this process dies.
"""

import errno
import os
import re
from collections.abc import Callable

from blimp.errors import BusError

_NAME = re.compile(r"pwm-(\d{1,2})")
_ROOT = "/sys/class/pwm"


class SysfsPulses:
    """One channel. Opening it stops the pulses that a killed process may have left."""

    def __init__(
        self, *, bus: str, channel: int, frequency_hz: float, closed: Callable[[], None]
    ) -> None:
        match = _NAME.fullmatch(bus)
        if match is None:
            raise BusError(f"{bus!r} is no PWM chip: it must look like pwm-0")
        self._name = f"{bus} channel {channel}"
        self._closed = closed
        self._chip = f"{_ROOT}/pwmchip{match[1]}"
        self._channel = channel
        self._period_ns = round(1e9 / frequency_hz)
        self._duty = -1
        try:
            self._export()
            here = f"{self._chip}/pwm{channel}"
            # The duty first: a period below it is refused.
            self._duty = os.open(f"{here}/duty_cycle", os.O_WRONLY | os.O_CLOEXEC)
            os.write(self._duty, b"0")
            _put(f"{here}/period", self._period_ns)
            _put(f"{here}/enable", 1)
        except OSError as error:
            self._let_go()
            raise BusError(f"{self._name}: {error}") from error

    def pulse(self, width_s: float) -> None:
        """Send pulses this wide from now on; 0 sends none. Raises ValueError above the period."""
        width_ns = round(width_s * 1e9)
        if not 0 <= width_ns <= self._period_ns:
            raise ValueError(
                f"{self._name}: a pulse of {width_s!r} s is outside 0 to {self._period_ns / 1e9} s"
            )
        if self._duty < 0:
            raise BusError(f"{self._name} is closed")
        try:
            os.write(self._duty, b"%d" % width_ns)
        except OSError as error:
            raise BusError(f"{self._name}: {error}") from error

    def close(self) -> None:
        if self._duty < 0:
            return
        self._closed()
        try:
            os.write(self._duty, b"0")
            _put(f"{self._chip}/pwm{self._channel}/enable", 0)
            _put(f"{self._chip}/unexport", self._channel)
        except OSError as error:
            raise BusError(f"{self._name}: {error}") from error
        finally:
            self._let_go()

    def _export(self) -> None:
        try:
            _put(f"{self._chip}/export", self._channel)
        except OSError as error:
            if error.errno != errno.EBUSY:  # a killed process has exported it
                raise

    def _let_go(self) -> None:
        if self._duty >= 0:
            os.close(self._duty)
        self._duty = -1


def _put(path: str, value: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, b"%d" % value)
    finally:
        os.close(file)
