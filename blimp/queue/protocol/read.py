"""Reading task messages: everything in one can be wrong, and is named with its limit.

Tested by test_message.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from blimp.errors import MessageError, NotGenuine
from blimp.nesting import shallow
from blimp.queue.protocol.embed import read_callbacks, read_chord
from blimp.queue.protocol.kombu_body import COMPRESSIONS, MARK, decompress, from_json
from blimp.queue.protocol.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    FAIR,
    MAX_LIMIT_S,
    MAX_MESSAGE_BYTES,
    MAX_NAME_LENGTH,
    MAX_NUMBER,
    NORMAL,
    VERSION,
    TaskMessage,
    epoch_s,
)
from blimp.reading import ready

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blimp.queue.protocol.signing import Signer

_Text = Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
_Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
_Count = Annotated[int, Meta(ge=0, lt=2**31)]
_Number = Annotated[float, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]
_Limit = Annotated[float, Meta(ge=0.0, le=MAX_LIMIT_S)]
_Embed = dict[str, Any] | None
_Body = tuple[list[Any], dict[str, Any], _Embed]
_decode_body = msgspec.json.Decoder(_Body).decode


@ready
class _Headers(msgspec.Struct):
    """The headers that a worker reads."""

    id: _Name
    task: _Name
    retries: _Count | None = None
    eta: _Text | None = None
    expires: _Text | None = None
    root_id: _Text | None = None
    parent_id: _Text | None = None
    group: _Text | None = None
    group_index: _Count | None = None
    origin: _Text | None = None
    ignore_result: bool | None = None
    timelimit: tuple[_Limit | None, _Limit | None] | None = None
    replaced_task_nesting: _Count | None = None
    stamps: dict[str, Any] | None = None
    compression: str | None = None
    blimp_version: _Count = 0
    blimp_issued_ms: _Number | None = None
    blimp_ttl_s: Annotated[float, Meta(gt=0.0, le=MAX_NUMBER)] | None = None
    blimp_delivery: _Number | None = None
    blimp_life: _Count | None = None
    blimp_coalesce: _Text | None = None
    blimp_fair: _Text | None = None
    blimp_number: Annotated[int, Meta(ge=0, lt=2**53)] | None = None


_NAMES = ("id", "task", "root_id", "parent_id", "group", "origin", "blimp_coalesce", FAIR)


def parse_message(
    *,
    headers: Mapping[str, Any],
    body: bytes | str,
    content_type: str | None,
    content_encoding: str | None,
    queue: str,
    priority: object = None,
    limit_bytes: int = MAX_MESSAGE_BYTES,
    signer: Signer | None = None,
) -> TaskMessage:
    """Return the task that a delivered message asks for.

    signer: accepts only what one of its keys has signed. Raises NotGenuine for all else.
    Raises MessageError that says what is wrong, where, and the limit.
    """
    wrong = MessageError if signer is None else NotGenuine  # until its signature is checked
    if content_type != CONTENT_TYPE:
        raise wrong(f"content type {content_type!r}: only {CONTENT_TYPE!r} is accepted")
    compression = headers.get("compression")
    if compression is None and content_encoding in COMPRESSIONS:
        compression, content_encoding = content_encoding, None
    if content_encoding != CONTENT_ENCODING and str(
        content_encoding or CONTENT_ENCODING
    ).lower() not in ("utf-8", "utf8"):
        raise wrong(f"content encoding {content_encoding!r}: only 'utf-8' is accepted")
    raw = body.encode() if isinstance(body, str) else bytes(body)  # no copy of what is bytes
    if len(raw) > limit_bytes:
        raise wrong(f"body of {len(raw)} bytes: the limit is {limit_bytes}")
    if signer is not None:
        signer.check(headers, raw, queue=queue)
    if compression is not None:
        raw = decompress(raw, compression, limit_bytes=limit_bytes)
    known = _read_headers(headers)
    args, kwargs, embed = _read_body(raw)
    before = int(known.blimp_delivery or 0)
    if before < 1 and headers.get("redelivered"):
        before = 1  # given back by kombu itself, which keeps no count
    # Only what is there: each field that is given costs as much as reading a short header.
    fields = _followers(embed, known) if embed and any(embed.values()) else {}
    if known.eta is not None:
        fields["eta_s"] = _from_iso(known.eta, "eta")
    if known.expires is not None:
        fields["expires_s"] = _from_iso(known.expires, "expires")
    if known.blimp_issued_ms is not None:
        fields["issued_ms"] = int(known.blimp_issued_ms)
        fields["ttl_s"] = known.blimp_ttl_s
    if known.blimp_coalesce:
        fields["coalesce"] = known.blimp_coalesce
        fields["coalesce_number"] = known.blimp_number or 0
    if known.group or known.group_index is not None:
        fields["group_id"], fields["group_index"] = known.group or None, known.group_index
    if known.replaced_task_nesting or known.stamps:
        fields["nesting"] = known.replaced_task_nesting or 0
        fields["stamps"] = known.stamps or {}
    return TaskMessage(
        id=known.id,
        task=known.task,
        args=tuple(args),
        kwargs=kwargs,
        queue=queue,
        priority=priority if isinstance(priority, int) else NORMAL,
        retries=known.retries or 0,
        delivery=before + 1,
        ignore_result=known.ignore_result,
        root_id=known.root_id or None,
        parent_id=known.parent_id or None,
        timelimit=known.timelimit or (None, None),
        origin=known.origin or "",
        headers=headers if type(headers) is dict else dict(headers),
        **fields,
    )


def _read_headers(headers: Mapping[str, Any]) -> _Headers:
    """Return the headers, checked. Raises MessageError naming the one that is wrong."""
    try:
        found = msgspec.convert(headers, _Headers)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        if not path:
            raise MessageError(f"headers: {what}") from None
        name = path.rstrip("`")
        value = headers.get(name.partition("[")[0])
        if "out of range" in what:  # an integer that no float can hold
            what += f": the limit is {MAX_NUMBER:g}"
        raise MessageError(f"header {name!r} is {value!r:.80}: {what}") from None
    names = (found.root_id or "", found.parent_id or "", found.group or "", found.origin or "")
    keys = found.blimp_coalesce or "", found.blimp_fair or ""
    text = "".join((found.id, found.task, *keys, *names))
    if not text.isprintable():
        wrong = next(one for one in _NAMES if not (getattr(found, one) or "").isprintable())
        value = headers[wrong]
        raise MessageError(f"header {wrong!r} is {value!r:.80}, must be printable letters")
    if found.blimp_version > VERSION:
        raise MessageError(
            f"header 'blimp_version' is {found.blimp_version}: this worker reads up to {VERSION}"
        )
    if found.blimp_ttl_s is not None and found.blimp_issued_ms is None:
        raise MessageError("header 'blimp_ttl_s' needs 'blimp_issued_ms' beside it")
    return found


def readable_id(headers: object) -> str | None:
    """Return the task id of a message that is wrong in some other way, if it has one."""
    id = headers.get("id") if isinstance(headers, dict) else None
    is_name = isinstance(id, str) and 0 < len(id) <= MAX_NAME_LENGTH and id.isprintable()
    return id if is_name else None


def _read_body(raw: bytes) -> tuple[list[Any], dict[str, Any], _Embed]:
    body: tuple[list[Any], dict[str, Any], _Embed]
    try:
        body = msgspec.convert(from_json(raw), _Body) if MARK in raw else _decode_body(shallow(raw))
    except msgspec.ValidationError as error:
        raise MessageError(f"body: must be the three of [args, kwargs, embed]: {error}") from None
    except (ValueError, RecursionError) as error:
        raise MessageError(f"body is not JSON (NaN and Infinity are not): {error}") from None
    return body


def _followers(embed: dict[str, Any], known: _Headers) -> dict[str, Any]:
    """Return what follows the message: of most, nothing."""
    found: dict[str, Any] = {
        part: read_callbacks(embed, part) for part in ("callbacks", "errbacks", "chain")
    }
    found["chord"] = read_chord(embed)
    if found["chord"] and not known.group:
        raise MessageError("body: 'chord' is set, and header 'group' is missing")
    return found


def _from_iso(value: str, name: str) -> float:
    try:
        return epoch_s(value)
    except (ValueError, OverflowError):
        raise MessageError(f"header {name!r} is {value!r:.80}, must be an ISO 8601 time") from None
