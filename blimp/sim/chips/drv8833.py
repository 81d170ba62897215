"""Texas Instruments DRV8833 dual H-bridge with two brushed motors. Source: SLVSAR1E, table 2.

The inputs and nSLEEP have pull-down resistors: undriven pins mean asleep and coasting.
"""

from blimp.sim.chips.chip import Chip, Fitting, clamp

_BRIDGES = {"a": ("ain1", "ain2"), "b": ("bin1", "bin2")}


class Drv8833(Chip):
    """Channels: the motors' names, as throttle in [-1, 1].

    Row: pins {ain1, ain2, bin1, bin2, nsleep}, outputs {"a": motor, "b": motor}.
    """

    KINDS = frozenset({"no_answer", "frozen", "stuck", "drift", "noise"})

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._pins = fitting.pins
        pins = fitting.device.pins
        self._sleep_pin = pins.get("nsleep")
        self._motors = [
            (name, pins[_BRIDGES[output][0]], pins[_BRIDGES[output][1]])
            for output, name in fitting.device.outputs.items()
        ]
        self._throttles = {name: 0.0 for name, _, _ in self._motors}
        self._frozen: dict[str, float] | None = None
        for pin in set(pins.values()):
            self._pins.on_host_change(pin, lambda _held_s: self._update())

    def _update(self) -> None:
        duty = self._pins.duty
        awake = self._sleep_pin is None or duty(self._sleep_pin) >= 0.5
        for name, in1, in2 in self._motors:
            # Mean of the bridge over a period: forward while only IN1 is high, reverse while
            # only IN2 is; both high brakes, both low coasts. True for a PWM on either input.
            self._throttles[name] = duty(in1) - duty(in2) if awake else 0.0

    def throttles(self) -> dict[str, float]:
        faults = self.faults
        if faults.no_answer:
            return dict.fromkeys(self._throttles, 0.0)
        if faults.frozen:
            if self._frozen is None:
                self._frozen = dict(self._throttles)
            return self._frozen
        self._frozen = None
        if not faults.altered:
            return self._throttles
        now_s = self.timeline.now_s
        return {
            name: clamp(faults.measure(name, throttle, now_s), -1.0, 1.0)
            for name, throttle in self._throttles.items()
        }
