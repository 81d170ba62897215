"""Signatures of the links: who has the key, and that each message is taken once.

A message is judged by the broker's clock, as a task is, and never by what another station's clock
says. One that is too old is refused, and one that was accepted before. One of a time to come is
taken: many a Pi has no clock of its own and is behind. A stop passes, too, if it is as fresh as
the ship's other roads ask: see `FRESH_S` in blimp/queue/protocol/signing.py.
"""

import hashlib
import hmac
import os
from collections.abc import Callable
from pathlib import Path

from blimp.config import check_private
from blimp.errors import ConfigError
from ground_station.mavlink.frames import SIGNATURE_BYTES, Frame
from ground_station.mavlink.stamps import Stamps

MAX_KEY_BYTES = 1024
OLD_S = 60.0  # a minute, as the signatures' definition says: https://mavlink.io/en/guide/message_signing.html
MOST_STOPS = 4096  # that are known one by one
_TICKS_PER_S = 100_000  # of a signature's time
_EPOCH_S = 1420070400  # 2015-01-01, from which a signature's time counts
_MOST = 2**48 - 1

INVALID = "a message without a valid signature is refused"
USED = "a message that was taken before, or may have been, is refused"


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
    """The key of a process, and what was accepted with it; one for all links. Close is idempotent.

    unix_s: the broker's time. directory: outlives the process. ship: whose process it is.
    """

    def __init__(
        self, key: bytes, *, unix_s: Callable[[], float], directory: Path, ship: str
    ) -> None:
        self.key = key
        self._unix_s = unix_s
        self._began = self.now()
        self._stamps = Stamps.of_key(key, directory=directory, ship=ship, began=self._began)
        self._stops: dict[bytes, None] = {}

    def close(self) -> None:
        self._stamps.close()

    def now(self) -> int:
        """Return the time of a signature that is made now."""
        return min(_MOST, max(0, int((self._unix_s() - _EPOCH_S) * _TICKS_PER_S)))

    def refusal(self, frame: Frame) -> str:
        """Return why a frame is not accepted, "" if it is, which it is once."""
        if not frame.is_signed:
            return INVALID
        signed, signature = frame.data[:-6], frame.data[-6:]
        if not hmac.compare_digest(hashlib.sha256(self.key + signed).digest()[:6], signature):
            return INVALID
        stamp = frame.data[-SIGNATURE_BYTES:]
        stream, at = (stamp[0], frame.system, frame.component), int.from_bytes(stamp[1:7], "little")
        if stamp in self._stops or self._stamps.has(stream, at):
            return USED
        why, age = "", self.now() - at
        if self._stamps.is_below(stream, at):
            why = USED
        elif age > OLD_S * _TICKS_PER_S:
            why = (
                f"station {frame.system}: a message that was signed over {OLD_S:g} s ago by the "
                "ship's clock is refused: set the station's"
            )
        is_fresh = abs(age) <= OLD_S * _TICKS_PER_S and at >= self._began
        if why and not (frame.is_stop and is_fresh):
            return why
        if frame.is_stop:
            self._stops[stamp] = None
            if len(self._stops) > MOST_STOPS:
                del self._stops[next(iter(self._stops))]
        self._stamps.add(stream, at)
        return ""
