"""Bosch BMP280 and BME280 barometers. Sources: BST-BMP280-DS001 rev 1.14, BST-BME280-DS002.

The chip carries the calibration of the datasheet's worked example (section 3.12). The raw
readings are found by solving the compensation formulas of appendix 8.1 for the true
temperature and pressure: this file knows only the datasheet, never a driver.
"""

import struct

from blimp.hardware.registers.barometers import BMP280
from blimp.sim.chips.barometer import Barometer, quantise, solve
from blimp.sim.chips.chip import Fitting

_T = (27504, 26435, -1000)
_P = (36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000)
_CALIBRATION = struct.pack("<Hhh", *_T) + struct.pack("<Hhhhhhhhh", *_P)

_NOISE_PA = (0.0, 3.3, 2.6, 2.1, 1.6, 1.3)  # rms by osrs_p, IIR filter off: table 6, 25 °C
_NOISE_C = 0.005  # temperature resolution at x1, table 7
_SAMPLES = (0, 1, 2, 4, 8, 16, 16, 16)  # osrs code -> oversampling, section 3.3
_STANDBY_S = (0.0005, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)  # t_sb, table 11
_FILTER = (1, 2, 4, 8, 16, 16, 16, 16)  # IIR coefficient, section 3.3.3
_TOP = 1048574.0  # one below the largest raw value, for the slope
_WRONG_ID = 0x61  # a BME680: other registers, at the same addresses


class Bmp280(Barometer):
    """Conversions happen when they are read: each call works out how many the chip has made
    since the last one, and feeds them all through the IIR filter.
    """

    IDENTITY = BMP280.CHIP_ID
    OFFSET_PA = 100.0  # absolute accuracy ±1 hPa, table 2
    OFFSET_C = 0.5  # at 25 °C, table 2

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._memory = bytearray(256)
        self._pointer = 0
        self._reset()

    def _reset(self) -> None:
        memory = self._memory
        memory[:] = bytes(256)
        memory[BMP280.CALIB00 : BMP280.CALIB00 + len(_CALIBRATION)] = _CALIBRATION
        memory[BMP280.ID] = self.IDENTITY
        self._store_raw(BMP280.DATA_RESET, BMP280.DATA_RESET)
        self._up_s = self.timeline.now_s + BMP280.START_UP_S
        self._started_s = 0.0
        self._done = 0  # conversions since the mode was set
        self._filtered = self._last = None

    def write(self, data: bytes) -> None:
        # Section 5.2.1: a write of several bytes is pairs of register and value.
        self._pointer = data[0]
        for register, value in zip(data[::2], data[1::2], strict=False):
            self._store(register, value)

    def _store(self, register: int, value: int) -> None:
        memory = self._memory
        if register == BMP280.RESET:
            if value == BMP280.RESET_WORD:
                self._reset()
        elif register == BMP280.CTRL_MEAS:
            self._convert()
            memory[register] = value
            self._started_s = self.timeline.now_s
            self._done = 0
        elif register == BMP280.CONFIG and self._mode != BMP280.MODE_NORMAL:
            # Section 3.6.3: in normal mode a write to this register may be ignored; the
            # worse case is the one to be ready for.
            memory[register] = value & 0xFD
            self._filtered = None  # section 3.3.3: the next value passes unfiltered

    def read(self, length: int) -> bytes:
        # Section 3.10: a burst reads shadow registers, so one conversion, never two halves.
        self._convert()
        memory = self._memory
        memory[BMP280.STATUS] = self._status()
        memory[BMP280.ID] = _WRONG_ID if self.faults.wrong_identity else self.IDENTITY
        start = self._pointer
        data = bytes(memory[start : start + length])
        self._pointer = (start + length) & 0xFF
        return data + bytes(length - len(data))

    @property
    def _mode(self) -> int:
        return self._memory[BMP280.CTRL_MEAS] & BMP280.MODE_MASK

    def _measurement_s(self) -> float:
        """Typical time of one conversion, appendix 9.1."""
        control = self._memory[BMP280.CTRL_MEAS]
        t = _SAMPLES[control >> BMP280.OSRS_T_SHIFT]
        p = _SAMPLES[control >> BMP280.OSRS_P_SHIFT & 7]
        return 1e-3 * (1.0 + 2.0 * t + (2.0 * p + 0.5 if p else 0.0))

    def _status(self) -> int:
        now_s = self.timeline.now_s
        status = BMP280.STATUS_IM_UPDATE if now_s < self._up_s else 0
        if self._mode != BMP280.MODE_SLEEP:
            measuring_s = self._measurement_s()
            elapsed_s = now_s - self._started_s
            if self._mode == BMP280.MODE_NORMAL:
                elapsed_s %= measuring_s + self._standby_s()
            if elapsed_s < measuring_s:
                status |= BMP280.STATUS_MEASURING
        return status

    def _standby_s(self) -> float:
        return _STANDBY_S[self._memory[BMP280.CONFIG] >> BMP280.T_SB_SHIFT]

    def _convert(self) -> None:
        """Make the conversions that have ended since the last call."""
        mode = self._mode
        if mode == BMP280.MODE_SLEEP or self.faults.frozen:
            return
        elapsed_s = self.timeline.now_s - self._started_s
        measuring_s = self._measurement_s()
        if mode == BMP280.MODE_NORMAL:
            period_s = measuring_s + self._standby_s()
            done = int((elapsed_s + self._standby_s()) / period_s)
        else:
            done = 1 if elapsed_s >= measuring_s else 0
        fresh = done - self._done
        if fresh <= 0:
            return
        self._done = done
        self._sample(fresh)
        if mode != BMP280.MODE_NORMAL:  # section 3.6.2: a forced conversion ends in sleep
            self._memory[BMP280.CTRL_MEAS] &= ~BMP280.MODE_MASK & 0xFF

    def _sample(self, fresh: int) -> None:
        control = self._memory[BMP280.CTRL_MEAS]
        osrs_t = control >> BMP280.OSRS_T_SHIFT
        osrs_p = control >> BMP280.OSRS_P_SHIFT & 7
        coefficient = _FILTER[self._memory[BMP280.CONFIG] >> BMP280.FILTER_SHIFT & 7]
        raw_t, raw_p, counts_per_pa = self._truth_as_raw()
        sigma_p = _NOISE_PA[min(osrs_p, 5)] * counts_per_pa
        filtered = self._feed(
            (raw_t, raw_p),
            fresh=fresh,
            coefficient=coefficient,
            sigma=(_NOISE_C * 3200.0, sigma_p),
        )

        def bits(osrs: int) -> int:
            # Without the filter the resolution is 16 bits plus one for each doubling (3.3.1).
            return 20 if coefficient > 1 else min(15 + osrs, 20)

        self._store_raw(
            quantise(filtered[1], bits(osrs_p), of=20) if osrs_p else BMP280.DATA_RESET,
            quantise(filtered[0], bits(osrs_t), of=20) if osrs_t else BMP280.DATA_RESET,
        )

    def _truth_as_raw(self) -> tuple[float, float, float]:
        """Return raw temperature, raw pressure and the latter's counts for one pascal."""
        celsius, pascal = self._felt()
        guess_t, guess_p = self._last or (519888.0, 415148.0)
        raw_t, _ = solve(lambda raw: fine_temperature(raw) / 5120.0, celsius, guess_t, top=_TOP)
        t_fine = fine_temperature(raw_t)
        raw_p, slope = solve(lambda raw: pressure(raw, t_fine), pascal, guess_p, top=_TOP)
        return raw_t, raw_p, 1.0 / slope

    def _store_raw(self, raw_p: int, raw_t: int) -> None:
        self._memory[BMP280.PRESS_MSB : BMP280.PRESS_MSB + BMP280.DATA_LENGTH] = bytes(
            (
                raw_p >> 12,
                raw_p >> 4 & 0xFF,
                raw_p << 4 & 0xF0,
                raw_t >> 12,
                raw_t >> 4 & 0xFF,
                raw_t << 4 & 0xF0,
            )
        )


class Bme280(Bmp280):
    """The same with humidity, which is off until CTRL_HUM says otherwise and is not simulated."""

    IDENTITY = BMP280.CHIP_ID_BME280


def fine_temperature(raw: float) -> float:
    """Return t_fine of a raw temperature; 5120 a degree. Appendix 8.1."""
    t1, t2, t3 = _T
    return (raw / 16384.0 - t1 / 1024.0) * t2 + (raw / 131072.0 - t1 / 8192.0) ** 2 * t3


def pressure(raw: float, t_fine: float) -> float:
    """Return the pressure in Pa of a raw one at temperature `t_fine`. Appendix 8.1."""
    p1, p2, p3, p4, p5, p6, p7, p8, p9 = _P
    a = t_fine / 2.0 - 64000.0
    offset = (a * a * p6 / 32768.0 + a * p5 * 2.0) / 4.0 + p4 * 65536.0
    scale = (1.0 + (p3 * a * a / 524288.0 + p2 * a) / 524288.0 / 32768.0) * p1
    p = (1048576.0 - raw - offset / 4096.0) * 6250.0 / scale
    return p + (p9 * p * p / 2147483648.0 + p * p8 / 32768.0 + p7) / 16.0
