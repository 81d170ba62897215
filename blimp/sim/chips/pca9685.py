"""NXP PCA9685, 16 channels of 12-bit PWM, with servos and ESCs on them. Source: rev 4 of 2015.

Not simulated: sub-addresses' use beyond answering, external clock, output drive structure.
"""

from collections.abc import Mapping

from blimp.airframe import Servo
from blimp.hardware.registers.outputs import PCA9685
from blimp.sim.chips.chip import Fitting, I2CChip, clamp
from blimp.sim.chips.esc import Esc

_LAST_LED = PCA9685.LED0_ON_L + PCA9685.LED_STRIDE * PCA9685.CHANNELS - 1  # 0x45
_SOFTWARE_RESET = b"\x06"  # to the general call address, section 7.6
_PULSE_LIMITS_S = (0.0004, 0.0027)  # what a hobby servo takes for a pulse at all


class Pca9685(I2CChip):
    """Channels: the servos' names, in radians, and the motors', as throttle.

    Row: outputs {"0".."15": servo or motor}; pins {"oe": pin} where the OE pin is wired
    (active low, held low by a resistor on the board).
    """

    DEFAULT_ADDRESS = 0x40

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        servos: Mapping[str, Servo] = {servo.name: servo for servo in fitting.airframe.servo}
        self._servos = [
            (int(channel), servos[name])
            for channel, name in fitting.device.outputs.items()
            if name in servos
        ]
        programmed = fitting.device.options.get("esc") or {}
        self._escs = {
            name: (int(channel), Esc(options=programmed, timeline=fitting.timeline))
            for channel, name in fitting.device.outputs.items()
            if name in fitting.airframe.thruster_names
        }
        self._memory = bytearray(256)
        self._pointer = 0
        self._held = [False] * PCA9685.CHANNELS  # stopped by sleep, not yet restarted
        self._frozen_angles: dict[str, float | None] | None = None
        self._pins = fitting.pins
        self._oe_pin = fitting.device.pins.get("oe")
        self._enabled = True
        if self._oe_pin is not None:
            self._pins.on_host_change(self._oe_pin, lambda _held_s: self._update())
        self._reset()

    def _reset(self) -> None:
        memory = self._memory
        memory[:] = bytes(256)
        memory[PCA9685.MODE1] = PCA9685.MODE1_RESET
        memory[PCA9685.MODE2] = PCA9685.MODE2_RESET
        memory[0x02:0x06] = bytes((0xE2, 0xE4, 0xE8, PCA9685.ALLCALLADR_RESET))
        for channel in range(PCA9685.CHANNELS):
            memory[PCA9685.LED0_ON_L + PCA9685.LED_STRIDE * channel + 3] = PCA9685.FULL
        memory[PCA9685.PRE_SCALE] = PCA9685.PRE_SCALE_RESET
        self._held = [False] * PCA9685.CHANNELS
        self._update()

    def answers(self, address: int) -> bool:
        mode1 = self._memory[PCA9685.MODE1]
        if mode1 & PCA9685.MODE1_ALLCALL and address == self._memory[PCA9685.ALLCALLADR] >> 1:
            return True
        return any(
            mode1 & bit and address == self._memory[register] >> 1
            for register, bit in zip(
                (0x02, 0x03, 0x04),
                (PCA9685.MODE1_SUB1, PCA9685.MODE1_SUB2, PCA9685.MODE1_SUB3),
                strict=True,
            )
        )

    def general_call(self, data: bytes) -> None:
        if data == _SOFTWARE_RESET:
            self._reset()

    def write(self, data: bytes) -> None:
        pointer = data[0]
        for value in data[1:]:
            self._store(pointer, value)
            pointer = self._next(pointer)
        self._pointer = pointer
        if len(data) > 1:
            self._update()  # section 7.3.2: outputs change on stop, all together

    def read(self, length: int) -> bytes:
        data = bytearray()
        for _ in range(length):
            data.append(self._memory[self._pointer])
            self._pointer = self._next(self._pointer)
        return bytes(data)

    def _next(self, pointer: int) -> int:
        if not self._memory[PCA9685.MODE1] & PCA9685.MODE1_AI:
            return pointer
        # Section 7.3, table 4: past 0x45 and past 0xFE the pointer goes to 0.
        return 0 if pointer in (_LAST_LED, PCA9685.PRE_SCALE) else (pointer + 1) & 0xFF

    def _store(self, register: int, value: int) -> None:
        memory = self._memory
        if register == PCA9685.MODE1:
            self._store_mode1(value)
        elif register == PCA9685.MODE2:
            memory[register] = value & 0x1F
        elif register <= PCA9685.ALLCALLADR:
            memory[register] = value & 0xFE
        elif register <= _LAST_LED:
            memory[register] = value & _led_mask(register)
            self._held[(register - PCA9685.LED0_ON_L) // PCA9685.LED_STRIDE] = False
            memory[PCA9685.MODE1] &= ~PCA9685.MODE1_RESTART & 0xFF
        elif PCA9685.ALL_LED_ON_L <= register <= PCA9685.ALL_LED_OFF_H:
            first = register - PCA9685.ALL_LED_ON_L + PCA9685.LED0_ON_L
            for led in range(first, _LAST_LED + 1, PCA9685.LED_STRIDE):
                memory[led] = value & _led_mask(first)
            self._held = [False] * PCA9685.CHANNELS
            memory[PCA9685.MODE1] &= ~PCA9685.MODE1_RESTART & 0xFF
        elif register == PCA9685.PRE_SCALE and memory[PCA9685.MODE1] & PCA9685.MODE1_SLEEP:
            memory[register] = max(value, PCA9685.PRE_SCALE_MIN)

    def _store_mode1(self, value: int) -> None:
        """Sleep and restart, section 7.3.1.1."""
        old = self._memory[PCA9685.MODE1]
        new = value & ~PCA9685.MODE1_RESTART | old & (PCA9685.MODE1_RESTART | PCA9685.MODE1_EXTCLK)
        if value & PCA9685.MODE1_SLEEP:
            if not old & PCA9685.MODE1_SLEEP:
                running = [self._on_counts(channel) is not None for channel in range(16)]
                if any(running):
                    new |= PCA9685.MODE1_RESTART
                    self._held = running
        elif value & PCA9685.MODE1_RESTART and not old & PCA9685.MODE1_SLEEP:
            new &= ~PCA9685.MODE1_RESTART
            self._held = [False] * PCA9685.CHANNELS
        self._memory[PCA9685.MODE1] = new

    def _on_counts(self, channel: int) -> int | None:
        """Return how many of 4096 counts the output is high; None where it never changes."""
        at = PCA9685.LED0_ON_L + PCA9685.LED_STRIDE * channel
        on_l, on_h, off_l, off_h = self._memory[at : at + 4]
        if (on_h | off_h) & PCA9685.FULL:
            return None
        return ((off_h << 8 | off_l) - (on_h << 8 | on_l)) % PCA9685.STEPS or None

    def pulse_s(self, channel: int) -> float | None:
        """Return the width of the pulses on `channel`; None where there are none."""
        if (
            not self._enabled
            or self._memory[PCA9685.MODE1] & PCA9685.MODE1_SLEEP
            or self._held[channel]
        ):
            return None
        counts = self._on_counts(channel)
        if counts is None:
            return None
        if self._memory[PCA9685.MODE2] & PCA9685.MODE2_INVRT:
            counts = PCA9685.STEPS - counts
        return counts * (self._memory[PCA9685.PRE_SCALE] + 1) / PCA9685.OSCILLATOR_HZ

    def _update(self) -> None:
        if self._oe_pin is not None:
            self._enabled = self._pins.duty(self._oe_pin) < 0.5
        self._angles: dict[str, float | None] = {
            servo.name: _angle(servo, self.pulse_s(channel)) for channel, servo in self._servos
        }

        for channel, esc in self._escs.values():
            esc.signal(self.pulse_s(channel))

    def throttles(self) -> dict[str, float]:
        return self.driven({name: esc.throttle() for name, (_, esc) in self._escs.items()})

    def servo_angles(self) -> dict[str, float | None]:
        faults = self.faults
        if faults.no_answer:  # no supply: no pulses
            return dict.fromkeys(self._angles)
        if faults.frozen:
            if self._frozen_angles is None:
                self._frozen_angles = dict(self._angles)
            return self._frozen_angles
        self._frozen_angles = None
        if not faults.altered:
            return self._angles
        now_s = self.timeline.now_s
        return {
            name: faults.measure(name, angle or 0.0, now_s) if faults.alters(name) else angle
            for name, angle in self._angles.items()
        }


def _led_mask(register: int) -> int:
    """High bytes keep 4 bits of count and the full-on or full-off bit."""
    return 0x1F if (register - PCA9685.LED0_ON_L) & 1 else 0xFF


def _angle(servo: Servo, pulse_s: float | None) -> float | None:
    """Return where a servo goes for a pulse; None where it does not take it for one."""
    if pulse_s is None or not _PULSE_LIMITS_S[0] <= pulse_s <= _PULSE_LIMITS_S[1]:
        return None
    share = (pulse_s - servo.min_pulse_s) / (servo.max_pulse_s - servo.min_pulse_s)
    angle = servo.min_rad + share * (servo.max_rad - servo.min_rad)
    return clamp(angle, servo.min_rad, servo.max_rad)
