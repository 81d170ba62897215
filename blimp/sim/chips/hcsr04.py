"""HC-SR04 ultrasonic ranger, looking along body down. Source: its data sheet.

A trigger pulse of 10 µs or more starts a cycle: eight bursts, then the echo pin is high for
the time of flight there and back, or for 38 ms when nothing comes back.
"""

from math import sqrt

from blimp.hardware.registers.rangers import HCSR04
from blimp.sim.chips.chip import SENSOR_KINDS, Chip, Fitting
from blimp.sim.chips.looking_down import LookingDown

_BURST_S = 450e-6  # from the end of the trigger to the rising echo
_LEAST_COSINE = 0.87  # half the beam is 15 degrees; a floor sends the rest away
_NOISE_M = 0.004


class HcSr04(Chip):
    """Channels: distance in m. Row: pins {trigger, echo}."""

    KINDS = SENSOR_KINDS
    CHANNELS = ("distance",)

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._pins = fitting.pins
        self._trigger = fitting.device.pins["trigger"]
        self._echo = fitting.device.pins["echo"]
        self._looking = LookingDown(fitting, least_cosine=_LEAST_COSINE)
        self._busy_until_s = 0.0
        self._distance_m = 0.0
        self._pins.drive(self._echo, False)
        self._pins.on_host_change(self._trigger, self._changed)

    def _changed(self, held_s: float) -> None:
        """Start a cycle at the end of a trigger pulse that was long enough."""
        if self._pins.duty(self._trigger) > 0.0 or held_s < HCSR04.TRIGGER_S:
            return
        now_s = self.timeline.now_s
        if self.faults.no_answer or now_s < self._busy_until_s:
            return
        rise_s = now_s + _BURST_S
        fall_s = rise_s + self._flight_s()
        self._pins.plan_pulse(self._echo, rise_s, fall_s)
        self._busy_until_s = fall_s

    def _flight_s(self) -> float:
        if self.faults.garbage:
            return self.faults.random.uniform(1e-4, HCSR04.NO_ECHO_S)
        # Dry air: Cramer's linear law in its usual form, c = 331.3 sqrt(1 + T / 273.15).
        speed_mps = 331.3 * sqrt(1.0 + self.truth.temperature_c / 273.15)
        if not self.faults.frozen:
            slant = self._looking.slant_m()
            noise_m = self.random.gauss(0.0, _NOISE_M)
            self._distance_m = 1e3 if slant is None else max(slant + noise_m, 0.0)
        distance_m = self._distance_m
        if self.faults.altered:
            distance_m = self.faults.measure("distance", distance_m, self.timeline.now_s)
        if not 0.0 <= distance_m <= HCSR04.MAX_M:
            return HCSR04.NO_ECHO_S
        return max(2.0 * max(distance_m, HCSR04.MIN_M) / speed_mps, 1e-4)
