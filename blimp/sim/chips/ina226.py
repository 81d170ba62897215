"""Texas Instruments INA226 and INA260 power monitors. Sources: SBOS547A, SBOS656C.

16-bit big-endian registers behind a pointer that stays where it was set. Not simulated: the
alert pin and its limit.
"""

from blimp.hardware.registers.power import INA226, INA260
from blimp.sim.chips.chip import Fitting, clamp
from blimp.sim.chips.power_monitor import BUS, SHUNT, PowerMonitor, reply

_SHUNT_LSB_V = 2.5e-6
_LSB_V = 1.25e-3
_INA260_LSB_A = 1.25e-3
_SHUNT_NOISE_V = 5e-6  # of one sample
_BUS_NOISE_V = 1e-3
_SHUNT_OFFSET_V = 2.5e-6  # within ±10 µV (table 6.5)
_AVERAGES = (1, 4, 16, 64, 128, 256, 512, 1024)  # AVG, table 6
_TIMES_S = (140e-6, 204e-6, 332e-6, 588e-6, 1.1e-3, 2.116e-3, 4.156e-3, 8.244e-3)  # table 7
_WRITABLE = {INA226.CONFIG: 0xFFFF, INA226.CALIBRATION: 0x7FFF, INA226.MASK_ENABLE: 0xFC03}
_WRONG_DIE = 0x2190


class Ina226(PowerMonitor):
    KINDS = PowerMonitor.KINDS | {"wrong_identity"}
    DIE = INA226.DIE
    CONFIG_RESET = INA226.CONFIG_RESET
    FIXED = INA226.CONFIG_FIXED

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._offset_v = self.random.uniform(-_SHUNT_OFFSET_V, _SHUNT_OFFSET_V)
        self._reset()

    def _reset(self) -> None:
        self._registers = dict.fromkeys(range(8), 0)
        self._registers[INA226.CONFIG] = self.CONFIG_RESET
        self._restart()

    def write(self, data: bytes) -> None:
        self._pointer = data[0]
        if len(data) < 3 or self._pointer not in _WRITABLE:
            return
        value = (data[1] << 8 | data[2]) & _WRITABLE[self._pointer]
        registers = self._registers
        if self._pointer == INA226.CONFIG:
            if value & INA226.RST:
                self._reset()
                return
            self._convert()
            registers[INA226.MASK_ENABLE] &= ~INA226.CVRF
            value = value & 0x0FFF | self.FIXED
            self._restart()
        registers[self._pointer] = value

    def read(self, length: int) -> bytes:
        self._convert()
        pointer = self._pointer
        if pointer == INA226.MANUFACTURER_ID:
            value = INA226.MANUFACTURER
        elif pointer == INA226.DIE_ID:
            value = _WRONG_DIE if self.faults.wrong_identity else self.DIE << 4
        else:
            value = self._registers.get(pointer, 0xFFFF)
        if pointer == INA226.MASK_ENABLE:
            self._registers[pointer] &= ~INA226.CVRF
        return reply(value, length)

    def _convert(self) -> None:
        """Make the conversions that have ended since the last call; only the last one stays."""
        config = self._registers[INA226.CONFIG]
        mode = config & INA226.MODE_MASK
        if mode & (BUS | SHUNT) == 0 or self.faults.frozen:
            return
        samples = _AVERAGES[config >> INA226.AVG_SHIFT & 7]
        period_s = 0.0
        if mode & SHUNT:
            period_s += samples * _TIMES_S[config >> INA226.VSHCT_SHIFT & 7]
        if mode & BUS:
            period_s += samples * _TIMES_S[config >> INA226.VBUSCT_SHIFT & 7]
        if not self._has_converted(period_s, mode=mode):
            return
        voltage_v, current_a = self._felt()
        gauss = self.random.gauss
        if mode & SHUNT:
            shunt_v = current_a * self._shunt_ohm + self._offset_v
            self._take_shunt(shunt_v + gauss(0.0, _SHUNT_NOISE_V / samples**0.5))
        if mode & BUS:
            bus_v = voltage_v + gauss(0.0, _BUS_NOISE_V / samples**0.5)
            self._registers[INA226.BUS_VOLTAGE] = int(clamp(bus_v / _LSB_V, 0.0, 0x7FFF))
        overflow = self._multiply()
        mask = self._registers[INA226.MASK_ENABLE] & ~INA226.OVF | INA226.CVRF
        self._registers[INA226.MASK_ENABLE] = mask | (INA226.OVF if overflow else 0)

    def _take_shunt(self, shunt_v: float) -> None:
        counts = round(clamp(shunt_v / _SHUNT_LSB_V, -0x7FFF, 0x7FFF))
        self._registers[INA226.SHUNT_VOLTAGE] = counts & 0xFFFF

    def _multiply(self) -> bool:
        """Fill current and power: equations 3 and 4. Return whether one is too large."""
        registers = self._registers
        shunt = registers[INA226.SHUNT_VOLTAGE]
        shunt -= (shunt & 0x8000) << 1
        current = int(shunt * registers[INA226.CALIBRATION] / 2048)
        power = abs(current) * registers[INA226.BUS_VOLTAGE] // 20000
        registers[INA226.CURRENT] = current & 0xFFFF
        registers[INA226.POWER] = power & 0xFFFF
        return not -0x8000 <= current <= 0x7FFF or power > 0xFFFF


class Ina260(Ina226):
    DIE = INA260.DIE
    CONFIG_RESET = INA260.CONFIG_RESET
    FIXED = INA260.CONFIG_FIXED

    def _shunt(self, fitting: Fitting) -> float:  # noqa: ARG002
        return 0.002

    def _take_shunt(self, shunt_v: float) -> None:
        counts = round(clamp(shunt_v / 0.002 / _INA260_LSB_A, -0x7FFF, 0x7FFF))
        self._registers[INA260.CURRENT] = counts & 0xFFFF

    def _multiply(self) -> bool:
        registers = self._registers
        current = registers[INA260.CURRENT]
        current -= (current & 0x8000) << 1
        watts = abs(current) * _INA260_LSB_A * registers[INA226.BUS_VOLTAGE] * _LSB_V
        registers[INA260.POWER] = min(int(watts / 0.01), 0xFFFF)
        return False
