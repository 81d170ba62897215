"""Position receivers. See the package."""

from typing import Final


class DWM1001:
    """Decawave DWM1001 shell at 115200 baud, `lep` output, one line a position."""

    PREFIX: Final = "POS"
    ENTER: Final = b"\r\r"  # two returns switch the serial port from generic to shell mode
    TOGGLE_POSITION_LINES: Final = b"lep\r"
    QUALITY_MAX: Final = 100


class MOCAP:
    """The line of this project's bridge from a motion capture system. See hardware/mocap.py."""

    PREFIX: Final = "MC"
    FIELDS: Final = 6  # after the prefix: sequence, age, north, east, down, yaw

    @staticmethod
    def checksum(body: str) -> str:
        value = 0
        for byte in body.encode("ascii"):
            value ^= byte
        return f"{value:02X}"


class GNSS:
    """What a receiver for civil use can say: "CoCom", 18 km and 1000 knots; no land is as low."""

    MIN_ALTITUDE_M: Final = -500.0
    MAX_ALTITUDE_M: Final = 18000.0
    MAX_SPEED_MPS: Final = 515.0


class NMEA:
    """NMEA 0183 framing."""

    # The standard has 82 characters from $ to the line feed. A u-blox F9P in its high-precision
    # mode and SkyTraq's RTK receivers send 99.
    MAX_LENGTH: Final = 128
    FIXES: Final = (1, 2, 3, 4, 5)  # of a GGA: alone, differential, PPS, RTK, float RTK
    QUALITIES: Final = {0: "none", 6: "dead reckoning", 7: "set by hand", 8: "simulated"}  # no fix
    FIX_MODES: Final = "ADPRF"  # of a GNS: the same, a letter a constellation
    NO_FIX_MODES: Final = "EMNS"  # of an RMC from NMEA 2.3 on


class UBX:
    """u-blox UBX framing and messages, UBX-13003221 (M8) and UBX-21035062 (M10)."""

    SYNC: Final = b"\xb5\x62"  # then class, id, u16 little-endian length, payload, checksum
    MAX_LENGTH: Final = 1024  # of a payload; longer ones are not asked for
    NAV_PVT: Final = (0x01, 0x07)
    NAV_PVT_LENGTH: Final = 92
    NAV_PVT_LENGTH_7: Final = 84  # of a u-blox 7: the same without headVeh, magDec and magAcc
    FIX_3D: Final = 3
    FIX_WITH_DEAD_RECKONING: Final = 4
    GNSS_FIX_OK: Final = 0x01  # of flags
    INVALID_LLH: Final = 0x01  # of flags3
    ACK_NAK: Final = (0x05, 0x00)
    ACK_ACK: Final = (0x05, 0x01)
    CFG_MSG: Final = (0x06, 0x01)  # class, id, rate on this port
    CFG_RATE: Final = (0x06, 0x08)  # u16 ms, u16 measurements a solution, u16 time of 1: GPS
    CFG_VALSET: Final = (0x06, 0x8A)  # from M9 on; M10 knows nothing else
    LAYER_RAM: Final = 0x01
    KEY_RATE_MEAS: Final = 0x30210001  # u16 ms
    KEY_NAV_PVT_UART1: Final = 0x20910007  # u8 rate
    KEY_UART1_NMEA: Final = 0x10740002  # bool
    MON_VER: Final = (0x0A, 0x04)
    HARDWARE_AT: Final = 30  # in its answer: ten characters behind the software's version
    HARDWARE_LENGTH: Final = 8
    HARDWARE_OF_7: Final = b"00070000"  # "00040007" is a u-blox 6, which has no NAV-PVT
    NMEA_CLASS: Final = 0xF0
    NMEA_IDS: Final = range(6)  # GGA, GLL, GSA, GSV, RMC, VTG: on after power-on
