"""Barometers. See the package."""

from typing import Final


class BMP280:
    """Bosch BMP280, BST-BMP280-DS001 section 4: memory map. Reads auto-increment."""

    ADDRESSES: Final = (0x76, 0x77)  # SDO low, SDO high
    CALIB00: Final = 0x88  # T1 u16, T2 T3 i16, P1 u16, P2..P9 i16, all little-endian
    CALIB_LENGTH: Final = 24
    ID: Final = 0xD0
    CHIP_ID: Final = 0x58
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
