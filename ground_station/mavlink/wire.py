"""Bytes and messages of MAVLink 2, by pymavlink: the one module that knows it.

pymavlink is untyped: a message is `Any`, with the fields of MAVLink's definition by their names.
"""

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from blimp.config import check_private
from blimp.distribution import needing
from blimp.errors import ConfigError

with needing("mavlink", "MAVLink needs"):
    from pymavlink.dialects.v20 import all as dialect

Message = Any
PROTOCOL_VERSION, _PROTOCOL_VERSION_CRC = 300, 217  # MAVLink's common.xml
AUTOPILOT = 1  # MAV_COMP_ID_AUTOPILOT1
_TICKS_PER_S = 1e5  # of a signature's time
_EPOCH_S = 1420070400  # 2015-01-01, from which a signature's time counts
MAX_KEY_BYTES = 1024


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


def read_key(path: Path) -> bytes:
    """Return the key of a passphrase, its SHA-256, as QGroundControl and MAVProxy have it.

    Raises ConfigError for a file that cannot be read, is empty, or is not for its owner alone.
    """
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            phrase = file.read(MAX_KEY_BYTES + 1).strip()
    except OSError as error:
        raise ConfigError(f"MAVLink key file {path}: {error}") from error
    check_private(about, f"MAVLink key file {path}", path)
    if not 8 <= len(phrase) <= MAX_KEY_BYTES:
        raise ConfigError(
            f"MAVLink key file {path}: a passphrase of {len(phrase)} bytes, "
            f"the limits are 8 to {MAX_KEY_BYTES}"
        )
    return hashlib.sha256(phrase).digest()


class Signing:
    """The key of a process and the times of the signatures that it accepted; one for all links.

    unix_s: the time now, which new signatures must not be older than by a minute.
    """

    def __init__(self, key: bytes, *, unix_s: float) -> None:
        self.state = dialect.MAVLinkSigning()
        self.state.secret_key = key
        self.state.sign_outgoing = True
        self.state.timestamp = int((unix_s - _EPOCH_S) * _TICKS_PER_S)


class Encoder:
    """Makes the bytes of one system's messages."""

    def __init__(self, *, system: int, signing: Signing | None = None) -> None:
        self.system = system
        self._mav = dialect.MAVLink(None, srcSystem=system, srcComponent=AUTOPILOT)
        if signing is not None:
            self._mav.signing = signing.state

    def pack(self, sent: Message) -> bytes:
        packed = bytes(sent.pack(self._mav))
        self._mav.seq = (self._mav.seq + 1) % 256
        return packed


class Decoder:
    """Finds the messages in what one peer sends. With a key, unsigned ones are none.

    refused: how many were dropped for their signature.
    """

    def __init__(self, *, signing: Signing | None = None, whole: bool) -> None:
        """whole: each call of `feed` has whole messages, as datagrams do."""
        self._mav = dialect.MAVLink(None)
        self._mav.robust_parsing = True
        self._whole = whole
        self._signing = signing
        if signing is not None:
            self._mav.signing = signing.state
        self.refused = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield each message; what is none, or not known, is passed over."""
        mav = self._mav
        mav.buf.extend(data)
        while True:
            # pymavlink notes the time of a signature before it checks it: without this, a forged
            # one with a time to come would shut the real station out.
            times = None if self._signing is None else dict(mav.signing.stream_timestamps)
            try:
                found = mav.parse_char(b"")
            except (dialect.MAVError, ValueError, TypeError, IndexError):
                continue  # the bytes of it are consumed
            if found is None:
                break
            kind = found.get_type()
            if kind == "BAD_DATA":
                if times is not None and found.reason == "Invalid signature":
                    mav.signing.stream_timestamps = times
                    self.refused += 1
            elif not kind.startswith("UNKNOWN"):
                yield found
        # pymavlink frees what it has read only when nothing is left: a stream that always ends
        # within a message would fill the memory.
        mav.buf = bytearray() if self._whole else mav.buf[mav.buf_index :]
        mav.buf_index = 0
