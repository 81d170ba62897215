"""From an airframe's device table to devices: what is wired where, and that nothing clashes."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from blimp.airframe import Airframe
from blimp.airframe import Device as Row
from blimp.chips import CHIPS, load
from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import BoardError, HardwareError
from blimp.hardware.actuators import Actuators
from blimp.hardware.bus import Buses
from blimp.hardware.device import Device, Output, Sensor, Wiring, attempt_all
from blimp.hardware.suite import SensorSuite
from blimp.types import SensorReadings, SensorStatus, Snapshot

# Buses with a number: an example, and what one looks like.
NUMBERED = {
    "i2c": ("i2c-1", re.compile(r"i2c-\d{1,3}")),
    "pwm": ("pwm-0", re.compile(r"pwm-\d{1,2}")),
    "spi": ("spi-0.0", re.compile(r"spi-\d\.\d")),  # the second digit is the chip select
}
SPI_PINS = {"spi-0.0": (9, 10, 11, 8), "spi-0.1": (9, 10, 11, 7)}  # MISO, MOSI, SCLK, CE
I2C_PINS = {"i2c-0": (0, 1), "i2c-1": (2, 3)}
UART_PINS = {"/dev/ttyAMA0": (14, 15), "/dev/ttyS0": (14, 15), "/dev/serial0": (14, 15)}


def driver(chip: str) -> type[Sensor[Any]] | type[Output]:
    """Return the driver of a chip, which is imported when it is first asked for."""
    kind: type[Sensor[Any]] | type[Output] = load(CHIPS[chip].driver, "blimp.hardware")
    return kind


def wiring_of(chip: str) -> Wiring:
    """Return how a chip is connected."""
    return driver(chip).WIRING


class Board(Closing):
    """The opened devices of one ship. A context manager: leaving it makes the outputs safe.

    The buses belong to who made them and stay open.
    """

    def __init__(self, *, sensors: SensorSuite, actuators: Actuators) -> None:
        self.sensors = sensors
        self.actuators = actuators

    @property
    def devices(self) -> tuple[Device, ...]:
        return (*self.sensors.sensors, *self.actuators.outputs)

    @property
    def unhealthy(self) -> tuple[str, ...]:
        """The names of all devices, sensors and outputs, that are not healthy."""
        return self.sensors.unhealthy + self.actuators.unhealthy

    def read(self, now_s: float) -> SensorReadings:
        """Return what the sensors say; `unhealthy` names the sick outputs as well."""
        readings = self.sensors.read(now_s)
        self.actuators.poll(now_s)
        sick = self.actuators.unhealthy
        if not sick:
            return readings
        return msgspec.structs.replace(readings, unhealthy=readings.unhealthy + sick)

    def tell(self, snapshot: Snapshot) -> None:
        """Give every sensor the newest snapshot, for telemetry. A failure is the next poll's."""
        for sensor in self.sensors.sensors:
            with contextlib.suppress(HardwareError):
                sensor.tell(snapshot)

    def self_test(self) -> dict[str, str]:
        """Return by device name "" where it is healthy, else why not ("starting" at first)."""
        return {d.name: "" if d.healthy else d.error or "starting" for d in self.devices}

    def status(self, now_s: float) -> dict[str, SensorStatus]:
        """Return every device as a person sees it, by name."""
        return self.sensors.status(now_s) | self.actuators.status(now_s)

    def close(self) -> None:
        """Make the outputs safe and close every device. Idempotent."""
        attempt_all("closing the board", [self.actuators.close, self.sensors.close])


def open_board(airframe: Airframe, *, buses: Buses, clock: Clock) -> Board:
    """Build the airframe's devices and start them.

    Raises BoardError where the table is wrong. A device that does not answer or is not what
    the table says stops nothing: it is unhealthy, `self_test` says why, and it is tried again.
    """
    check(airframe)
    made = [(_made(row, airframe, buses), row.rate_hz) for row in airframe.device]
    sensors = [(device, rate_hz) for device, rate_hz in made if isinstance(device, Sensor)]
    outputs = _motors_first(airframe, [d for d, _ in made if isinstance(d, Output)])
    now_s = clock.now_s()
    for device in (*outputs, *(sensor for sensor, _ in sensors)):
        device.poll(now_s)
    return Board(
        sensors=SensorSuite(sensors=sensors),
        actuators=Actuators(airframe=airframe, outputs=outputs, clock=clock),
    )


def safe_state(airframe: Airframe, *, buses: Buses) -> dict[str, str]:
    """Open the outputs only, make them safe, and close them again.

    For after a flight process that died. Waits for nothing. Returns by device name "" or
    what failed; the other devices are safe all the same. Raises BoardError as `open_board`.
    """
    _check_wiring(airframe)  # a sensor's wrong option must not keep a motor running
    results = {}
    rows = [row for row in airframe.device if not CHIPS[row.chip].role]
    made = [_made(row, airframe, buses) for row in rows]
    for output in _motors_first(airframe, [d for d in made if isinstance(d, Output)]):
        try:
            attempt_all(output.name, [output.safe, output.close])
            results[output.name] = ""
        except HardwareError as error:
            results[output.name] = str(error)
    return results


def _motors_first(airframe: Airframe, outputs: Sequence[Output]) -> list[Output]:
    """Return the outputs, those of motors first: pins can be made safe while a bus hangs."""
    thrusters = set(airframe.thruster_names)
    return sorted(
        outputs,
        key=lambda output: (output.WIRING.bus == "i2c", thrusters.isdisjoint(output.outputs)),
    )


def check(airframe: Airframe) -> None:
    """Refuse a device table that cannot be wired, or a wrong option. Raises BoardError.

    It names the device, or both. Nothing is opened.
    """
    _check_wiring(airframe)
    for row in airframe.device:
        # A driver that is made opens nothing: it reads its options, which only it knows.
        _made(row, airframe, cast(Buses, None))


def _check_wiring(airframe: Airframe) -> None:
    roles: dict[str, Row] = {}
    for row in airframe.device:
        chip = CHIPS.get(row.chip)
        if chip is None:
            raise BoardError(
                f"device {row.name!r} has chip {row.chip!r}; known chips: {', '.join(CHIPS)}"
            )
        _check_row(row, airframe)
        other = roles.setdefault(chip.role, row) if chip.role else row
        if other is not row:
            raise BoardError(
                f"devices {other.name!r} and {row.name!r} both measure for {chip.role!r}"
            )
    _check_clashes(airframe)


def _made(row: Row, airframe: Airframe, buses: Buses) -> Sensor[Any] | Output:
    kind = driver(row.chip)
    if issubclass(kind, Sensor):
        return kind(row=row, buses=buses)
    return kind(row=row, buses=buses, airframe=airframe)


def _check_row(row: Row, airframe: Airframe) -> None:
    """Check one row against its chip's wiring."""
    wiring, addresses = wiring_of(row.chip), CHIPS[row.chip].addresses
    who = f"device {row.name!r} ({row.chip})"
    like, form = NUMBERED.get(wiring.bus, (wiring.bus, re.compile(wiring.bus)))
    if not form.fullmatch(row.bus):
        raise BoardError(f"{who} is on bus {row.bus!r}, but needs one like {like!r}")
    if wiring.bus == "i2c" and row.address not in addresses:
        given = "no address" if row.address is None else f"address 0x{row.address:02X}"
        raise BoardError(
            f"{who} has {given}, but can have 0x{min(addresses):02X} to 0x{max(addresses):02X}"
        )
    if wiring.bus == "serial" and not row.port:
        raise BoardError(f"{who} has no port")
    for channel, output in row.outputs.items():
        if channel not in wiring.channels:
            raise BoardError(
                f"{who} drives {output!r} on channel {channel!r}, but has "
                f"{', '.join(wiring.channels) or 'no channels: it is a sensor'}"
            )
        names = {"servo": airframe.servo_names, "thruster": airframe.thruster_names}
        if not any(output in names[kind] for kind in wiring.drives):
            raise BoardError(
                f"{who} drives {' and '.join(f'{kind}s' for kind in wiring.drives)}, "
                f"and {output!r} on channel {channel!r} is none"
            )
    needed = (*wiring.pins, *(p for c in row.outputs for p in wiring.channel_pins.get(c, ())))
    for pin in needed:
        if pin not in row.pins:
            raise BoardError(f"{who} needs pin {pin!r}; given: {', '.join(row.pins) or 'none'}")
    for pin in row.pins:
        if pin not in needed and pin not in wiring.optional_pins:
            raise BoardError(f"{who} has no use for pin {pin!r}; it needs {', '.join(needed)}")


def _check_clashes(airframe: Airframe) -> None:
    """Refuse two claims on one address, pin or port."""
    claimed: dict[str, tuple[str, str]] = {}
    for place, who, sharing in _claims(airframe):
        other, other_sharing = claimed.setdefault(place, (who, sharing))
        if other != who and not (sharing and sharing == other_sharing):
            raise BoardError(f"{other} and {who} both claim {place}")


def _claims(airframe: Airframe) -> Iterator[tuple[str, str, str]]:
    """Yield (place, who, sharing): two claims on a place are fine when both share it alike."""
    for row in airframe.device:
        wiring = wiring_of(row.chip)
        who = f"device {row.name!r} ({row.chip})"
        if wiring.bus == "i2c":
            yield f"{row.bus} address 0x{row.address or 0:02X}", who, ""
            for address in wiring.shared_addresses:
                yield f"{row.bus} address 0x{address:02X}", who, row.chip
            for pin in I2C_PINS.get(row.bus, ()):
                yield f"GPIO {pin}", f"bus {row.bus!r}", row.bus
        if wiring.bus == "serial":
            yield f"serial port {row.port}", who, ""
            for pin in UART_PINS.get(row.port, ()):
                yield f"GPIO {pin}", f"serial port {row.port}", row.port
        if wiring.bus == "spi":
            yield row.bus, who, ""
            for pin in SPI_PINS.get(row.bus, ()):
                yield f"GPIO {pin}", "bus 'spi-0'", "spi-0"
        if wiring.bus == "pwm":
            for channel in row.outputs:
                yield f"{row.bus} channel {channel}", who, ""
        pins = list(row.pins.items())
        for i, (name, pin) in enumerate(pins):
            for other, same in pins[:i]:
                if same == pin:
                    raise BoardError(f"{who}: pins {other!r} and {name!r} are both GPIO {pin}")
            yield f"GPIO {pin}", who, ""
