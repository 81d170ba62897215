"""All of a ship's simulated electronics: its board table turned into chips and wires."""

from collections.abc import Mapping, Sequence
from functools import partial

from blimp.airframe import Airframe, Device
from blimp.chips import CHIPS, load
from blimp.errors import BoardError, ConfigError
from blimp.sim.bus import I2CBus, no_answer
from blimp.sim.chips.camera import Camera
from blimp.sim.chips.chip import Chip, Fitting, I2CChip, MessageChip, SerialChip, SpiChip
from blimp.sim.chips.esc import EscPwm
from blimp.sim.electrical import BytesCallback
from blimp.sim.gpio import GpioBank
from blimp.sim.timeline import Timeline
from blimp.sim.truth import Truth


def twin(chip: str) -> type[Chip]:
    """Return the simulated part of a chip, which is imported when it is first asked for."""
    kind: type[Chip] = load(CHIPS[chip].twin, "blimp.sim.chips")
    return kind


class Electronics:
    """Buses, pins and ports of one ship, with its chips on them.

    start_utc_s: the date at the timeline's zero. Raises BoardError naming the row where a
    chip is unknown or hangs on the wrong kind of bus.
    """

    def __init__(
        self,
        *,
        airframe: Airframe,
        truth: Truth,
        timeline: Timeline,
        seed: int,
        start_utc_s: float,
    ) -> None:
        self.pins = GpioBank(timeline=timeline)
        self.buses: dict[int, I2CBus] = {}
        self.ports: dict[str, int] = {}
        self.pwm_pins: dict[tuple[int, int], int] = {}
        self.spi_chips: dict[tuple[int, int], SpiChip] = {}
        self.messages: MessageChip | None = None
        self.cameras: list[Camera] = []
        self._timeline = timeline
        self._listeners: dict[str, list[BytesCallback]] = {}
        self._serial: dict[str, SerialChip] = {}
        self._chips: dict[str, Chip] = {}
        for device in airframe.device:
            fitting = Fitting(
                device=device,
                airframe=airframe,
                truth=truth,
                timeline=timeline,
                pins=self.pins,
                seed=seed,
                send=partial(self._received, device.port),
                start_utc_s=start_utc_s,
            )
            self._fit(device, fitting)
        self._motor_chips = [chip for chip in self._chips.values() if chip.throttles()]
        self._servo_chips = [chip for chip in self._chips.values() if chip.servo_angles()]
        self._thrusters = airframe.thruster_names
        self._servos = airframe.servo_names

    def _fit(self, device: Device, fitting: Fitting) -> None:
        if device.chip not in CHIPS:
            raise BoardError(
                f"device {device.name!r}: the simulator has no chip {device.chip!r}; "
                f"it has {', '.join(CHIPS)}"
            )
        try:
            chip = twin(device.chip)(fitting)
        except KeyError as error:
            raise BoardError(
                f"device {device.name!r}: the simulated {device.chip} has no use for, or lacks, "
                f"the pin, output or option {error}"
            ) from error
        except (TypeError, ValueError) as error:
            raise BoardError(
                f"device {device.name!r}: the simulated {device.chip}: {error}"
            ) from error
        self._chips[device.name] = chip
        if isinstance(chip, I2CChip):
            prefix, _, number = device.bus.partition("-")
            if prefix != "i2c" or not number.isdecimal():
                raise BoardError(f"device {device.name!r}: {device.bus!r} is no I2C bus")
            bus = self.buses.setdefault(int(number), I2CBus(number=int(number)))
            bus.attach(chip, name=device.name)
        elif isinstance(chip, SerialChip):
            if device.bus != "serial" or not device.port or device.port in self.ports:
                raise BoardError(
                    f'device {device.name!r}: needs bus "serial" and a port of its own, '
                    f"not {device.bus!r} and {device.port!r}"
                )
            self.ports[device.port] = device.baud
            self._serial[device.port] = chip
        elif isinstance(chip, SpiChip):
            self._fit_spi(device, chip)
        elif isinstance(chip, MessageChip):
            if device.bus != "camera" or self.messages is not None:
                raise BoardError(
                    f'device {device.name!r}: needs bus "camera", one a ship, not {device.bus!r}'
                )
            self.messages = chip
            if isinstance(chip, Camera):
                self.cameras.append(chip)
        elif isinstance(chip, EscPwm):
            prefix, _, number = device.bus.partition("-")
            if prefix != "pwm" or not number.isdecimal():
                raise BoardError(f"device {device.name!r}: {device.bus!r} is no PWM chip")
            for channel in device.outputs:
                self.pwm_pins[int(number), int(channel)] = device.pins[f"pwm{channel}"]
        elif device.bus != "gpio":
            raise BoardError(f'device {device.name!r}: needs bus "gpio", not {device.bus!r}')

    def _fit_spi(self, device: Device, chip: SpiChip) -> None:
        bus, _, select = device.bus.removeprefix("spi-").partition(".")
        if not device.bus.startswith("spi-") or not (bus + select).isdecimal():
            raise BoardError(f"device {device.name!r}: {device.bus!r} is no SPI device")
        if self.spi_chips.setdefault((int(bus), int(select)), chip) is not chip:
            raise BoardError(f"device {device.name!r}: {device.bus} is taken")

    def chip(self, name: str) -> Chip:
        """Return a device by its row's name. Raises KeyError if there is none."""
        return self._chips[name]

    # --- the computer's side -----------------------------------------------------------------

    def i2c(self, bus: int, address: int, data: bytes, length: int) -> bytes:
        wires = self.buses.get(bus)
        if wires is None:
            raise no_answer()
        return wires.transfer(address, data, length)

    def spi(self, bus: int, select: int, data: bytes) -> bytes:
        chip = self.spi_chips.get((bus, select))
        if chip is None or chip.faults.no_answer:
            return b"\xff" * len(data)
        if chip.faults.garbage:
            return chip.faults.random.randbytes(len(data))
        return chip.exchange(data)

    def datagrams(self, name: str) -> MessageChip:
        """Return the end of the socket on which a ship's camera tells what it sees."""
        if self.messages is None:
            raise ConfigError(f"the simulated ship has nothing that sends to {name}")
        return self.messages

    def listen(self, port: str, callback: BytesCallback) -> None:
        self._listeners.setdefault(port, []).append(callback)

    def unlisten(self, port: str, callback: BytesCallback) -> None:
        listeners = self._listeners.get(port, [])
        if callback in listeners:
            listeners.remove(callback)

    def serial_write(self, port: str, data: bytes) -> None:
        chip = self._serial.get(port)
        if chip is not None:
            chip.receive(data)

    def _received(self, port: str, data: bytes) -> None:
        for callback in tuple(self._listeners.get(port, ())):
            callback(data)

    # --- the ship's side ---------------------------------------------------------------------

    def throttles(self) -> Sequence[float]:
        """Return what each motor is driven with, in the airframe's order."""
        by_name: dict[str, float] = {}
        for chip in self._motor_chips:
            by_name.update(chip.throttles())
        return [by_name.get(name, 0.0) for name in self._thrusters]

    def servo_angles(self) -> Sequence[float | None]:
        """Return the commanded angle of each servo; None if it gets no pulses."""
        by_name: dict[str, float | None] = {}
        for chip in self._servo_chips:
            by_name.update(chip.servo_angles())
        return [by_name.get(name) for name in self._servos]

    def fault(self, device: str, kind: str, options: Mapping[str, object]) -> None:
        """Let a fault begin. Raises ConfigError naming the devices, kinds or options known."""
        chip = self._chips.get(device)
        if chip is None:
            raise ConfigError(
                f"there is no device {device!r}: this ship has {', '.join(self._chips)}"
            )
        chip.faults.set(kind, options, now_s=self._timeline.now_s)
        for bus in self.buses.values():
            bus.faults_changed()
