"""Bytes and messages of MAVLink 2, by pymavlink: the one module that knows it.

pymavlink is untyped: a message is `Any`, with the fields of MAVLink's definition by their names.
"""

import struct
from collections.abc import Callable
from typing import Any

from blimp.distribution import needing

with needing("mavlink", "MAVLink needs"):
    from pymavlink.dialects.v20 import all as dialect

Message = Any
PROTOCOL_VERSION, _PROTOCOL_VERSION_CRC = 300, 217  # MAVLink's common.xml
AUTOPILOT, CAMERA = 1, 100  # MAV_COMP_ID_AUTOPILOT1, MAV_COMP_ID_CAMERA


def message(name: str, **fields: object) -> Message:
    """Return the message of that name in MAVLink's definition: "heartbeat"."""
    return getattr(dialect, f"MAVLink_{name}_message")(**fields)


def number_of(name: str) -> int:
    """Return the number of a message: 0 for "heartbeat"."""
    return int(getattr(dialect, f"MAVLink_{name}_message").id)


def protocol_version() -> Message:
    """Return PROTOCOL_VERSION (300), which MAVLink's definition, and so pymavlink, has no more.

    QGroundControl until 4.4 takes a ship without it for one of MAVLink 1, which has no geofence
    and no rally points.
    """
    sent = dialect.MAVLink_message(PROTOCOL_VERSION, "PROTOCOL_VERSION")
    # version, the least, the largest; then the hashes of specification and library, 0 for none
    fields = struct.pack("<HHH16x", 200, 100, 200)
    sent.pack = lambda mav: sent._pack(mav, _PROTOCOL_VERSION_CRC, fields)
    return sent


def text_of(field: bytes | str) -> str:
    """Return a field of letters, up to its first NUL."""
    raw = field.encode("utf-8", "replace") if isinstance(field, str) else field
    return raw.split(b"\0")[0].decode("ascii", "replace")


def checksum(number: int, body: bytes) -> int | None:
    """Return the checksum of a frame's bytes behind its first; None for an unknown message."""
    kind = dialect.mavlink_map.get(number)
    return None if kind is None else int(dialect.x25crc(body + bytes((kind.crc_extra,))).crc)


def decoded(frame: bytes) -> Message | None:
    """Return the message of a frame with a right checksum; None if its fields are none."""
    try:
        return dialect.MAVLink(None).decode(bytearray(frame))
    except (dialect.MAVError, ValueError, TypeError, IndexError):
        return None


class Encoder:
    """Makes the bytes of one system's messages.

    key: signs them. now: the time of a signature; each has one of its own.
    """

    def __init__(
        self, *, system: int, key: bytes | None = None, now: Callable[[], int] = lambda: 0
    ) -> None:
        self.system = system
        self._now = now
        self._seq = {AUTOPILOT: 0, CAMERA: 0}  # stations count what is lost of each
        self._mav = dialect.MAVLink(None, srcSystem=system, srcComponent=AUTOPILOT)
        self._signing = self._mav.signing
        self._signing.secret_key, self._signing.sign_outgoing = key, key is not None

    def pack(self, sent: Message, component: int = AUTOPILOT) -> bytes:
        self._mav.srcComponent, self._mav.seq = component, self._seq[component]
        self._signing.timestamp = max(self._signing.timestamp, self._now())
        packed = bytes(sent.pack(self._mav))
        self._seq[component] = (self._mav.seq + 1) % 256
        return packed
