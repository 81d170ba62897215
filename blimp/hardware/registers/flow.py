"""Optical flow sensors. See the package."""

from typing import Final


class PMW3901:
    """PixArt PMW3901MB, data sheet version 1.3. SPI mode 3; bit 7 of a register is write."""

    MODE: Final = 3
    SPEED_HZ: Final = 2_000_000
    READ_PAUSE_S: Final = 35e-6  # tSRAD, from address to data
    WRITE: Final = 0x80
    PRODUCT_ID: Final = 0x00
    CHIP_ID: Final = 0x49
    INVERSE_PRODUCT_ID: Final = 0x5F
    INVERSE_CHIP_ID: Final = 0xB6
    MOTION: Final = 0x02
    MOT: Final = 0x80  # of MOTION: there was motion since the last read
    # Motion, observation, x and y as i16 little-endian, surface quality, sum, greatest and least
    # of the raw data, shutter big-endian.
    MOTION_BURST: Final = 0x16
    BURST_LENGTH: Final = 12
    POWER_UP_RESET: Final = 0x3A
    RESET_WORD: Final = 0x5A
    BANK: Final = 0x7F
    RESET_S: Final = 0.05
    SQUAL_MIN: Final = 0x19  # below, with the shutter fully open, the motion means nothing
    SHUTTER_OPEN: Final = 0x1F  # of its upper byte
    MAX_RADPS: Final = 7.4
