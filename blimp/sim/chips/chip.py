"""What all simulated chips have in common, and what each gets when it is made."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from blimp.airframe import Airframe, Device
from blimp.sim.faults import Faults
from blimp.sim.gpio import GpioBank
from blimp.sim.timeline import Timeline
from blimp.sim.truth import Truth, stream


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """A device's place on the ship: its row in the board table and the wires it gets.

    send: what a serial chip calls with the bytes that have left its transmitter.
    start_utc_s: the date when the world began, for chips that know it.
    """

    device: Device
    airframe: Airframe
    truth: Truth
    timeline: Timeline
    pins: GpioBank
    seed: int
    send: Callable[[bytes], None]
    start_utc_s: float

    def random(self, purpose: str) -> Random:
        return stream(self.seed, self.device.name, purpose)


class Chip:
    """Base of all chips: its row, the truth, its own random numbers and its faults.

    KINDS: the faults it can suffer, see `blimp.sim.faults`. CHANNELS: what they act on.
    """

    KINDS: ClassVar[frozenset[str]] = frozenset()
    CHANNELS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, fitting: Fitting) -> None:
        self.device = fitting.device
        self.truth = fitting.truth
        self.timeline = fitting.timeline
        self.random = fitting.random("noise")
        self._frozen: dict[str, float] | None = None
        self.faults = Faults(
            device=fitting.device.name,
            kinds=self.KINDS,
            channels=self.CHANNELS or tuple(fitting.device.outputs.values()),
            random=fitting.random("fault"),
        )

    def driven(self, throttles: dict[str, float]) -> dict[str, float]:
        """Return what becomes of these throttles with the faults of this chip."""
        faults = self.faults
        if faults.no_answer:
            return dict.fromkeys(throttles, 0.0)
        if faults.frozen:
            if self._frozen is None:
                self._frozen = dict(throttles)
            return self._frozen
        self._frozen = None
        if not faults.altered:
            return throttles
        now_s = self.timeline.now_s
        return {
            name: clamp(faults.measure(name, throttle, now_s), -1.0, 1.0)
            for name, throttle in throttles.items()
        }

    def throttles(self) -> dict[str, float]:
        """Return the throttle in [-1, 1] of each motor this chip drives, by output."""
        return {}

    def servo_angles(self) -> dict[str, float | None]:
        """Return the commanded angle of each servo in radians, by output; None without pulses."""
        return {}


_QUEUE = 32  # messages that nobody has read, as a socket keeps them

SENSOR_KINDS = frozenset(
    {"no_answer", "frozen", "stuck", "drift", "offset", "scale", "noise", "garbage"}
)


class I2CChip(Chip):
    """A chip with a bus address. Its `write` and `read` are the wire, see `I2CTarget`."""

    KINDS = SENSOR_KINDS | {"bus_stuck"}
    DEFAULT_ADDRESS: ClassVar[int]

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        own = fitting.device.address
        self.address = self.DEFAULT_ADDRESS if own is None else own

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def read(self, length: int) -> bytes:
        raise NotImplementedError

    def answers(self, address: int) -> bool:  # noqa: ARG002
        return False

    def general_call(self, data: bytes) -> None:
        """Most chips ignore it."""


class SpiChip(Chip):
    """A chip with a select line of its own. It acknowledges nothing: dead, its wire floats high."""

    KINDS = SENSOR_KINDS

    def exchange(self, data: bytes) -> bytes:
        """Take the bytes of one selection; return as many, sent at the same time."""
        raise NotImplementedError


class SerialChip(Chip):
    """A chip that sends and receives bytes."""

    KINDS = SENSOR_KINDS

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._send = fitting.send

    def send(self, data: bytes, *, after_s: float = 0.0) -> None:
        """Send `data`; it arrives when its last bit has left, 10 bits a byte."""
        arrival_s = self.timeline.now_s + after_s + len(data) * 10.0 / self.device.baud
        self.timeline.at(arrival_s, lambda: self._send(data))

    def receive(self, data: bytes) -> None:
        """Take bytes the computer sent."""


class MessageChip(Chip):
    """A device with a process of its own, which tells the flight process what it has measured."""

    KINDS = SENSOR_KINDS

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._queue: deque[bytes] = deque(maxlen=_QUEUE)

    def send(self, data: bytes, *, after_s: float = 0.0) -> None:
        self.timeline.at(self.timeline.now_s + after_s, lambda: self._queue.append(data))

    def receive(self) -> list[bytes]:
        """Return what has arrived; the flight process reads it so, with `close`."""
        found = list(self._queue)
        self._queue.clear()
        return found

    def close(self) -> None:
        """A socket that is closed forgets what was not read."""
        self._queue.clear()


def clamp(value: float, low: float, high: float) -> float:
    return low if value < low else high if value > high else value
