"""Barometers. See the package."""

from typing import Final


class BMP280:
    """Bosch BMP280, BST-BMP280-DS001 section 4: memory map. Reads auto-increment."""

    CALIB00: Final = 0x88  # T1 u16, T2 T3 i16, P1 u16, P2..P9 i16, all little-endian
    CALIB_LENGTH: Final = 24
    ID: Final = 0xD0
    CHIP_ID: Final = 0x58
    SAMPLES: Final = (0x56, 0x57)  # of the first series, the same but for this
    CHIP_ID_BME280: Final = 0x60  # the same with humidity, which stays off after a reset
    RESET: Final = 0xE0
    RESET_WORD: Final = 0xB6  # any other value has no effect; RESET reads back 0x00
    STATUS: Final = 0xF3
    STATUS_MEASURING: Final = 0x08
    STATUS_IM_UPDATE: Final = 0x01  # calibration is being copied from non-volatile memory
    CTRL_MEAS: Final = 0xF4  # osrs_t 7..5, osrs_p 4..2, mode 1..0
    CTRL_MEAS_RESET: Final = 0x00
    OSRS_T_SHIFT: Final = 5
    OSRS_P_SHIFT: Final = 2
    OSRS_SKIPPED: Final = 0  # the reading is then 0x80000
    OSRS_X1: Final = 1
    OSRS_X2: Final = 2
    OSRS_X4: Final = 3
    OSRS_X8: Final = 4
    OSRS_X16: Final = 5
    MODE_MASK: Final = 0x03
    MODE_SLEEP: Final = 0x00
    MODE_FORCED: Final = 0x01
    MODE_NORMAL: Final = 0x03
    CONFIG: Final = 0xF5  # t_sb 7..5, filter 4..2, spi3w_en 0; writes may be lost in normal mode
    CONFIG_RESET: Final = 0x00
    T_SB_SHIFT: Final = 5
    T_SB_0_5_MS: Final = 0
    T_SB_62_5_MS: Final = 1
    FILTER_SHIFT: Final = 2
    FILTER_OFF: Final = 0
    FILTER_2: Final = 1
    FILTER_4: Final = 2
    FILTER_8: Final = 3
    FILTER_16: Final = 4
    PRESS_MSB: Final = 0xF7  # msb, lsb, xlsb(7..4): 20 bits, then the same for temperature
    TEMP_MSB: Final = 0xFA
    DATA_LENGTH: Final = 6
    DATA_RESET: Final = 0x80000  # both readings before the first conversion
    START_UP_S: Final = 0.002  # from power-on or reset to the first communication


class BMP388:
    """Bosch BMP388 and BMP390, BST-BMP388-DS001 and BST-BMP390-DS002 section 4.

    Reads auto-increment; a write of several bytes is pairs of register and value (5.2.1).
    """

    CHIP_ID: Final = 0x00
    CHIP_ID_BMP388: Final = 0x50
    CHIP_ID_BMP390: Final = 0x60
    ERR_REG: Final = 0x02  # STATUS and the data follow
    ERR_FATAL: Final = 0x01
    ERR_CMD: Final = 0x02
    ERR_CONF: Final = 0x04  # this output rate has no time for this oversampling
    STATUS: Final = 0x03
    STATUS_CMD_RDY: Final = 0x10
    STATUS_DRDY_PRESS: Final = 0x20  # cleared when the data are read
    STATUS_DRDY_TEMP: Final = 0x40
    DATA_0: Final = 0x04  # u24 little-endian pressure, then the same for temperature
    DATA_LENGTH: Final = 6
    DATA_RESET: Final = 0x800000
    EVENT: Final = 0x10
    EVENT_POR_DETECTED: Final = 0x01
    PWR_CTRL: Final = 0x1B
    PRESS_EN: Final = 0x01
    TEMP_EN: Final = 0x02
    MODE_MASK: Final = 0x30
    MODE_SLEEP: Final = 0x00
    MODE_FORCED: Final = 0x10
    MODE_NORMAL: Final = 0x30
    OSR: Final = 0x1C  # osr_t 5..3, osr_p 2..0: 2^n samples
    OSR_RESET: Final = 0x02
    OSR_T_SHIFT: Final = 3
    OSR_X1: Final = 0
    OSR_X8: Final = 3
    ODR: Final = 0x1D  # 200 Hz / 2^n
    ODR_50_HZ: Final = 2
    CONFIG: Final = 0x1F  # iir_filter 3..1: coefficient 2^n - 1
    IIR_SHIFT: Final = 1
    IIR_3: Final = 2
    CALIB: Final = 0x31  # T1 T2 u16, T3 i8, P1 P2 i16, P3 P4 i8, P5 P6 u16, P7 P8 i8, P9 i16,
    CALIB_LENGTH: Final = 21  # P10 P11 i8, all little-endian and packed
    CMD: Final = 0x7E
    CMD_SOFTRESET: Final = 0xB6
    START_UP_S: Final = 0.002  # table 3, after power-on or reset


class MS5611:
    """TE Connectivity MS5611-01BA03: commands instead of registers, answers big-endian."""

    RESET: Final = 0x1E
    CONVERT_D1: Final = 0x40  # pressure; plus 2 for each doubling of the oversampling
    CONVERT_D2: Final = 0x50  # temperature
    OSR_4096: Final = 0x08
    ADC_READ: Final = 0x00  # u24; 0 before the conversion ends and after it was read
    PROM: Final = 0xA0  # eight words of 16 bits, two a word: reserved, C1 to C6, serial and CRC
    PROM_WORDS: Final = 8
    RELOAD_S: Final = 0.0028  # after RESET
    CONVERSION_S: Final = 0.00904  # at most, at OSR 4096
