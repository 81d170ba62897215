"""Electronic speed controllers with their motors: pulses in, throttle out.

Source: BLHeli's manual, "Arming sequence" and "Signal loss": it obeys after a second of
standstill, and stops a quarter of a second after the last pulse, to be armed again.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from blimp.sim.chips.chip import Chip, Fitting, clamp
from blimp.sim.timeline import Timeline

_ARM_S = 1.0
_LOST_S = 0.25
_STILL_S = 20e-6  # within so much of standstill the motor stands
_TAKEN_S = (0.0005, 0.0025)  # for a pulse at all


class Esc:
    """One controller. options: how it was programmed, the row's own keys."""

    def __init__(self, *, options: Mapping[str, Any], timeline: Timeline) -> None:
        self._low_s = float(options.get("min_pulse_s", 0.001))
        self._high_s = float(options.get("max_pulse_s", 0.002))
        reversible = bool(options.get("reversible", False))
        self._still_s = 0.5 * (self._low_s + self._high_s) if reversible else self._low_s
        self._least = -1.0 if reversible else 0.0
        self._timeline = timeline
        self._pulse_s: float | None = None
        self._since_s = timeline.now_s  # since when the pulse is what it is, or none
        self._armed = False
        self._throttle = 0.0

    def signal(self, pulse_s: float | None) -> None:
        """From now on it gets pulses of this width, or none."""
        if pulse_s is not None and not _TAKEN_S[0] <= pulse_s <= _TAKEN_S[1]:
            pulse_s = None
        if pulse_s == self._pulse_s:
            return
        self.throttle()  # what the old signal has led to
        was_still = self._is_still()
        self._pulse_s = pulse_s
        if not (was_still and self._is_still()):
            self._since_s = self._timeline.now_s

    def _is_still(self) -> bool:
        return self._pulse_s is not None and abs(self._pulse_s - self._still_s) <= _STILL_S

    def throttle(self) -> float:
        for_s = self._timeline.now_s - self._since_s
        if self._pulse_s is None:
            if for_s >= _LOST_S:
                self._armed, self._throttle = False, 0.0
            return self._throttle
        if not self._armed:
            self._armed = self._is_still() and for_s >= _ARM_S
        self._throttle = self._asked() if self._armed else 0.0
        return self._throttle

    def _asked(self) -> float:
        assert self._pulse_s is not None
        if self._is_still():
            return 0.0
        share = (self._pulse_s - self._still_s) / (self._high_s - self._still_s)
        return clamp(share, self._least, 1.0)


class EscPwm(Chip):
    """Controllers on pins with hardware PWM. Channels: the motors' names, as throttle.

    Row: bus "pwm-N", pins {"pwm0": pin, …} by channel, outputs {"0": motor, …}.
    """

    KINDS = frozenset({"no_answer", "frozen", "stuck", "drift", "noise"})

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._pins = fitting.pins
        self._escs: dict[str, Esc] = {}
        for channel, name in fitting.device.outputs.items():
            pin = fitting.device.pins[f"pwm{channel}"]
            esc = self._escs[name] = Esc(options=fitting.device.options, timeline=fitting.timeline)
            self._pins.on_host_change(pin, partial(self._changed, esc, pin))

    def _changed(self, esc: Esc, pin: int, _held_s: float) -> None:
        esc.signal(self._pins.pulse_s(pin))

    def throttles(self) -> dict[str, float]:
        return self.driven({name: esc.throttle() for name, esc in self._escs.items()})
