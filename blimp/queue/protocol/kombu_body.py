"""What kombu does to a body: typed values in JSON, and compression.

JSON has no word for datetime, date, time, UUID, Decimal and bytes. kombu writes them as
`{"__type__": NAME, "__value__": VALUE}`; a Celery program reads them back as what they were.
Unlike kombu's reader, this one calls only the decoders below, and refuses an unknown name or
a value of the wrong type. Unlike kombu's decompression, this one has a limit.

Source: kombu 5.7 `utils/json.py`, `compression.py`.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import msgspec

from blimp.errors import MessageError
from blimp.nesting import shallow
from blimp.queue.protocol.annotated import to_builtins

MARK = b"__type__"
_KEYS = {"__type__", "__value__"}


def encode_value(value: object) -> Any:
    """Return `value` as JSON can hold it. Raises TypeError for a type that has no form there.

    The hook of the strict encoder: it is called only for what JSON cannot hold.
    """
    written: object
    match value:
        case datetime():  # before date: a datetime is one
            name, written = "datetime", value.isoformat()
        case date():
            name, written = "date", value.isoformat()
        case time():
            name, written = "time", value.isoformat()
        case Decimal():
            name, written = "decimal", str(value)
        case UUID():
            name, written = "uuid", {"hex": value.hex}
        case bytes():
            try:
                name, written = "bytes", value.decode()
            except UnicodeDecodeError:
                name, written = "base64", base64.b64encode(value).decode()
        case _:
            return to_builtins(value)
    return {"__type__": name, "__value__": written}


def from_json(data: bytes) -> Any:
    """Return what `data` holds. Raises ValueError or RecursionError if it cannot be read."""
    value = msgspec.json.decode(shallow(data))  # its errors are ValueErrors
    return decode_values(value) if MARK in data else value


def decode_values(value: Any) -> Any:
    """Return decoded JSON with every typed value in it as what it was. Raises ValueError."""
    if isinstance(value, list):
        return [decode_values(one) for one in value]
    if not isinstance(value, dict):
        return value
    value = {name: decode_values(one) for name, one in value.items()}
    if value.keys() != _KEYS:
        return value
    name, given = value["__type__"], value["__value__"]
    decode = _DECODERS.get(name) if isinstance(name, str) else None
    if decode is None:
        raise ValueError(f"__type__ {name!r:.40} must be one of {tuple(_DECODERS)}")
    try:
        return decode(given)
    except (TypeError, ValueError, AttributeError, KeyError, InvalidOperation) as error:
        raise ValueError(f"__value__ of a {name} is {given!r:.40}: {error!r:.80}") from None


def decompress(body: bytes, name: object, *, limit_bytes: int) -> bytes:
    """Return `body` without the compression that kombu calls `name`.

    Stops at `limit_bytes`: a body of 1 MB may be 1 GB when it is decompressed. Raises
    MessageError that names an unknown compression, a body of another kind, or the limit.
    """
    make = _DECOMPRESSORS.get(name) if isinstance(name, str) else None
    if make is None:
        raise MessageError(f"compression {name!r:.80}: only {tuple(_DECOMPRESSORS)} are accepted")
    decompressor = make()
    try:
        plain: bytes = decompressor.decompress(body, limit_bytes + 1)
    except (zlib.error, OSError, EOFError, ValueError) as error:
        raise MessageError(f"body is not {name!r}: {error}") from None
    if len(plain) > limit_bytes:
        raise MessageError(f"body of {len(body)} bytes as {name!r} is longer than {limit_bytes}")
    if not decompressor.eof or decompressor.unused_data:
        raise MessageError(f"body is not {name!r}: it is incomplete, or has extra data at its end")
    return plain


def _bzip2() -> Any:
    import bz2  # rarely used: not loaded with every program

    return bz2.BZ2Decompressor()


# kombu calls zlib's format application/x-gzip; other senders mean gzip. 47 reads both.
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "application/x-gzip": lambda: zlib.decompressobj(wbits=47),
    "application/x-bz2": _bzip2,
    "gzip": lambda: zlib.decompressobj(wbits=47),
    "zlib": lambda: zlib.decompressobj(wbits=47),
    "bzip2": _bzip2,
}
COMPRESSIONS = tuple(_DECOMPRESSORS)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": lambda text: datetime.fromisoformat(text).date(),
    "time": time.fromisoformat,
    "decimal": lambda text: Decimal(str.strip(text)),  # a TypeError for what is no text
    "uuid": lambda parts: UUID(hex=parts["hex"]),
    "bytes": str.encode,
    "base64": lambda text: base64.b64decode(text, validate=True),
}
