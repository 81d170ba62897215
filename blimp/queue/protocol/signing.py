"""Signed messages: HMAC-SHA256 over the body and the headers that decide what it does.

Delivery counts, and what is only for people, may change on the way and are not signed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from blimp.errors import ConfigError, MessageError
from blimp.queue.protocol.message import AGAIN, to_json

HEADER = "blimp_signature"
LEAST_BYTES = 16

_SIGNED = (
    "task", "id", "retries", "eta", "expires", "group", "root_id", "parent_id", "timelimit",
    "ignore_result",
)  # fmt: skip
_UNSIGNED = (HEADER, "blimp_delivery", AGAIN)

Key = str | bytes


class Signer:
    """Signs with the first key, accepts any of them: a new one goes in front, the old stays.

    Keys never appear in texts. Raises ConfigError for a key that is too short.
    """

    def __init__(self, keys: Key | Sequence[Key]) -> None:
        several = (keys,) if isinstance(keys, str | bytes) else tuple(keys)
        self._keys = tuple(key.encode() if isinstance(key, str) else key for key in several)
        if not self._keys:
            raise ConfigError("signing_key: must be a key, or several")
        for key in self._keys:
            if len(key) < LEAST_BYTES:
                raise ConfigError(f"signing_key: {len(key)} bytes, must be {LEAST_BYTES} or more")

    def sign(self, headers: Mapping[str, Any], body: bytes, *, queue: str) -> str:
        """Return the signature of a message to `queue`."""
        return _mac(self._keys[0], _signed_parts(headers, queue), body)

    def check(self, headers: Mapping[str, Any], body: bytes, *, queue: str) -> None:
        """Raise MessageError if `headers` hold no signature by one of the keys."""
        given = headers.get(HEADER)
        if given is None:
            raise MessageError(f"header {HEADER!r} is missing: only signed messages are accepted")
        try:
            parts = _signed_parts(headers, queue)
        except (TypeError, ValueError, RecursionError) as error:
            raise MessageError(f"headers cannot be checked: {error}") from None
        self._compare(given, parts, body, what=f"header {HEADER!r}")

    def sign_document(self, document: Mapping[str, Any], *, place: str) -> str:
        """Return the signature of a broadcast on the exchange `place`."""
        return _mac(self._keys[0], _document_parts(document, place), b"")

    def check_document(self, document: Mapping[str, Any], given: str, *, place: str) -> None:
        """Raise MessageError if `given` is no signature by one of the keys."""
        if not given:
            raise MessageError("signature is missing: only signed broadcasts are accepted")
        self._compare(given, _document_parts(document, place), b"", what="signature")

    def _compare(self, given: object, parts: bytes, body: bytes, *, what: str) -> None:
        if not isinstance(given, str) or not any(
            hmac.compare_digest(_mac(key, parts, body).encode(), given.encode(errors="replace"))
            for key in self._keys
        ):
            raise MessageError(f"{what} is wrong: altered on its way, or signed with another key")

    def __repr__(self) -> str:
        return f"Signer({len(self._keys)} keys)"


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
    return json.dumps([place, named], sort_keys=True, separators=(",", ":")).encode()
