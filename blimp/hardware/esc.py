"""Electronic speed controllers: throttles as servo pulses, here on the Pi's hardware PWM.

Source: the convention of hobby ESCs (as BLHeli's manual, "Arming sequence", states it): 1 to
2 ms at 50 Hz or more; after power-on, and after the signal was lost, it must see the pulse of
standstill for a while before it obeys. On a PCA9685 see there.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import msgspec

from blimp.airframe import Airframe, Thruster
from blimp.airframe import Device as Row
from blimp.errors import BoardError, DeviceError
from blimp.hardware.bus import Buses, PulseOutput
from blimp.hardware.device import Output, Steps, Wiring, attempt_all, read_options

LIMITS_S = (0.0005, 0.0025)  # of what an ESC takes for a pulse
MIN_SPAN_S = 0.0002  # of its range: with less, jitter of the pulses is thrust
CHANNELS = ("0", "1", "2", "3")


class EscOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the ESC was programmed to.

    min_pulse_s, max_pulse_s: at the ends of its range. reversible: standstill is in the middle
    and the lower half runs backwards. arm_s: how long it wants standstill before it obeys.
    """

    min_pulse_s: float = 0.001
    max_pulse_s: float = 0.002
    reversible: bool = False
    arm_s: float = 2.0

    @property
    def stop_s(self) -> float:
        """The pulse of standstill."""
        if self.reversible:
            return 0.5 * (self.min_pulse_s + self.max_pulse_s)
        return self.min_pulse_s

    def pulse_s(self, throttle: float) -> float:
        """Return the pulse for a throttle in [-1, 1]; one that cannot reverse stands still."""
        span_s = self.max_pulse_s - self.stop_s
        return self.stop_s + span_s * (throttle if self.reversible else max(throttle, 0.0))


class Options(EscOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """frequency_hz: of the pulses."""

    frequency_hz: float = 50.0


def check_esc(
    options: EscOptions, *, frequency_hz: float, thrusters: Sequence[Thruster], who: str
) -> None:
    """Refuse what no ESC can do. Raises BoardError naming device, key and limit."""
    low, high = LIMITS_S
    if not low <= options.min_pulse_s < options.max_pulse_s <= high:
        raise BoardError(
            f"{who}: {low} <= min_pulse_s {options.min_pulse_s} < max_pulse_s "
            f"{options.max_pulse_s} <= {high} does not hold"
        )
    if options.max_pulse_s - options.min_pulse_s < MIN_SPAN_S:
        raise BoardError(
            f"{who}: max_pulse_s {options.max_pulse_s} is less than {MIN_SPAN_S} above "
            f"min_pulse_s {options.min_pulse_s}"
        )
    if not 0.0 <= options.arm_s <= 10.0:
        raise BoardError(f"{who}: arm_s {options.arm_s} is outside 0 to 10")
    if not 1.0 <= frequency_hz <= 0.9 / options.max_pulse_s:
        raise BoardError(
            f"{who}: frequency_hz {frequency_hz:g} is outside 1 to {0.9 / options.max_pulse_s:g}, "
            f"which pulses of {options.max_pulse_s} s leave room for"
        )
    for thruster in thrusters:
        if thruster.reverse_thrust_n > 0.0 and not options.reversible:
            raise BoardError(
                f"{who}: thruster {thruster.name!r} has reverse_thrust_n "
                f"{thruster.reverse_thrust_n:g}, but its ESC is not reversible"
            )


def check_throttle(throttle: float | None, *, who: str) -> float:
    """Return the throttle, 0 for None. Raises ValueError on what is none."""
    if throttle is None:
        return 0.0
    if not -1.0 <= throttle <= 1.0:  # refuses NaN as well
        raise ValueError(f"{who}: throttle {throttle!r} is outside -1 to 1")
    return throttle


class EscPwm(Output):
    """Throttles in [-1, 1]. Safe is the pulse of standstill; closed there are no pulses.

    It starts with standstill for `arm_s`, and is not healthy before: an ESC would not obey.
    """

    UNIT: ClassVar[str] = "throttle"
    WIRING: ClassVar = Wiring(
        bus="pwm",
        channel_pins={channel: (f"pwm{channel}",) for channel in CHANNELS},
        channels=CHANNELS,
        drives=("thruster",),
    )

    def __init__(self, *, row: Row, buses: Buses, airframe: Airframe) -> None:
        super().__init__(row=row, buses=buses, airframe=airframe)
        self._options = read_options(row.options, Options, who=row.name)
        check_esc(
            self._options,
            frequency_hz=self._options.frequency_hz,
            thrusters=[t for t in airframe.thruster if t.name in self.outputs],
            who=row.name,
        )
        self.start_s += self._options.arm_s
        self._open: dict[str, PulseOutput] = {}
        self._sent: list[float | None] = [None] * len(self.outputs)  # None: not known

    def safe(self) -> None:
        self.enabled = False
        self._stand_still()

    def close(self) -> None:
        held, self._open = self._open, {}
        attempt_all(self.name, [channel.close for channel in held.values()])

    def _start(self) -> Steps:
        self._stand_still()
        yield self._options.arm_s

    def _work(self, now_s: float) -> None:
        if len(self._open) < len(self._channels):
            raise DeviceError(f"{self.name}: closed")
        self._alive(now_s)  # an ESC has no way to answer; the kernel did

    def _enable(self) -> None:
        """Nothing to open: the pulses of standstill go on, and are followed by others."""

    def _put(self, values: Sequence[float | None]) -> None:
        throttles = [check_throttle(value, who=self.name) for value in values]
        for i, throttle in enumerate(throttles):
            self._send(i, self._options.pulse_s(throttle))

    def _stand_still(self) -> None:
        self._sent = [None] * len(self._sent)
        still_s = self._options.stop_s
        attempt_all(
            f"{self.name} may not be safe",
            [partial(self._send, i, still_s) for i in range(len(self._channels))],
        )

    def _send(self, i: int, pulse_s: float) -> None:
        if pulse_s == self._sent[i]:
            return
        channel = self._channels[i]
        held = self._open.get(channel)
        if held is None:
            held = self._open[channel] = self._buses.pulses(
                self._row.bus, int(channel), self._options.frequency_hz
            )
        held.pulse(pulse_s)
        self._sent[i] = pulse_s
