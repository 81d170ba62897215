"""Electronic speed controllers with their motors: pulses in, throttle out.

Source: BLHeli's manual, "Arming sequence" and "Signal loss": it obeys after a second of
standstill, and stops a quarter of a second after the last pulse, to be armed again. "Throttle range
calibration": switched on at a pulse above the middle it learns its range, three seconds an end.
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
_MIDDLE_S = 0.0015
_LEARN_S = 3.0


class Esc:
    """One controller. options: how it was programmed, the row's own keys."""

    def __init__(self, *, options: Mapping[str, Any], timeline: Timeline) -> None:
        self._low_s = float(options.get("min_pulse_s", 0.001))
        self._high_s = float(options.get("max_pulse_s", 0.002))
        reversible = bool(options.get("reversible", False))
        self._still_s = 0.5 * (self._low_s + self._high_s) if reversible else self._low_s
        self._least = -1.0 if reversible else 0.0
        self._timeline = timeline
        self._pulse_s: float | None = None  # the last one
        self._still_since_s: float | None = None
        self._lost_s: float | None = timeline.now_s  # when the pulses ended; None while they go on
        self._armed = False
        self._line_s: float | None = None  # the pulse on its line, powered or not
        self._powered = True
        self._high_since_s: float | None = None  # while it learns its upper end
        self._low_since_s: float | None = None  # while it learns its lower end
        self._found_s: float | None = None  # the upper end it has learnt

    def program(self, low_s: float, high_s: float) -> None:
        """Give it another range, as a maker's tool does. Not for a reversible one."""
        self._low_s = self._still_s = low_s
        self._high_s = high_s

    def power(self, on: bool) -> None:
        """Switch its supply."""
        self.throttle()
        self._powered = on
        self._armed, self._pulse_s, self._still_since_s = False, None, None
        self._high_since_s = self._low_since_s = self._found_s = None
        line_s, now_s = self._line_s, self._timeline.now_s
        self._lost_s = now_s
        if on and line_s is not None and line_s > _MIDDLE_S and self._least == 0.0:
            self._high_since_s = now_s
        elif on:
            self.signal(line_s)

    def signal(self, pulse_s: float | None) -> None:
        """From now on it gets pulses of this width, or none."""
        now_s = self._timeline.now_s
        self._learn(now_s)
        self._line_s = pulse_s
        if not self._powered:
            return
        if self._high_since_s is not None or self._found_s is not None:
            self._turn_over(pulse_s, now_s)
            return
        if pulse_s is None or not _TAKEN_S[0] <= pulse_s <= _TAKEN_S[1]:
            if self._lost_s is None:
                self._lost_s = now_s
            return
        self.throttle()  # what has become of it in the meantime
        self._lost_s = None
        self._pulse_s = pulse_s
        if abs(pulse_s - self._still_s) > _STILL_S:
            self._still_since_s = None
        elif self._still_since_s is None:
            self._still_since_s = now_s

    def _turn_over(self, pulse_s: float | None, now_s: float) -> None:
        """While it learns: what the next pulse is to it."""
        if pulse_s is None:
            self._high_since_s = self._low_since_s = self._found_s = None
        elif pulse_s > _MIDDLE_S:
            self._high_since_s, self._low_since_s = now_s, None
        elif self._found_s is None:
            self._high_since_s = None  # too early: it keeps its range
            self.signal(pulse_s)
        else:
            self._high_since_s, self._low_since_s = None, now_s

    def _learn(self, now_s: float) -> None:
        """Take what was held long enough as an end of the range."""
        line_s = self._line_s
        if line_s is None:
            return
        if self._high_since_s is not None and now_s - self._high_since_s >= _LEARN_S:
            self._found_s = line_s
        if self._low_since_s is not None and now_s - self._low_since_s >= _LEARN_S:
            assert self._found_s is not None
            self.program(line_s, self._found_s)
            self._high_since_s = self._low_since_s = self._found_s = None
            self.signal(line_s)

    def throttle(self) -> float:
        now_s = self._timeline.now_s
        self._learn(now_s)
        if not self._powered:
            return 0.0
        if self._lost_s is not None and now_s - self._lost_s >= _LOST_S:
            self._armed, self._pulse_s, self._still_since_s = False, None, None
        still_s = self._still_since_s
        if still_s is not None and self._lost_s is None and now_s - still_s >= _ARM_S:
            self._armed = True
        return self._asked() if self._armed and still_s is None else 0.0

    def _asked(self) -> float:
        assert self._pulse_s is not None
        share = (self._pulse_s - self._still_s) / (self._high_s - self._still_s)
        return clamp(share, self._least, 1.0)


class EscPwm(Chip):
    """Controllers on pins with hardware PWM. Channels: the motors' names, as throttle.

    Row: bus "pwm-N", pins {"pwm0": pin, …} by channel, outputs {"0": motor, …}. With the fault
    no_answer their supply is off.
    """

    KINDS = frozenset({"no_answer", "frozen", "stuck", "drift", "scale", "noise"})

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._pins = fitting.pins
        self.escs: dict[str, Esc] = {}
        self._powered = True
        for channel, name in fitting.device.outputs.items():
            pin = fitting.device.pins[f"pwm{channel}"]
            esc = self.escs[name] = Esc(options=fitting.device.options, timeline=fitting.timeline)
            self._pins.on_host_change(pin, partial(self._changed, esc, pin))

    def _changed(self, esc: Esc, pin: int, _held_s: float) -> None:
        esc.signal(self._pins.pulse_s(pin))

    def throttles(self) -> dict[str, float]:
        powered = not self.faults.no_answer
        if powered != self._powered:
            self._powered = powered
            for esc in self.escs.values():
                esc.power(powered)
        return self.driven({name: esc.throttle() for name, esc in self.escs.items()})
