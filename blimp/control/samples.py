"""Which samples are new, of a believable time, and not too many."""

from math import isfinite
from typing import Protocol

from blimp.airframe import Airframe, Device
from blimp.chips import role_of

_AHEAD_S = 0.1  # a sample of a later time has no time
_OLD_S = 1.0  # an older sample is of no use to any filter
_FASTEST = 2.2  # times its own rate: what comes faster would count too much


class Timed(Protocol):
    @property
    def t_s(self) -> float: ...


def role(device: Device) -> str:
    """Return which sample of `SensorReadings` this device makes; "" if none."""
    return role_of(device.chip)


class Samples:
    """Says of each role's sample whether it is new and may be used, by its time alone."""

    def __init__(self, *, airframe: Airframe) -> None:
        rates = {role(device): device.rate_hz for device in airframe.device}
        self._spacing_s = {name: 1.0 / (_FASTEST * rate_hz) for name, rate_hz in rates.items()}
        for name in ("tag", "camera", "gps"):  # each is asked for twice
            self._spacing_s[f"{name}-height"] = self._spacing_s.get(name, 0.0)
        self._from_s: dict[str, float] = {}  # what is earlier is old, or comes too fast

    def begin_again(self) -> None:
        """The clock went back: no time of before says anything."""
        self._from_s.clear()

    def is_new(self, name: str, sample: Timed | None, now_s: float) -> bool:
        """Whether this sample is later than the last one of its role, by enough."""
        if sample is None:
            return False
        t_s = sample.t_s
        if t_s < self._from_s.get(name, t_s):
            return False
        if not (isfinite(t_s) and now_s - _OLD_S <= t_s <= now_s + _AHEAD_S):
            return False
        self._from_s[name] = t_s + self._spacing_s.get(name, 0.0)
        return True
