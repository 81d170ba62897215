"""Battery voltage and current without the dips and peaks that a motor's start makes."""

from math import exp, isfinite

from blimp.types import PowerSample

_SMOOTH_S = 3.0  # averages what motors pull the voltage down by
_STALE_S = 5.0  # several readings of a monitor at 1 Hz
_BACK_S = 0.5  # the clock may step back by less without notice


class BatteryFilter:
    """First-order smoothing of what the monitor says; None when it has gone quiet.

    measured: whether this ship has a monitor. flight_time_s: of a full battery, 0 if not said.
    """

    def __init__(self, *, measured: bool = True, flight_time_s: float = 0.0) -> None:
        self._flight_time_s = flight_time_s
        self._measured = measured
        self._known_s: float | None = None
        self.volts: float | None = None  # when it was last asked
        self.amps: float | None = None  # the same; None too where only the voltage is measured
        self.current_a: float | None = None  # the same, as it was last measured
        self._volts: float | None = None
        self._amps: float | None = None
        self._sample_s = 0.0
        self._flown_s = self._counted_s = 0.0

    def update(self, sample: PowerSample | None, now_s: float) -> float | None:
        """Return the smoothed voltage at `now_s`."""
        if now_s < self._sample_s - _BACK_S:
            self._volts = None  # the clock went back: what was measured is of no known age
        if sample is not None and isfinite(sample.voltage_v) and isfinite(sample.t_s):
            amps = sample.current_a
            if self._volts is None:
                self._volts, self._amps = sample.voltage_v, amps
                self._sample_s = sample.t_s
            elif sample.t_s > self._sample_s:
                keep = exp(-(sample.t_s - self._sample_s) / _SMOOTH_S)
                self._volts = keep * self._volts + (1.0 - keep) * sample.voltage_v
                if self._amps is not None and amps is not None:
                    amps = keep * self._amps + (1.0 - keep) * amps
                self._amps = amps
                self._sample_s = sample.t_s
        is_known = self._volts is not None and now_s - self._sample_s <= _STALE_S
        self.volts = self._volts if is_known else None
        self.amps = self._amps if is_known else None
        self.current_a = sample.current_a if is_known and sample is not None else None
        return self.volts

    def flown(self, now_s: float, *, armed: bool) -> float:
        """Return the share of its flight time that the ship has been armed for; once a cycle.

        Since the process started: a Pi that shares the battery starts again with the next one.
        """
        if armed:
            self._flown_s += max(0.0, now_s - self._counted_s)
        self._counted_s = now_s
        return self._flown_s / self._flight_time_s if self._flight_time_s else 0.0

    def age_s(self, now_s: float, *, armed: bool) -> float:
        """Return how long an armed ship has not known its voltage; 0 where nothing measures it."""
        if self.volts is not None or self._known_s is None or not armed:
            self._known_s = now_s
        return now_s - self._known_s if self._measured else 0.0
