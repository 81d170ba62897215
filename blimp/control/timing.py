"""How punctual the loop is: counters and bounded histograms."""

from bisect import bisect_left
from itertools import accumulate
from math import log

from blimp.types import LoopStatus


class Histogram:
    """Durations in logarithmic bins from 1 µs to 10 s: bounded memory, 5 % resolution."""

    FLOOR_S = 1e-6
    CEILING_S = 10.0
    RATIO = 1.05

    def __init__(self) -> None:
        self._scale = 1.0 / log(self.RATIO)
        self._bins = [0] * (int(log(self.CEILING_S / self.FLOOR_S) * self._scale) + 2)
        self._sum_s = 0.0
        self.count = 0

    def add(self, seconds: float) -> None:
        index = 0
        if seconds > self.FLOOR_S:
            index = min(int(log(seconds / self.FLOOR_S) * self._scale) + 1, len(self._bins) - 1)
        self._bins[index] += 1
        self._sum_s += max(0.0, seconds)
        self.count += 1

    @property
    def mean_s(self) -> float:
        return self._sum_s / self.count if self.count else 0.0

    def percentiles_s(self, *percents: float) -> list[float]:
        """Return the upper edge of the bin that holds each percentile; 0 while empty."""
        if not self.count:
            return [0.0 for _ in percents]
        sums = list(accumulate(self._bins))
        ranks = [max(1.0, percent / 100.0 * self.count) for percent in percents]
        return [self.FLOOR_S * float(self.RATIO ** bisect_left(sums, rank)) for rank in ranks]


class Timing:
    """What the loop and its runner tell of themselves in every snapshot."""

    def __init__(self, *, rate_hz: float) -> None:
        self.rate_hz = rate_hz
        self.cycles = 0
        self.overruns = 0
        self.refused: tuple[str, ...] = ()  # see `LoopStatus`
        self._wakeup = Histogram()
        self._step = Histogram()

    def is_due(self, hz: float) -> bool:
        """Whether this cycle is one of those that do what happens `hz` times a second."""
        return self.cycles % max(1, round(self.rate_hz / hz)) == 0

    def add(self, *, wakeup_error_s: float, step_s: float, overrun: bool) -> None:
        """Count one cycle that the real-time runner has paced."""
        self._wakeup.add(wakeup_error_s)
        self._step.add(step_s)
        if overrun:
            self.overruns += 1

    def status(self) -> LoopStatus:
        wakeup = self._wakeup.percentiles_s(50.0, 99.0, 99.9)
        step = self._step
        return LoopStatus(
            rate_hz=self.rate_hz,
            cycles=self.cycles,
            overruns=self.overruns,
            wakeup_error_ms={
                name: round(1e3 * late_s, 4)
                for name, late_s in zip(("p50", "p99", "p999"), wakeup, strict=True)
            },
            step_ms={
                "mean": round(1e3 * step.mean_s, 4),
                "p99": round(1e3 * step.percentiles_s(99.0)[0], 4),
            },
            refused=self.refused,
        )
