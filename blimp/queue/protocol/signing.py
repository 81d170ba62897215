"""Signed messages: HMAC-SHA256 over the body and the headers that decide what it does.

Delivery counts, and what is only for people, may change on the way and are not signed.

Each signed message has a seal that no other has: its signer, and a number. A retry is signed again
and has its own. What a broker delivers again is the same entry with the same seal, and is accepted;
the same seal in another entry is a copy.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blimp.errors import ConfigError, Copied, NotGenuine
from blimp.queue.protocol.message import AGAIN, LIFE, new_id, to_json

HEADER = "blimp_signature"
SEAL = "blimp_seal"
LEAST_BYTES = 16
FRESH_S = 30.0  # the age up to which a signed broadcast acts, and a command without a time to live
MOST_KEYS = 4  # whose signatures are looked at
MOST_SEALS = 20_000  # that one window remembers: 3 MB

_SIGNED = (
    "task", "id", "retries", "eta", "expires", "group", "group_index", "root_id", "parent_id",
    "timelimit", "ignore_result", "replaced_task_nesting", "compression",
)  # fmt: skip
_UNSIGNED = (HEADER, "blimp_delivery", AGAIN, LIFE)

Key = str | bytes


class Window:
    """The latest seals that were accepted, and the entries that they came in. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, str] = {}

    def admit(self, seal: str, entry: str = "") -> None:
        """Remember `seal`. Raises Copied if it came in another entry before, or in none."""
        with self._lock:
            known = self._entries.get(seal)
            if known is not None and (known != entry or not entry):
                raise Copied(f"a copy: number {seal.rpartition('-')[2]} of its signer was accepted")
            self._entries[seal] = entry
            if len(self._entries) > MOST_SEALS:
                del self._entries[next(iter(self._entries))]

    def forget(self, seal: object) -> None:
        """A person may send this one again: it is a dead letter now."""
        with self._lock:
            self._entries.pop(str(seal), None)


class Signer:
    """Signs with each key, accepts any of them: a new one goes in front, the old stays.

    So while keys rotate it does not matter which end has the new one first.
    Keys never appear in texts. Raises ConfigError for a key that is too short.
    """

    def __init__(self, keys: Key | Sequence[Key]) -> None:
        several = (keys,) if isinstance(keys, str | bytes) else tuple(keys)
        self._keys = tuple(key.encode() if isinstance(key, str) else key for key in several)
        if not self._keys:
            raise ConfigError("signing_key: must be one key or several keys")
        for key in self._keys:
            if len(key) < LEAST_BYTES:
                raise ConfigError(f"signing_key: {len(key)} bytes, must be {LEAST_BYTES} or more")
        self.window = Window()
        self._own = (0, "", itertools.count())  # process, issuer, its numbers

    def seal(self) -> str:
        """Return the seal of one more message; a fork is another signer."""
        own = self._own
        if own[0] != os.getpid():
            own = self._own = (os.getpid(), secrets.token_hex(8), itertools.count(1))
        return f"{own[1]}-{next(own[2])}"

    def sign(self, headers: Mapping[str, Any], body: bytes, *, queue: str) -> str:
        """Return the signature of a message to `queue`."""
        return self._sign(_signed_parts(headers, queue), body)

    def sign_again(self, headers: dict[str, Any], body: bytes, *, queue: str) -> None:
        """Sign a message that is sent again, as one of its own: both may arrive."""
        headers[SEAL] = self.seal()
        headers[HEADER] = self.sign(headers, body, queue=queue)

    def check(self, headers: Mapping[str, Any], body: bytes, *, queue: str) -> None:
        """Raise NotGenuine if `headers` hold no signature by one of the keys, or no seal."""
        given = headers.get(HEADER)
        if given is None:
            raise NotGenuine(f"header {HEADER!r} is missing: only signed messages are accepted")
        try:
            parts = _signed_parts(headers, queue)
        except (TypeError, ValueError, RecursionError) as error:
            raise NotGenuine(f"headers cannot be checked: {error}") from None
        self._compare(given, parts, body, what=f"header {HEADER!r}")
        if not isinstance(headers.get(SEAL), str):
            raise NotGenuine(f"header {SEAL!r} is missing: its sender is of an older version")

    def sign_document(self, document: Mapping[str, Any], *, place: str) -> str:
        """Return the signature of a broadcast on the exchange `place`."""
        return self._sign(_document_parts(document, place), b"")

    def check_document(self, document: Mapping[str, Any], given: str, *, place: str) -> None:
        """Raise NotGenuine if `given` is no signature by one of the keys."""
        if not given:
            raise NotGenuine("signature is missing: only signed broadcasts are accepted")
        self._compare(given, _document_parts(document, place), b"", what="signature")

    def append_to(self, data: bytes, *, place: str) -> bytes:
        """Return `data`, a JSON object or list, with a signature for `place` as its last member."""
        name = f'"{HEADER}":' if data.endswith(b"}") else ""
        signatures = self._sign(_place_parts(place), data)
        return data[:-1] + f',{name}"{signatures}"'.encode() + data[-1:]

    def check_appended(self, data: bytes, *, place: str) -> None:
        """Raise NotGenuine if `append_to` did not return `data` for `place`."""
        name = f',"{HEADER}":"' if data.endswith(b"}") else ',"'
        before, found, after = data.rpartition(name.encode())
        if not found:
            raise NotGenuine(f"{place}: it is not signed")
        given, what = after[:-2].decode(errors="replace"), f"{place}: its signature"
        self._compare(given, _place_parts(place), before + data[-1:], what=what)

    def _sign(self, parts: bytes, body: bytes) -> str:
        return " ".join(_mac(key, parts, body) for key in self._keys[:MOST_KEYS])

    def _compare(self, given: object, parts: bytes, body: bytes, *, what: str) -> None:
        several = given.split(" ", MOST_KEYS)[:MOST_KEYS] if isinstance(given, str) else ()
        if not any(
            hmac.compare_digest(_mac(key, parts, body).encode(), one.encode(errors="replace"))
            for one in several
            for key in self._keys
        ):
            raise NotGenuine(
                f"{what} is wrong: it was changed on its way, or signed with another key"
            )

    def __repr__(self) -> str:
        return f"Signer({len(self._keys)} keys)"


def sealed(
    document: dict[str, Any],
    signer: Signer | None,
    *,
    exchange: str,
    now_s: Callable[[], float],
) -> dict[str, Any]:
    """Return a broadcast that no other is equal to; signed with the time if there is a key.

    It may arrive by two roads: the seal tells a copy from a repetition.
    """
    if signer is None:
        return document | {"seal": new_id()}
    signed = document | {"seal": signer.seal(), "sent_s": now_s()}
    return signed | {"signature": signer.sign_document(signed, place=exchange)}


def _place_parts(place: str) -> bytes:
    return place.encode(errors="surrogatepass")


def _mac(key: bytes, parts: bytes, body: bytes) -> str:
    digest = hmac.new(key, parts, hashlib.sha256)
    digest.update(b"\0")
    digest.update(body)
    return digest.hexdigest()


def _signed_parts(headers: Mapping[str, Any], queue: str) -> bytes:
    ours = sorted(name for name in headers if name.startswith("blimp_") and name not in _UNSIGNED)
    return to_json([queue, [[name, headers.get(name)] for name in (*_SIGNED, *ours)]])


def _document_parts(document: Mapping[str, Any], place: str) -> bytes:
    import json

    named = {name: document.get(name) for name in ("id", "name", "payload")}
    named |= {name: document[name] for name in ("seal", "sent_s") if name in document}
    return json.dumps([place, named], sort_keys=True, separators=(",", ":")).encode()
