"""What simulated H-bridges share: pins in, throttles out, and faults on the way."""

from typing import ClassVar

from blimp.sim.chips.chip import Chip, Fitting


class Bridge(Chip):
    """Channels: the motors' names, as throttle in [-1, 1]. Undriven pins are pulled down.

    What is stuck is the bridge's input: asleep it drives nothing, whatever its faults.
    KILL: the pin that stops both bridges while it is low. CHANNEL_PINS: of bridges a and b.
    """

    KINDS = frozenset({"no_answer", "frozen", "stuck", "drift", "scale", "noise"})
    KILL: str
    CHANNEL_PINS: ClassVar[dict[str, tuple[str, ...]]]

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._pins = fitting.pins
        pins = fitting.device.pins
        self._kill_pin = pins.get(self.KILL)
        self._motors = [
            (name, tuple(pins[pin] for pin in self.CHANNEL_PINS[output]))
            for output, name in fitting.device.outputs.items()
        ]
        self._throttles = {name: 0.0 for name, _ in self._motors}
        self._awake = self._kill_pin is None
        for pin in set(pins.values()):
            self._pins.on_host_change(pin, lambda _held_s: self._update())

    def _update(self) -> None:
        duty = self._pins.duty
        awake = self._kill_pin is None or duty(self._kill_pin) >= 0.5
        for name, pins in self._motors:
            self._throttles[name] = self._bridge(*[duty(pin) for pin in pins]) if awake else 0.0
        self._awake = awake

    def _bridge(self, *duties: float) -> float:
        """Return the throttle for the shares of time that the channel's pins are high."""
        raise NotImplementedError

    def throttles(self) -> dict[str, float]:
        return self.driven(self._throttles) if self._awake else self._throttles
