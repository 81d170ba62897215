"""How punctual the loop is: counters and bounded histograms."""

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

    def percentile_s(self, percent: float) -> float:
        """Return the upper edge of the bin that holds this percentile; 0 while empty."""
        if not self.count:
            return 0.0
        rest = percent / 100.0 * self.count
        for index, number in enumerate(self._bins):
            rest -= number
            if rest <= 0.0 and number:
                return self.FLOOR_S * float(self.RATIO**index)
        return self.CEILING_S


class Timing:
    """What the loop and its runner tell of themselves in every snapshot."""

    def __init__(self, *, rate_hz: float) -> None:
        self.rate_hz = rate_hz
        self.cycles = 0
        self.overruns = 0
        self.refused: tuple[str, ...] = ()  # see `LoopStatus`
        self._wakeup = Histogram()
        self._step = Histogram()

    def add(self, *, wakeup_error_s: float, step_s: float, overrun: bool) -> None:
        """Count one cycle that the real-time runner has paced."""
        self._wakeup.add(wakeup_error_s)
        self._step.add(step_s)
        if overrun:
            self.overruns += 1

    def status(self) -> LoopStatus:
        wakeup, step = self._wakeup, self._step
        return LoopStatus(
            rate_hz=self.rate_hz,
            cycles=self.cycles,
            overruns=self.overruns,
            wakeup_error_ms={
                "p50": round(1e3 * wakeup.percentile_s(50.0), 4),
                "p99": round(1e3 * wakeup.percentile_s(99.0), 4),
                "p999": round(1e3 * wakeup.percentile_s(99.9), 4),
            },
            step_ms={
                "mean": round(1e3 * step.mean_s, 4),
                "p99": round(1e3 * step.percentile_s(99.0), 4),
            },
            refused=self.refused,
        )
