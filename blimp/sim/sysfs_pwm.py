"""/sys/class/pwm of the simulated Pi: its files take what the kernel's take, and refuse the same.

Source: Documentation/ABI/testing/sysfs-class-pwm and drivers/pwm/sysfs.c.
"""

import errno
import os
import re
from dataclasses import dataclass

from blimp.sim.electrical import Electrical, Pull

ROOT = "/sys/class/pwm/"
_FILE = re.compile(r"/sys/class/pwm/pwmchip(\d+)/(?:(export|unexport)|pwm(\d+)/(\w+))")


@dataclass
class _Channel:
    period: int = 0  # ns
    duty_cycle: int = 0
    enable: int = 0


class PwmFiles:
    """The files by path. Raises OSError as the kernel does."""

    def __init__(self, electrical: Electrical) -> None:
        self._electrical = electrical
        self._exported: dict[tuple[int, int], _Channel] = {}

    def check(self, path: str) -> None:
        """Raise FileNotFoundError for a file that is not there."""
        match = _FILE.fullmatch(path)
        if match is not None:
            chip, _, channel, name = match.groups()
            if channel is None:
                if any(int(chip) == known for known, _ in self._electrical.pwm_pins()):
                    return
            elif (int(chip), int(channel)) in self._exported and hasattr(_Channel, name):
                return
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def write(self, path: str, data: bytes) -> int:
        self.check(path)
        match = _FILE.fullmatch(path)
        assert match is not None
        chip, order, channel, name = match.groups()
        try:
            value = int(data)
        except ValueError:
            raise _error(errno.EINVAL) from None
        if order is not None:
            self._order(order, (int(chip), value))
        else:
            self._set((int(chip), int(channel)), name, value)
        return len(data)

    def _order(self, order: str, where: tuple[int, int]) -> None:
        if where not in self._electrical.pwm_pins():
            raise _error(errno.ENODEV)
        if order == "export":
            if where in self._exported:
                raise _error(errno.EBUSY)
            self._exported[where] = _Channel()
        elif self._exported.pop(where, None) is None:
            raise _error(errno.ENODEV)

    def _set(self, where: tuple[int, int], name: str, value: int) -> None:
        channel = self._exported[where]
        after = _Channel(**vars(channel) | {name: value})
        if value < 0 or after.duty_cycle > after.period > 0 or (after.enable and not after.period):
            raise _error(errno.EINVAL)
        self._exported[where] = after
        pin = self._electrical.pwm_pins()[where]
        if after.enable:
            duty = after.duty_cycle / after.period
            self._electrical.pin_mode(pin, output=True, pull=Pull.OFF)
            self._electrical.pin_pwm(pin, duty, frequency_hz=1e9 / after.period)
        elif channel.enable:
            self._electrical.pin_pwm(pin, None, frequency_hz=0.0)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
