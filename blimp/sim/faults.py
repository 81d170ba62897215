"""What can be wrong with a device.

    no_answer       the device is dead: no acknowledge, no bytes, no echo, no drive
    frozen          it answers, and its readings no longer change
    stuck           one channel reads (or drives) `value`, whatever is true
    drift           one channel moves away from the truth by `rate` a second
    offset          one channel reads `amount` too much
    scale           one channel reads `factor` times what is true
    noise           one channel gets Gaussian noise of standard deviation `sigma` on top
    garbage         it answers with random bytes
    wrong_identity  another chip answers at its address
    unlinked        a receiver hears no transmitter
    bit_errors      each bit on its line is wrong with a probability of `rate`
    bus_stuck       it holds the clock line down: nothing on its bus works
    covered         a lens cap: no light but what comes around it
    black           a camera sends frames that are all zero
    other_size      a camera sends frames of half the size that was asked for
    busy            another program has opened the camera
    dropped         of a camera's frames a share of `rate` is lost
    clear           all of these are over

Channels and their units are those of the chip's class in `blimp/sim/chips`.
"""

from collections.abc import Mapping
from random import Random

from blimp.errors import ConfigError

KINDS: Mapping[str, str] = {
    "no_answer": "",
    "frozen": "",
    "stuck": "value",
    "drift": "rate",
    "offset": "amount",
    "scale": "factor",
    "noise": "sigma",
    "garbage": "",
    "wrong_identity": "",
    "bus_stuck": "",
    "unlinked": "",
    "bit_errors": "rate",
    "covered": "",
    "black": "",
    "other_size": "",
    "busy": "",
    "dropped": "rate",
    "clear": "",
}  # kind -> the option it needs, "" for none

LARGEST = 1e9  # of a value, rate or sigma: beyond any chip's range, within any arithmetic
_ON_A_CHANNEL = frozenset({"stuck", "drift", "offset", "scale", "noise"})


class Faults:
    """The faults of one device. Healthy when made; the chip asks the plain attributes.

    device: its name in the airframe, for errors. kinds: what this chip can suffer.
    channels: what it measures or drives, the default first. random: for noise and garbage.
    """

    def __init__(
        self, *, device: str, kinds: frozenset[str], channels: tuple[str, ...], random: Random
    ) -> None:
        self.random = random
        self._device = device
        self._kinds = kinds | {"clear"}
        self._channels = channels
        self._stuck: dict[str, float] = {}
        self._drift: dict[str, tuple[float, float]] = {}
        self._offset: dict[str, float] = {}
        self._scale: dict[str, float] = {}
        self._sigma: dict[str, float] = {}
        self._clear()

    def _clear(self) -> None:
        self.no_answer = False
        self.frozen = False
        self.garbage = False
        self.wrong_identity = False
        self.bus_stuck = False
        self.unlinked = False
        self.bit_errors = 0.0
        self.covered = False
        self.black = False
        self.other_size = False
        self.busy = False
        self.dropped = 0.0
        self.altered = False  # some channel does not say or do what is true
        self._stuck.clear()
        self._drift.clear()
        self._offset.clear()
        self._scale.clear()
        self._sigma.clear()

    def set(self, kind: str, options: Mapping[str, object], *, now_s: float) -> None:
        """Let `kind` begin now. Raises ConfigError naming what is known and what is wrong."""
        if kind not in self._kinds:
            raise ConfigError(
                f"device {self._device!r} has no fault {kind!r}: "
                f"known for it are {', '.join(sorted(self._kinds))}"
            )
        needed = KINDS[kind]
        known = ({needed} if needed else set()) | ({"channel"} if kind in _ON_A_CHANNEL else set())
        for name in options:
            if name not in known:
                raise ConfigError(
                    f"fault {kind!r} of {self._device!r} has no option {name!r}: "
                    f"known are {', '.join(sorted(known)) or 'none'}"
                )
        if kind in _ON_A_CHANNEL:
            channel = self._channel(options)
            self._alter(kind, channel, self._number(kind, needed, options), now_s)
        elif needed:
            setattr(self, kind, self._number(kind, needed, options))
        elif kind == "clear":
            self._clear()
        else:
            setattr(self, kind, True)

    def alters(self, channel: str) -> bool:
        altered = (self._stuck, self._drift, self._offset, self._scale, self._sigma)
        return any(channel in table for table in altered)

    def measure(self, channel: str, value: float, now_s: float) -> float:
        """Return what the device makes of a true `value`."""
        if channel in self._stuck:
            return self._stuck[channel]
        value = value * self._scale.get(channel, 1.0) + self._offset.get(channel, 0.0)
        if channel in self._drift:
            rate, since_s = self._drift[channel]
            value += rate * (now_s - since_s)
        if channel in self._sigma:
            value += self.random.gauss(0.0, self._sigma[channel])
        return value

    def _alter(self, kind: str, channel: str, amount: float, now_s: float) -> None:
        self.altered = True
        if kind == "stuck":
            self._stuck[channel] = amount
        elif kind == "drift":
            self._drift[channel] = (amount, now_s)
        elif kind == "offset":
            self._offset[channel] = amount
        elif kind == "scale":
            self._scale[channel] = amount
        else:
            self._sigma[channel] = amount

    def _channel(self, options: Mapping[str, object]) -> str:
        channel = options.get("channel", self._channels[0])
        if channel not in self._channels:
            raise ConfigError(
                f"device {self._device!r} has no channel {channel!r}: "
                f"known are {', '.join(self._channels)}"
            )
        return str(channel)

    def _number(self, kind: str, needed: str, options: Mapping[str, object]) -> float:
        amount = options.get(needed)
        if (
            not isinstance(amount, int | float)
            or isinstance(amount, bool)
            or not abs(amount) <= LARGEST  # false for NaN, too
            or (needed == "sigma" and amount < 0.0)
        ):
            low = 0.0 if needed == "sigma" else -LARGEST
            limit = f"a finite number from {low:g} to {LARGEST:g}"
            raise ConfigError(
                f"fault {kind!r} of {self._device!r} needs {needed}=<{limit}>, not {amount!r}"
            )
        return float(amount)
