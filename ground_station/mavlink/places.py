"""Where links are, as a command line says it."""

import ipaddress
import re

import msgspec

from blimp.errors import ConfigError

BAUD = 57600  # of telemetry radios


class Place(msgspec.Struct, frozen=True):
    """Where a link is. kind: "udp", "tcp" or "serial". port: of a serial line its speed."""

    kind: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.host}:{self.port}"

    @property
    def is_of_this_machine(self) -> bool:
        """Whether only programs of this machine reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def network_place(text: str) -> Place:
    """Read "udp:HOST:PORT" or "tcp:HOST:PORT". Raises ConfigError."""
    match = re.fullmatch(r"(udp|tcp):(\[[0-9a-fA-F:.]+\]|[^:\[\]]+):([0-9]{1,5})", text)
    if match is None or int(match[3]) > 65535:
        raise ConfigError(
            f"MAVLink link {text[:60]!r}: must be udp:HOST:PORT or tcp:HOST:PORT, port 0 to 65535"
        )
    return Place(match[1], match[2].strip("[]"), int(match[3]))


def serial_place(text: str) -> Place:
    """Read "PATH" or "PATH:BAUD". Raises ConfigError."""
    path, _, baud = text.partition(":")
    if not path.startswith("/") or speed_of(baud or str(BAUD)) is None:
        raise ConfigError(
            f"MAVLink serial line {text[:60]!r}: must be /PATH:BAUD, "
            "with a speed that the system knows"
        )
    return Place("serial", path, int(baud or BAUD))


def speed_of(baud: str) -> int | None:
    """Return the system's number of a line's speed, None if it has none."""
    try:
        import termios
    except ImportError:
        raise ConfigError(
            "MAVLink serial line: not on this system; use udp: or tcp:, or Linux or macOS"
        ) from None
    speed: int | None = getattr(termios, f"B{baud}", None)
    return speed
