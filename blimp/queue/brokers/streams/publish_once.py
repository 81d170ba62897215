"""What tells a publish that is repeated from another one, though they look the same."""

from __future__ import annotations

import itertools
import os
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from blimp.queue.redis.keys import Keys

PROPERTY = "once"
DEFAULT_REMEMBER_S = 600.0
REMEMBERED = 64  # of each sender, as in publish.lua


class Stamp(msgspec.Struct, frozen=True):
    """One publish: its sender's key on the server, and its number there."""

    key: str = ""
    number: int = 0
    remember_ms: int = 0


NONE = Stamp()


class Stamps:
    """Stamps what one channel publishes. Thread-safe; a fork stamps as another sender.

    kombu prepares a message anew for each try, with the same properties: the stamp is put
    there by the first try, found there by the next, and never sent. `once`, given as a
    property, is a stamp of the caller's own: whoever publishes with the same text within
    `remember_s` publishes nothing.
    """

    def __init__(self, *, keys: Keys, remember_s: float) -> None:
        self._keys = keys
        self._remember_ms = int(remember_s * 1000)
        self._process = 0
        self._key = ""
        self._numbers = itertools.count(1)

    def stamp(self, properties: dict[str, Any]) -> None:
        """Have a stamp in `properties`, unless it has one or nothing is to be remembered."""
        if self._remember_ms > 0 and PROPERTY not in properties:
            properties[PROPERTY] = self.next()

    def next(self) -> Stamp:
        """Return the stamp of one more publish."""
        if self._process != os.getpid():
            self._key, self._process = self._keys.sender(uuid.uuid4().hex), os.getpid()
        return Stamp(self._key, next(self._numbers), self._remember_ms)

    def read(self, properties: dict[str, Any]) -> Stamp:
        """Return the stamp in `properties`. Raises ValueError for an `once` that is no text."""
        found = properties.get(PROPERTY, NONE)
        if isinstance(found, Stamp):
            return found
        if not isinstance(found, str) or not found:
            raise ValueError(f"once={found!r:.40}: must be a text, not empty")
        return Stamp(self._keys.published(found), 1, self._remember_ms)
