"""What all devices share: starting in steps, judging health, recovering.

A device is polled and never waits. Its start-up is a generator that yields the seconds to
let pass before it goes on, so a chip that needs 100 ms after its reset costs the loop
nothing. A chip that stops answering is asked on: a glitch of bus or supply is over in a moment, and
a restart would cost more samples than the glitch. One that stays silent, stands still or comes back
asleep is started again, the same way, for as long as it takes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from blimp.airframe import Airframe
from blimp.airframe import Device as Row
from blimp.chips import CHIPS
from blimp.errors import BoardError, DeviceError, HardwareError
from blimp.hardware.bus import Buses
from blimp.types import SeenSample, SensorStatus, Snapshot

MAX_FAILURES = 5  # consecutive ones make a device unhealthy
RETRY_S = 0.5  # between attempts to start a device again

Steps = Iterator[float]


class Sample(Protocol):
    @property
    def t_s(self) -> float: ...


S = TypeVar("S", bound=Sample)
O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741 - read as "options"


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """How a chip is connected, for the board to check rows against.

    shared_addresses: what every chip of this kind answers beside its own. pins: names a row must
    have; channel_pins: and those per used channel. channels: what `outputs` may name. drives:
    "thruster", "servo" or both, none for a sensor.
    """

    bus: str  # "i2c", "spi", "pwm" (these with a number), "gpio" or "serial"
    shared_addresses: tuple[int, ...] = ()
    pins: tuple[str, ...] = ()
    optional_pins: tuple[str, ...] = ()
    channel_pins: dict[str, tuple[str, ...]] = {}
    channels: tuple[str, ...] = ()
    drives: tuple[str, ...] = ()


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a chip that has nothing to set."""


def read_options(options: Mapping[str, Any], kind: type[O], *, who: str) -> O:
    """Turn a board row's options into `kind`. Raises BoardError naming device and key."""
    try:
        return msgspec.convert(dict(options), kind)
    except (msgspec.ValidationError, ValueError) as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(kind)) or "none"
        raise BoardError(f"options of {who}: {error}; known options: {known}") from error


def attempt_all(who: str, actions: Iterable[Callable[[], object]]) -> None:
    """Do every action, whatever the others do; then raise one DeviceError of what failed."""
    errors = []
    for action in actions:
        try:
            action()
        except HardwareError as error:
            errors.append(str(error))
    if errors:
        raise DeviceError(f"{who}: {'; '.join(errors)}")


class Device(ABC):
    """A device that is polled: health, errors, and start-up in steps.

    healthy: it started, and its last proof of life is not stale.
    error: why not, or a remark on a healthy one ("out of range"); "" when there is nothing.
    failures: how many transfers or readings failed since the process started.
    start_s: how long it may take until it is healthy for the first time.
    """

    UNIT: ClassVar[str] = ""
    WIRING: ClassVar[Wiring]
    STALE_S: ClassVar[float] = 2.0  # without proof of life the device is started again
    STALE_ERROR: ClassVar[str] = "no answer"
    SILENT_S: ClassVar[float] = 3.0  # longer than an attitude is carried on without an IMU

    def __init__(self, *, row: Row, buses: Buses) -> None:
        self.name = row.name
        self._row = row
        self._buses = buses
        self._address = row.address or 0
        self.healthy = False
        self.error = "starting"
        self.failures = 0
        self._stale_s = self.STALE_S
        self.start_s = 1.0
        self._in_a_row = 0
        self._alive_s = 0.0
        self._wait_until_s = float("-inf")
        self._steps: Steps | None = self._start()

    def poll(self, now_s: float) -> None:
        """Do one small piece of work. Never raises HardwareError: it becomes health."""
        if now_s < self._wait_until_s:
            return
        try:
            if self._steps is not None:
                self._advance(self._steps, now_s)
                return
            self._work(now_s)
            if now_s - self._alive_s > self._stale_s:
                raise self._lost(f"{self._stale_error()} for {self._stale_s:g} s")
        except (HardwareError, ValueError, ArithmeticError) as error:
            # The last two: bytes that no formula holds for. A poisoned reading may cost this
            # device its health, never the loop its life.
            self._failed(str(error), now_s)

    @abstractmethod
    def close(self) -> None:
        """Give back what only this device holds. Idempotent; shared buses stay open."""

    @abstractmethod
    def _start(self) -> Steps:
        """Open and initialise, identity first; yield seconds to wait. Raises HardwareError."""

    @abstractmethod
    def _work(self, now_s: float) -> None:
        """One regular poll; calls `_alive` when the device showed that it lives."""

    def _stale_error(self) -> str:
        """What to say of a device that shows no life."""
        return self.STALE_ERROR

    def _alive(self, now_s: float, remark: str = "", *, sound: bool = True) -> None:
        """Note a proof of life. sound: whether the reading can be; if not, it starts nothing."""
        self._alive_s = now_s
        self._in_a_row = 0
        self.healthy = sound
        self.error = remark

    def _lost(self, error: str) -> DeviceError:
        """Make the error after which this device is unhealthy and starts again, at once."""
        self._in_a_row, self._alive_s = MAX_FAILURES, float("-inf")
        return DeviceError(f"{self.name}: {error}")

    def _advance(self, steps: Steps, now_s: float) -> None:
        wait_s = next(steps, None)
        if wait_s is not None:
            self._wait_until_s = now_s + wait_s
            return
        self._steps = None
        self._in_a_row = 0
        self._alive_s = now_s  # from here the stale time runs

    def _failed(self, error: str, now_s: float) -> None:
        self.error = error
        self.failures += 1
        self._in_a_row += 1
        was_starting = self._steps is not None
        if not was_starting and self._in_a_row < MAX_FAILURES:
            return
        self.healthy = False
        if was_starting or now_s - self._alive_s >= self.SILENT_S:
            self._steps = self._start()
            self._wait_until_s = now_s + RETRY_S if was_starting else now_s


class Sensor(Device, Generic[S]):
    """A device that makes samples. `sample` is the newest good one, None before the first.

    role: the field of SensorReadings that it fills.
    """

    sample: S | None = None
    seen: SeenSample | None = None  # of a camera, beside its samples

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self.role = CHIPS[row.chip].role

    def status(self, now_s: float) -> SensorStatus:
        """Return what a person may want to know of this device."""
        sample = self.sample
        return SensorStatus(
            value=None if sample is None else self._value(sample),
            unit=self.UNIT,
            age_s=None if sample is None else now_s - sample.t_s,
            healthy=self.healthy,
            error=self.error,
        )

    def tell(self, snapshot: Snapshot) -> None:
        """Take what the ground may know: a receiver sends it to its transmitter. Never waits.

        Raises HardwareError. Most sensors have nobody to tell.
        """

    def _work(self, now_s: float) -> None:
        sample = self._read(now_s)
        if sample is not None:
            self.sample = sample

    @abstractmethod
    def _read(self, now_s: float) -> S | None:
        """Return a new sample, None when there is none; calls `_alive` at proof of life."""

    @abstractmethod
    def _value(self, sample: S) -> float | tuple[float, ...]:
        """Return the sample in `UNIT`."""


class Output(Device):
    """A device that drives actuators, named in `outputs`.

    It starts disabled and safe. Values are throttles for thrusters and radians for servos, in
    the order of `outputs`, which is that of the chip's channels; None switches a servo's pulses
    off. One that cannot be commanded is started again at once: that puts it to sleep.
    """

    SILENT_S: ClassVar[float] = 0.0

    def __init__(self, *, row: Row, buses: Buses, airframe: Airframe) -> None:
        super().__init__(row=row, buses=buses)
        # In the order of channels, so that neighbours can go out in one transfer.
        self._channels = sorted(row.outputs, key=self.WIRING.channels.index)
        self.outputs = tuple(row.outputs[channel] for channel in self._channels)
        self._airframe = airframe
        self.enabled = False

    @property
    def unit(self) -> str:
        """The unit of all values, or of each in turn."""
        return self.UNIT

    def enable(self, now_s: float) -> None:
        """Let values through from now on. A HardwareError becomes health."""
        self.enabled = True
        if self._steps is not None:
            return  # the end of the start-up looks at `enabled`
        try:
            self._enable()
        except HardwareError as error:
            self._failed(str(error), now_s)

    @abstractmethod
    def safe(self) -> None:
        """Disable and bring every output to its safe state, from any state, open or not.

        Raises HardwareError after everything was tried.
        """

    def write(self, values: Sequence[float | None], now_s: float) -> None:
        """Put values out, those that changed. Nothing happens unless enabled and started.

        A HardwareError becomes health. Raises ValueError on what is not finite or in range.
        """
        if not self.enabled or self._steps is not None:
            return
        try:
            self._put(values)
            self._still_enabled()
        except HardwareError as error:
            self._failed(str(error), now_s)

    def _still_enabled(self) -> None:
        """Undo values that went out while the watchdog's thread said safe."""
        if not self.enabled:
            self.safe()

    @abstractmethod
    def _enable(self) -> None:
        """Open the hardware's own gate (nSLEEP, OE). Raises HardwareError."""

    @abstractmethod
    def _put(self, values: Sequence[float | None]) -> None:
        """Write what changed. Raises HardwareError, and ValueError as `write` does."""
