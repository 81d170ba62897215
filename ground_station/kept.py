"""This user's control of ships, remembered from one command line to the next.

One file for each ship and broker, which nobody else may read: the token gives command of the ship.
"""

import hashlib
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from blimp.errors import ConfigError
from blimp.files import write_atomically
from blimp.link.paths import make_directory
from blimp.reading import ready
from blimp.system import HAS_OWNERS

MAX_FILE_BYTES = 4096
FORGOTTEN_S = 86_400.0  # longer than any grant lasts, so the grant has ended


@ready
class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A grant of control: see `blimp.queue.resources.grant.Ticket`. ttl_s: as it was asked for."""

    pool: str
    resource: str
    token: int
    holder: str
    ttl_s: float


class KeptControl:
    """The file of one ship. state: the directory of this user's state."""

    def __init__(self, *, state: Path, broker: str, vehicle: str) -> None:
        self._directory = state.expanduser() / "control"
        key = hashlib.sha256(broker.encode()).hexdigest()[:16]  # it may hold a password
        self.path = self._directory / f"{vehicle}-{key}.json"

    def load(self) -> Kept | None:
        """Return the stored grant; None if there is none, it is unreadable, or other users can read
        it."""
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                if HAS_OWNERS and (
                    about.st_uid != os.getuid() or about.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
                ):
                    return None
                return msgspec.json.decode(file.read(MAX_FILE_BYTES), type=Kept)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def save(self, kept: Kept) -> None:
        """Write the file in one step. Raises ConfigError if it cannot be written."""
        make_directory(self._directory)
        try:
            self._clear()
            write_atomically(self.path, msgspec.json.encode(kept), mode=0o600)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error

    def forget(self) -> None:
        """Remove it, if possible: its grant has ended."""
        with suppress(OSError):
            self.path.unlink()

    def _clear(self) -> None:
        """Remove old files: every embedded broker has a name of its own."""
        for old in self._directory.iterdir():
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > FORGOTTEN_S:
                    old.unlink()
