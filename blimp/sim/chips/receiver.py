"""A receiver and the transmitter that it hears, with a person at its sticks."""

from functools import lru_cache
from typing import ClassVar

from blimp.sim.chips.chip import SENSOR_KINDS, Fitting, SerialChip

_GARBAGE_BYTES = 26
_LOW, _MIDDLE, _HIGH = 172, 992, 1811
_STICKS = 4


class Receiver(SerialChip):
    """Channels: ch1 to ch16, shares of -1 to 1. The fault "stuck" is a person who moves one.

    Untouched, the first four are in the middle, as sticks are, and the others at their low end, as
    switches are.
    """

    KINDS = SENSOR_KINDS | {"unlinked", "bit_errors"}
    CHANNELS = tuple(f"ch{i}" for i in range(1, 17))
    PERIOD_S: ClassVar[float]

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._count = 0
        self._values = [_MIDDLE] * _STICKS + [_LOW] * (len(self.CHANNELS) - _STICKS)
        self._phase_s = self.random.uniform(0.0, self.PERIOD_S)
        self._plan()

    def _plan(self) -> None:
        self.timeline.at(self._phase_s + self._count * self.PERIOD_S, self._tick)
        self._count += 1

    def _tick(self) -> None:
        self._plan()
        faults = self.faults
        if faults.no_answer:
            return
        if faults.garbage:
            self.send(faults.random.randbytes(_GARBAGE_BYTES))
            return
        if not faults.frozen and not faults.unlinked:
            self._values = [self._value(name, i) for i, name in enumerate(self.CHANNELS)]
        data = self.frame(self._values)
        if faults.bit_errors:
            data = bytes(byte ^ self._errors() for byte in data)
        if data:
            self.send(data)

    def _value(self, name: str, i: int) -> int:
        share = 0.0 if i < _STICKS else -1.0
        if self.faults.altered:
            share = self.faults.measure(name, share, self.timeline.now_s)
        half = 0.5 * (_HIGH - _LOW)
        return max(0, min(2047, round(_MIDDLE + half * share)))

    def _errors(self) -> int:
        chance = self.faults.random.random
        return sum(1 << bit for bit in range(8) if chance() < self.faults.bit_errors)

    def frame(self, values: list[int]) -> bytes:
        """Return what is sent now; b"" for nothing."""
        raise NotImplementedError


def packed(values: list[int]) -> bytes:
    """Return 16 values of 11 bits as 22 bytes, the lowest bit of the first one first."""
    return _packed(tuple(values))


@lru_cache(maxsize=8)  # a person moves a stick in few of the frames
def _packed(values: tuple[int, ...]) -> bytes:
    out = bytearray(22)
    for i, value in enumerate(values):
        for bit in range(11):
            place = 11 * i + bit
            out[place // 8] |= (value >> bit & 1) << place % 8
    return bytes(out)
