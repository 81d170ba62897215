"""Position receivers. See the package."""

from typing import Final


class DWM1001:
    """Decawave DWM1001 shell at 115200 baud, `lep` output, one line a position."""

    PREFIX: Final = "POS"
    ENTER: Final = b"\r\r"  # two returns switch the serial port from generic to shell mode
    TOGGLE_POSITION_LINES: Final = b"lep\r"
    QUALITY_MAX: Final = 100


class NMEA:
    """NMEA 0183 framing."""

    MAX_LINE: Final = 82  # characters from $ to the line feed, both counted
    START: Final = 0x24  # $
    CHECKSUM_MARK: Final = 0x2A  # *
