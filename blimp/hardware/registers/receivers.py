"""Receivers of a radio transmitter. See the package."""

from typing import Final


class CHANNELS:
    """What CRSF and SBUS share: 16 channels of 11 bits, the lowest bit of the first one first."""

    COUNT: Final = 16
    BITS: Final = 11
    BYTES: Final = 22
    # 172, 992 and 1811 stand for pulses of 988, 1500 and 2012 us: the ends and middle of a stick.
    LOW: Final = 172
    MIDDLE: Final = 992
    HIGH: Final = 1811


class CRSF:
    """TBS CRSF, as ExpressLRS and Crossfire send it: address, length, type, payload, CRC.

    The length counts type, payload and CRC. Numbers are big-endian, but the channels.
    """

    BAUD: Final = 420_000
    SYNC: Final = 0xC8  # a frame to or from a flight controller
    BROADCAST: Final = 0x00
    MIN_LENGTH: Final = 2
    MAX_LENGTH: Final = 62
    CRC_POLYNOMIAL: Final = 0xD5  # DVB-S2, from 0, over type and payload

    BATTERY: Final = 0x08  # uint16 0.1 V, uint16 0.1 A, uint24 mAh used, uint8 % left
    LINK_STATISTICS: Final = 0x14
    LINK_STATISTICS_BYTES: Final = 10
    UPLINK_QUALITY: Final = 2  # its place in the payload, percent
    RC_CHANNELS: Final = 0x16
    ATTITUDE: Final = 0x1E  # int16 pitch, roll, yaw, 0.0001 rad
    FLIGHT_MODE: Final = 0x21  # text, ended by a 0


class SBUS:
    """Futaba SBUS: 0x0F, 22 bytes of channels, flags, end. It has no checksum.

    100000 baud, 8 bits, even parity, 2 stop bits, inverted.
    """

    BAUD: Final = 100_000
    FRAMING: Final = "8E2"
    BYTES: Final = 25
    BEGIN: Final = 0x0F
    ENDS: Final = (0x00, 0x04, 0x14, 0x24, 0x34)  # SBUS; SBUS2 by its telemetry slot
    FLAGS: Final = 23
    FRAME_LOST: Final = 0x04  # this frame repeats the one before
    FAILSAFE: Final = 0x08
