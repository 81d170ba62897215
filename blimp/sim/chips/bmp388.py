"""Bosch BMP388 and BMP390 barometers. Sources: BST-BMP388-DS001 rev 1.7, BST-BMP390-DS002.

The chip carries the calibration of a real part, published with a reading of it in the tests
of the bmp3xx library for Elixir; the data sheet has no worked example. Raw readings are found
by solving the formulas of section 8 (in the fixed-point form of Bosch's own sources, without
its rounding) for the true temperature and pressure: this file knows no driver.
"""

import struct

from blimp.hardware.registers.barometers import BMP388
from blimp.sim.chips.barometer import Barometer, quantise, solve
from blimp.sim.chips.chip import Fitting

CALIBRATION = bytes.fromhex("236B5849F65CFFCEF42300EA636E79F3F6AA4312C4")
_COEFFICIENTS: tuple[int, ...] = struct.unpack("<HHbhhbbHHbbhbb", CALIBRATION)
_T1, _T2, _T3, _P1, _P2, _P3, _P4, _P5, _P6, _P7, _P8, _P9, _P10, _P11 = _COEFFICIENTS
_NOISE_PA = (2.4, 1.8, 1.3, 1.0, 0.7, 0.5)  # rms by osr_p, filter off: BMP390 table 10
_NOISE_C = 0.005
_COUNTS_PER_C = 60_000.0  # of this part, about
_TOP = float((1 << 24) - 2)
_WRITABLE = frozenset((*range(0x15, 0x1A), 0x1A, 0x1B, 0x1C, 0x1D, 0x1F))
_WRONG_ID = 0x58  # a BMP280


class Bmp388(Barometer):
    """A conversion every output period in normal mode, made when somebody reads."""

    IDENTITY = BMP388.CHIP_ID_BMP388
    OFFSET_PA = 50.0  # absolute accuracy ±50 Pa, table 2
    OFFSET_C = 0.5

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._memory = bytearray(128)
        self._pointer = 0
        self._reset()

    def _reset(self) -> None:
        memory = self._memory
        memory[:] = bytes(128)
        memory[BMP388.CALIB : BMP388.CALIB + len(CALIBRATION)] = CALIBRATION
        memory[BMP388.STATUS] = BMP388.STATUS_CMD_RDY
        memory[BMP388.EVENT] = BMP388.EVENT_POR_DETECTED
        memory[BMP388.OSR] = BMP388.OSR_RESET
        self._store_raw(BMP388.DATA_RESET, BMP388.DATA_RESET)
        self._filtered = self._last = None
        self._restart()

    def _restart(self) -> None:
        self._started_s = self.timeline.now_s
        self._done = 0

    def write(self, data: bytes) -> None:
        self._pointer = data[0]
        for register, value in zip(data[::2], data[1::2], strict=False):
            if register == BMP388.CMD and value == BMP388.CMD_SOFTRESET:
                self._reset()
            elif register in _WRITABLE:
                self._convert()
                self._memory[register] = value
                self._restart()

    def read(self, length: int) -> bytes:
        self._convert()
        memory = self._memory
        memory[BMP388.CHIP_ID] = _WRONG_ID if self.faults.wrong_identity else self.IDENTITY
        start, end = self._pointer, self._pointer + length
        data = bytes(memory[start:end])
        if start <= BMP388.DATA_0 < end:
            memory[BMP388.STATUS] &= ~BMP388.STATUS_DRDY_PRESS
        if start <= BMP388.DATA_0 + 3 < end:
            memory[BMP388.STATUS] &= ~BMP388.STATUS_DRDY_TEMP
        if start <= BMP388.EVENT < end:
            memory[BMP388.EVENT] = 0  # cleared by reading
        self._pointer = end & 0x7F
        return data + bytes(length - len(data))

    def _measurement_s(self) -> float:
        """Time of one conversion, section 3.9.2."""
        osr = self._memory[BMP388.OSR]
        power = self._memory[BMP388.PWR_CTRL]
        micros = 234
        if power & BMP388.PRESS_EN:
            micros += 392 + (2020 << (osr & 7))
        if power & BMP388.TEMP_EN:
            micros += 163 + (2020 << (osr >> BMP388.OSR_T_SHIFT & 7))
        return micros * 1e-6

    def _convert(self) -> None:
        """Make the conversions that have ended since the last call."""
        memory = self._memory
        power = memory[BMP388.PWR_CTRL]
        mode = power & BMP388.MODE_MASK
        if mode == BMP388.MODE_SLEEP or self.faults.frozen:
            return
        measuring_s = self._measurement_s()
        elapsed_s = self.timeline.now_s - self._started_s
        if mode == BMP388.MODE_NORMAL:
            period_s = 0.005 * (1 << min(memory[BMP388.ODR] & 0x1F, 17))
            if measuring_s > period_s:
                memory[BMP388.ERR_REG] |= BMP388.ERR_CONF
                return
            done = int((elapsed_s + period_s - measuring_s) / period_s)
        else:
            done = 1 if elapsed_s >= measuring_s else 0
        memory[BMP388.ERR_REG] &= ~BMP388.ERR_CONF
        fresh = done - self._done
        if fresh <= 0:
            return
        self._done = done
        self._sample(fresh)
        if mode != BMP388.MODE_NORMAL:
            memory[BMP388.PWR_CTRL] &= ~BMP388.MODE_MASK & 0xFF

    def _sample(self, fresh: int) -> None:
        memory = self._memory
        osr = memory[BMP388.OSR]
        coefficient = 1 << (memory[BMP388.CONFIG] >> BMP388.IIR_SHIFT & 7)
        celsius, pascal = self._felt()
        guess_t, guess_p = self._last or (8.8e6, 7.2e6)
        raw_t, _ = solve(temperature, celsius, guess_t, top=_TOP)
        raw_p, slope = solve(lambda raw: pressure(raw, celsius), pascal, guess_p, top=_TOP)
        sigma_p = _NOISE_PA[min(osr & 7, 5)] / abs(slope)
        filtered = self._feed(
            (raw_t, raw_p),
            fresh=fresh,
            coefficient=coefficient,
            sigma=(_NOISE_C * _COUNTS_PER_C, sigma_p),
        )
        # Section 3.4.1: 16 bits, one more for each doubling, all of them with the filter.
        bits_p = 24 if coefficient > 1 else 16 + (osr & 7)
        bits_t = 24 if coefficient > 1 else 16 + (osr >> BMP388.OSR_T_SHIFT & 7)
        self._store_raw(quantise(filtered[1], bits_p, of=24), quantise(filtered[0], bits_t, of=24))
        memory[BMP388.STATUS] |= BMP388.STATUS_DRDY_PRESS | BMP388.STATUS_DRDY_TEMP

    def _store_raw(self, raw_p: int, raw_t: int) -> None:
        at = BMP388.DATA_0
        self._memory[at : at + 6] = raw_p.to_bytes(3, "little") + raw_t.to_bytes(3, "little")


class Bmp390(Bmp388):
    IDENTITY = BMP388.CHIP_ID_BMP390


def temperature(raw: float) -> float:
    """Return °C: t_lin of the fixed-point form is 65536 a degree."""
    d = raw - 256 * _T1
    t_lin = (d * _T2 * 2**18 + d * d * _T3) / 2**32
    return t_lin / 2**16


def pressure(raw: float, celsius: float) -> float:
    """Return Pa, in the steps of the fixed-point form."""
    t = celsius * 2**16
    t2 = t * t / 2**6
    t3 = t2 * t / 2**8
    offset = _P5 * 2**47 + _P8 * t3 / 2**5 + _P7 * t * t * 2**4 + _P6 * t * 2**22
    sensitivity = (
        (_P1 - 2**14) * 2**46 + _P4 * t3 / 2**5 + _P3 * t * t * 4 + (_P2 - 2**14) * t * 2**21
    )
    linear = sensitivity / 2**24 * raw
    square = (_P10 * t + 2**16 * _P9) * raw / 2**13 * raw / 2**9
    cube = _P11 * raw * raw / 2**16 * raw / 2**7
    return (offset / 4 + linear + square + cube) * 25 / 2**40 / 100
