"""PCA9685: sixteen channels of pulses on I2C, for servos and ESCs.

Source: PCA9685 data sheet revision 4: 7.3.1 (MODE1), 7.3.3 (LED registers), 7.3.5
(PRE_SCALE; 25 MHz gives 121 for 50 Hz, 30 for 200 Hz).
"""

from collections.abc import Sequence
from math import isfinite
from typing import ClassVar

import msgspec

from blimp.airframe import Airframe, Servo
from blimp.airframe import Device as Row
from blimp.errors import BoardError, DeviceError
from blimp.hardware.bus import Buses, DigitalOutput, I2CBus
from blimp.hardware.device import Output, Steps, Wiring, attempt_all, read_options
from blimp.hardware.esc import EscOptions, check_esc, check_throttle
from blimp.hardware.registers.outputs import PCA9685 as R
from blimp.hardware.who import answers_as

OFF = bytes([0, 0, 0, R.FULL])
CHANNELS_A_WRITE = 7  # 28 bytes: an I2C write here has at most 31


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """oscillator_hz: as measured, where pulses must be exact; boards differ by 5 %.

    esc: how the ESCs on its channels were programmed.
    """

    frequency_hz: float = 50.0
    oscillator_hz: float = R.OSCILLATOR_HZ
    esc: EscOptions = EscOptions()


def prescale(frequency_hz: float, *, oscillator_hz: float = R.OSCILLATOR_HZ) -> int:
    """Return PRE_SCALE, datasheet equation 1. Raises ValueError outside 24 to 1526 Hz."""
    value = round(oscillator_hz / (R.STEPS * frequency_hz)) - 1 if frequency_hz > 0.0 else 0
    if not R.PRE_SCALE_MIN <= value <= 0xFF:
        raise ValueError(
            f"frequency_hz {frequency_hz:g} needs prescale {value}, "
            f"outside {R.PRE_SCALE_MIN} to 255"
        )
    return value


class Pca9685(Output):
    """Servo angles and ESC throttles as pulses.

    Safe is no pulse at all: ALL_LED_OFF, and OE high where wired. With ESCs on it, these then
    get standstill, which stops them at once and keeps them armed; without pulses they stop,
    too, but a quarter of a second late.
    """

    WIRING: ClassVar = Wiring(
        bus="i2c",
        shared_addresses=(R.ALL_CALL_ADDRESS,),
        optional_pins=("oe",),
        channels=tuple(str(channel) for channel in range(R.CHANNELS)),
        drives=("servo", "thruster"),
    )

    def __init__(self, *, row: Row, buses: Buses, airframe: Airframe) -> None:
        super().__init__(row=row, buses=buses, airframe=airframe)
        options = read_options(row.options, Options, who=row.name)
        try:
            self._prescale = prescale(options.frequency_hz, oscillator_hz=options.oscillator_hz)
        except ValueError as error:
            raise BoardError(f"{row.name}: {error}") from error
        servos = {servo.name: servo for servo in airframe.servo}
        self._servos = [servos.get(name) for name in self.outputs]  # None: an ESC
        self._esc = options.esc
        self._has_escs = None in self._servos
        if self._has_escs:
            self.start_s += options.esc.arm_s
            check_esc(
                options.esc,
                frequency_hz=options.frequency_hz,
                thrusters=[t for t in airframe.thruster if t.name in self.outputs],
                who=row.name,
            )
        self._registers = [R.LED0_ON_L + R.LED_STRIDE * int(channel) for channel in self._channels]
        self._counts_per_s = options.oscillator_hz / (self._prescale + 1)
        for servo in self._servos:
            if servo is not None and servo.max_pulse_s * self._counts_per_s >= R.STEPS:
                raise BoardError(
                    f"{row.name}: servo {servo.name!r} wants pulses of {servo.max_pulse_s} s, "
                    f"longer than the period of {options.frequency_hz:g} Hz"
                )
        self._bus: I2CBus | None = None
        self._where = f"{self.name}: pca9685 at {row.bus} address 0x{self._address:02X}"
        self._oe_pin = row.pins.get("oe")
        self._oe: DigitalOutput | None = None
        self._written: list[bytes | None] = [None] * len(self.outputs)  # None: not known

    @property
    def unit(self) -> str:
        each = ["throttle" if servo is None else "rad" for servo in self._servos]
        return each[0] if len(set(each)) == 1 else ", ".join(each)

    def safe(self) -> None:
        self.enabled = False
        attempt_all(f"{self.name} may not be safe", [self._output_enable_off, self._idle])

    def close(self) -> None:
        oe, self._oe = self._oe, None
        if oe is not None:
            oe.close()
        self._bus = None

    def _output_enable_off(self) -> None:
        if self._oe_pin is not None and self._oe is None:
            self._oe = self._buses.digital(self._oe_pin)
        self._set_output_enable(False)

    def _all_off(self) -> None:
        # One byte, which takes effect whether or not the chip has auto-increment set.
        bus = self._bus = self._bus or self._buses.i2c(self._row.bus)
        self._written = [None] * len(self._written)
        bus.write(self._address, R.ALL_LED_OFF_H, bytes([R.FULL]))

    def _idle(self) -> None:
        """Servos without pulses, ESCs at standstill."""
        self._all_off()
        if self._has_escs:
            self._put([None] * len(self._servos))
            self._set_output_enable(True)

    def _start(self) -> Steps:
        bus = self._bus = self._buses.i2c(self._row.bus)
        # It has no identity register; this one comes up with a value of its own and is
        # written by nobody here.
        found = bus.read(self._address, R.ALLCALLADR, 1)[0]
        if found != R.ALLCALLADR_RESET:
            raise DeviceError(
                f"{self._where}: ALLCALLADR (0x{R.ALLCALLADR:02X}) reads 0x{found:02X}, "
                f"expected 0x{R.ALLCALLADR_RESET:02X}"
                f"{'; it answers as ' + other if (other := answers_as(bus, self._address)) else ''}"
            )
        # A killed process may have left pulses running: off before anything else.
        self._output_enable_off()
        self._all_off()
        bus.write(self._address, R.MODE1, bytes([R.MODE1_SLEEP | R.MODE1_AI]))
        bus.write(self._address, R.PRE_SCALE, bytes([self._prescale]))
        bus.write(self._address, R.MODE2, bytes([R.MODE2_OUTDRV]))
        # Without ALLCALL the chip leaves address 0x70 to others.
        bus.write(self._address, R.MODE1, bytes([R.MODE1_AI]))
        yield R.OSCILLATOR_START_UP_S
        self._check(bus)
        if self._has_escs:
            self._idle()
            yield self._esc.arm_s
        if self.enabled:
            self._enable()

    def _enable(self) -> None:
        self._set_output_enable(True)

    def _set_output_enable(self, on: bool) -> None:
        if self._oe is not None:
            self._oe.write(not on)  # active low: high switches all sixteen off

    def _work(self, now_s: float) -> None:
        if self._bus is None:
            raise DeviceError(f"{self.name}: closed")
        self._check(self._bus)
        self._alive(now_s)

    def _check(self, bus: I2CBus) -> None:
        mode1 = bus.read(self._address, R.MODE1, 1)[0]
        scale = bus.read(self._address, R.PRE_SCALE, 1)[0]
        if (mode1, scale) != (R.MODE1_AI, self._prescale):
            raise self._lost(
                f"MODE1 reads 0x{mode1:02X} and PRE_SCALE {scale}, expected "
                f"0x{R.MODE1_AI:02X} and {self._prescale}: the chip was reset"
            )

    def _put(self, values: Sequence[float | None]) -> None:
        if self._bus is None:
            raise DeviceError(f"{self.name}: closed")
        wanted = [
            self._esc_pulse(value)
            if servo is None
            else OFF
            if value is None
            else self._servo_pulse(servo, value)
            for servo, value in zip(self._servos, values, strict=True)
        ]
        if wanted == self._written:
            return
        first = 0
        while first < len(wanted):
            if wanted[first] == self._written[first]:
                first += 1
                continue
            last = self._run_end(wanted, first)
            self._bus.write(self._address, self._registers[first], b"".join(wanted[first:last]))
            self._written[first:last] = wanted[first:last]
            first = last

    def _run_end(self, wanted: Sequence[bytes], first: int) -> int:
        """Return the end of the run of neighbouring channels from `first` that changed."""
        last = first + 1
        while (
            last < len(wanted)
            and last - first < CHANNELS_A_WRITE
            and self._registers[last] == self._registers[last - 1] + R.LED_STRIDE
            and wanted[last] != self._written[last]
        ):
            last += 1
        return last

    def _esc_pulse(self, throttle: float | None) -> bytes:
        return self._pulse(self._esc.pulse_s(check_throttle(throttle, who=self.name)))

    def _servo_pulse(self, servo: Servo, angle_rad: float) -> bytes:
        if not isfinite(angle_rad) or not servo.min_rad <= angle_rad <= servo.max_rad:
            raise ValueError(
                f"{self.name}: servo {servo.name!r} at {angle_rad!r} rad is outside "
                f"{servo.min_rad} to {servo.max_rad}"
            )
        share = (angle_rad - servo.min_rad) / (servo.max_rad - servo.min_rad)
        return self._pulse(servo.min_pulse_s + share * (servo.max_pulse_s - servo.min_pulse_s))

    def _pulse(self, pulse_s: float) -> bytes:
        """Return the channel's four registers: on at count 0, off at the pulse's end."""
        return b"\0\0" + round(pulse_s * self._counts_per_s).to_bytes(2, "little")
