"""Texas Instruments INA219 power monitor. Source: SBOS448G.

16-bit big-endian registers behind a pointer that stays where it was set.
"""

from blimp.hardware.registers.power import INA219
from blimp.sim.chips.chip import Fitting, clamp
from blimp.sim.chips.power_monitor import BUS, SHUNT, PowerMonitor, reply

_SHUNT_LSB_V = 10e-6
_BUS_LSB_V = 0.004
_SHUNT_NOISE_V = 10e-6  # of one 12-bit conversion
_BUS_NOISE_V = 0.002
_SHUNT_OFFSET_V = 40e-6  # offset of the shunt input, within ±100 µV (table 6.5)
_REGISTERS = 6
_WRITABLE = (INA219.CONFIG, INA219.CALIBRATION)
# BADC and SADC settings (table 4): conversion time in seconds, samples averaged.
_ADC = (
    *((84e-6, 1), (148e-6, 1), (276e-6, 1), (532e-6, 1)) * 2,
    *((532e-6 * n, n) for n in (1, 2, 4, 8, 16, 32, 64, 128)),
)


class Ina219(PowerMonitor):
    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._shunt_offset_v = self.random.uniform(-_SHUNT_OFFSET_V, _SHUNT_OFFSET_V)
        self._registers = [0] * _REGISTERS
        self._reset()

    def _reset(self) -> None:
        self._registers[:] = [INA219.CONFIG_RESET] + [0] * (_REGISTERS - 1)
        self._restart()

    def write(self, data: bytes) -> None:
        self._pointer = data[0]
        if len(data) < 3 or self._pointer not in _WRITABLE:
            return
        value = data[1] << 8 | data[2]
        if self._pointer == INA219.CALIBRATION:
            self._registers[INA219.CALIBRATION] = value & 0xFFFE
        elif value & INA219.RST:
            self._reset()
        else:
            self._convert()
            self._registers[INA219.CONFIG] = value
            self._registers[INA219.BUS_VOLTAGE] &= ~INA219.CNVR  # section 8.6.3.2
            self._restart()

    def read(self, length: int) -> bytes:
        pointer = self._pointer
        if pointer >= _REGISTERS:
            return b"\xff" * length
        self._convert()
        value = self._registers[pointer]
        if pointer == INA219.POWER:
            self._registers[INA219.BUS_VOLTAGE] &= ~INA219.CNVR
        return reply(value, length)

    def _convert(self) -> None:
        """Make the conversions that have ended since the last call; only the last one stays."""
        config = self._registers[INA219.CONFIG]
        mode = config & INA219.MODE_MASK
        if mode & (BUS | SHUNT) == 0 or self.faults.frozen:  # power-down, or the ADC is off
            return
        shunt_s, shunt_samples = _ADC[config >> INA219.SADC_SHIFT & 0xF]
        bus_s, bus_samples = _ADC[config >> INA219.BADC_SHIFT & 0xF]
        period_s = (shunt_s if mode & SHUNT else 0.0) + (bus_s if mode & BUS else 0.0)
        if not self._has_converted(period_s, mode=mode):
            return
        voltage_v, current_a = self._felt()
        gauss = self.random.gauss
        if mode & SHUNT:
            gain = config >> 11 & 3
            limit = 4000 << gain  # ±40, 80, 160, 320 mV
            shunt_v = current_a * self._shunt_ohm + self._shunt_offset_v
            shunt_v += gauss(0.0, _SHUNT_NOISE_V / shunt_samples**0.5)
            self._registers[INA219.SHUNT_VOLTAGE] = (
                round(clamp(shunt_v / _SHUNT_LSB_V, -limit, limit)) & 0xFFFF
            )
        if mode & BUS:
            full_v = 32.0 if config & INA219.BRNG_32V else 16.0
            bus_v = voltage_v + gauss(0.0, _BUS_NOISE_V / bus_samples**0.5)
            counts = int(clamp(bus_v / _BUS_LSB_V, 0.0, full_v / _BUS_LSB_V))
            self._registers[INA219.BUS_VOLTAGE] = counts << 3
        self._multiply()

    def _multiply(self) -> None:
        """Fill current and power from the calibration: section 8.5, equations 4 and 5."""
        registers = self._registers
        shunt = registers[INA219.SHUNT_VOLTAGE]
        shunt -= (shunt & 0x8000) << 1
        bus = registers[INA219.BUS_VOLTAGE] >> 3
        current = int(shunt * registers[INA219.CALIBRATION] / 4096)
        power = abs(current) * bus // 5000
        overflow = not -32768 <= current <= 32767 or power > 0xFFFF
        registers[INA219.CURRENT] = current & 0xFFFF
        registers[INA219.POWER] = power & 0xFFFF
        registers[INA219.BUS_VOLTAGE] = bus << 3 | INA219.CNVR | (INA219.OVF if overflow else 0)
