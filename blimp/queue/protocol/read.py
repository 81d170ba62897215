"""Reading task messages: everything in one can be wrong, and is named with its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from blimp.errors import MessageError
from blimp.queue.protocol.kombu_body import COMPRESSIONS, MARK, decompress, from_json
from blimp.queue.protocol.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    MAX_LIMIT_S,
    MAX_MESSAGE_BYTES,
    MAX_NAME_LENGTH,
    MAX_NUMBER,
    NORMAL,
    VERSION,
    TaskMessage,
    epoch_s,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blimp.queue.protocol.signing import Signer


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

    signer: accepts only what one of its keys has signed.
    Raises MessageError that says what is wrong, where, and the limit.
    """
    if content_type != CONTENT_TYPE:
        raise MessageError(f"content type {content_type!r}: only {CONTENT_TYPE!r} is accepted")
    compression = headers.get("compression")
    if compression is None and content_encoding in COMPRESSIONS:
        compression, content_encoding = content_encoding, None  # see brokers' guard_channel
    if content_encoding != CONTENT_ENCODING and str(
        content_encoding or CONTENT_ENCODING
    ).lower() not in ("utf-8", "utf8"):
        raise MessageError(f"content encoding {content_encoding!r}: only 'utf-8' is accepted")
    raw = body.encode() if isinstance(body, str) else bytes(body)  # no copy of what is bytes
    if len(raw) > limit_bytes:
        raise MessageError(f"body of {len(raw)} bytes: the limit is {limit_bytes}")
    if signer is not None:
        signer.check(headers, raw, queue=queue)
    if compression is not None:
        raw = decompress(raw, compression, limit_bytes=limit_bytes)
    known = _read_headers(headers)
    if known.blimp_version > VERSION:
        raise MessageError(
            f"header 'blimp_version' is {known.blimp_version}: this worker reads up to {VERSION}"
        )
    args, kwargs, embed = _parse_body(raw)
    issued_ms, ttl_s = known.blimp_issued_ms, known.blimp_ttl_s
    if ttl_s is not None and issued_ms is None:
        raise MessageError("header 'blimp_ttl_s' needs 'blimp_issued_ms' beside it")
    if ttl_s is not None and ttl_s <= 0.0:
        raise MessageError(f"header 'blimp_ttl_s' is {ttl_s!r}: it must be above 0")
    before = int(known.blimp_delivery or 0)
    if before < 1 and headers.get("redelivered"):
        before = 1  # given back by kombu itself, which keeps no count
    is_plain = (
        headers.get("group_index") is None
        and not headers.get("stamps")
        and not (embed and any(embed.values()))
    )
    followed = {} if is_plain else _canvas(headers, embed)
    eta, expires = headers.get("eta"), headers.get("expires")
    return TaskMessage(
        id=known.id,
        task=known.task,
        args=args,
        kwargs=kwargs,
        queue=queue,
        priority=priority if isinstance(priority, int) else NORMAL,
        retries=known.retries or 0,
        eta_s=None if eta is None else _from_iso(eta, "eta"),
        expires_s=None if expires is None else _from_iso(expires, "expires"),
        issued_ms=None if issued_ms is None else int(issued_ms),
        ttl_s=ttl_s,
        coalesce=known.blimp_coalesce or None,
        coalesce_number=known.blimp_number or 0 if known.blimp_coalesce else None,
        delivery=before + 1,
        ignore_result=known.ignore_result,
        root_id=known.root_id or None,
        parent_id=known.parent_id or None,
        group_id=known.group or None,
        timelimit=known.timelimit or NO_LIMITS,
        origin=known.origin or "",
        nesting=known.replaced_task_nesting or 0,
        headers=dict(headers),
        **followed,
    )


_Text = Annotated[str, msgspec.Meta(max_length=MAX_NAME_LENGTH)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Number = Annotated[float, msgspec.Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]
_Limit = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_LIMIT_S)]
NO_LIMITS = (None, None)


class _Headers(msgspec.Struct):
    """The headers that a worker reads. msgspec checks them in a fifth of the time."""

    id: _Text
    task: _Text
    retries: _Count | None = None
    root_id: _Text | None = None
    parent_id: _Text | None = None
    group: _Text | None = None
    origin: _Text | None = None
    ignore_result: bool | None = None
    timelimit: tuple[_Limit | None, _Limit | None] | None = None
    replaced_task_nesting: _Count | None = None
    blimp_version: _Count = 0
    blimp_issued_ms: _Number | None = None
    blimp_ttl_s: _Number | None = None
    blimp_delivery: _Number | None = None
    blimp_coalesce: _Text | None = None
    blimp_number: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] | None = None


def _read_headers(headers: Mapping[str, Any]) -> _Headers:
    """Return the headers, checked. Raises MessageError naming the one that is wrong."""
    try:
        found = msgspec.convert(headers, _Headers)
    except msgspec.ValidationError:
        return _checked(headers)
    id, task = found.id, found.task
    more = (found.root_id or "", found.parent_id or "", found.group or "", found.origin or "")
    if id and task and not found.blimp_coalesce and "".join((id, task, *more)).isprintable():
        return found
    return _checked(headers)


def _checked(headers: Mapping[str, Any]) -> _Headers:
    """Read the headers one by one."""
    coalesce = _optional_text(headers, "blimp_coalesce")
    return _Headers(
        id=_text(headers, "id"),
        task=_text(headers, "task"),
        retries=_count(headers, "retries"),
        root_id=_optional_text(headers, "root_id"),
        parent_id=_optional_text(headers, "parent_id"),
        group=_optional_text(headers, "group"),
        origin=_optional_text(headers, "origin"),
        ignore_result=_flag(headers, "ignore_result"),
        timelimit=_timelimit(headers),
        replaced_task_nesting=_count(headers, "replaced_task_nesting"),
        blimp_version=_count(headers, "blimp_version"),
        blimp_issued_ms=_number(headers, "blimp_issued_ms"),
        blimp_ttl_s=_number(headers, "blimp_ttl_s"),
        blimp_delivery=_number(headers, "blimp_delivery"),
        blimp_coalesce=coalesce,
        blimp_number=_count(headers, "blimp_number", most=2**53) if coalesce else None,
    )


def _canvas(headers: Mapping[str, Any], embed: dict[str, Any] | None) -> dict[str, Any]:
    """Return what follows the message and what it is a part of: of most, nothing."""
    found: dict[str, Any] = {}
    if headers.get("group_index") is not None:
        found["group_index"] = _count(headers, "group_index")
    if headers.get("stamps"):
        found["stamps"] = _stamps(headers["stamps"])
    if embed and any(embed.values()):
        from blimp.queue.protocol.embed import read_callbacks, read_chord

        found["callbacks"] = read_callbacks(embed, "callbacks")
        found["errbacks"] = read_callbacks(embed, "errbacks")
        found["chain"] = read_callbacks(embed, "chain")
        found["chord"] = read_chord(embed)
        if found["chord"] and not headers.get("group"):
            raise MessageError("body: 'chord' is set, and header 'group' is missing")
    return found


def _stamps(stamps: object) -> dict[str, Any]:
    if not isinstance(stamps, dict):
        raise MessageError(f"header 'stamps' is {_kind(stamps)}, must be dict")
    return stamps


def readable_id(headers: object) -> str | None:
    """Return the task id of a message that is wrong in some other way, if it has one."""
    if isinstance(headers, dict):
        id = headers.get("id")
        if isinstance(id, str) and _is_name(id):
            return id
    return None


_decode_body = msgspec.json.Decoder(tuple[list[Any], dict[str, Any], dict[str, Any] | None]).decode


def _parse_body(
    raw: bytes,
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any] | None]:
    if MARK not in raw:
        try:
            args, kwargs, embed = _decode_body(raw)
            return tuple(args), kwargs, embed
        except (ValueError, RecursionError):
            pass  # the careful way below says what is wrong
    try:
        parts = from_json(raw)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"body is not JSON (NaN and Infinity are not): {error}") from None
    if not isinstance(parts, list) or len(parts) != 3:
        raise MessageError("body: must be the three of [args, kwargs, embed]")
    args, kwargs, embed = parts
    for what, value, kind in (("args", args, list), ("kwargs", kwargs, dict)):
        if not isinstance(value, kind):
            raise MessageError(f"body: {what} is {_kind(value)}, must be {kind.__name__}")
    if not isinstance(embed, dict | None):
        raise MessageError(f"body: embed is {_kind(embed)}, must be dict")
    return tuple(args), kwargs, embed


def _text(headers: Mapping[str, Any], name: str) -> str:
    value = headers.get(name)
    if value is None:
        raise MessageError(f"header {name!r} is missing")
    if not isinstance(value, str) or not _is_name(value):
        raise MessageError(
            f"header {name!r} is {_kind(value)}, must be 1 to {MAX_NAME_LENGTH} printable letters"
        )
    return value


def _is_name(value: str) -> bool:
    return 0 < len(value) <= MAX_NAME_LENGTH and value.isprintable()


def _optional_text(headers: Mapping[str, Any], name: str) -> str | None:
    return None if headers.get(name) in (None, "") else _text(headers, name)


def _number(headers: Mapping[str, Any], name: str) -> float | None:
    value = headers.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MessageError(f"header {name!r} is {_kind(value)}, must be a finite number")
    if not abs(value) <= MAX_NUMBER:  # false for NaN, too
        raise MessageError(
            f"header {name!r} is {value!r:.40}, must be a finite number up to {MAX_NUMBER:g}"
        )
    return value


def _count(headers: Mapping[str, Any], name: str, *, most: int = 2**31) -> int:
    value = headers.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
        raise MessageError(
            f"header {name!r} is {value!r:.80}, "
            f"must be an integer from 0 to 2^{most.bit_length() - 1}"
        )
    return value


def _flag(headers: Mapping[str, Any], name: str) -> bool | None:
    value = headers.get(name)
    if value is not None and not isinstance(value, bool):
        raise MessageError(f"header {name!r} is {_kind(value)}, must be true or false")
    return value


def _timelimit(headers: Mapping[str, Any]) -> tuple[float | None, float | None]:
    value = headers.get("timelimit")
    if value is None:
        return (None, None)
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise MessageError(f"header 'timelimit' is {_kind(value)}, must be [hard, soft]")
    pair = {"hard": value[0], "soft": value[1]}
    hard_s, soft_s = _number(pair, "hard"), _number(pair, "soft")
    for limit_s in (hard_s, soft_s):
        if limit_s is not None and limit_s < 0.0:
            raise MessageError(f"header 'timelimit' is {value!r:.80}, must be 0 or more seconds")
        if limit_s is not None and limit_s > MAX_LIMIT_S:
            raise MessageError(
                f"header 'timelimit' is {value!r:.80}, must be up to {MAX_LIMIT_S:.0f} seconds"
            )
    return (hard_s, soft_s)


def _from_iso(value: Any, name: str) -> float:
    try:
        return epoch_s(value)
    except (TypeError, ValueError, OverflowError):
        raise MessageError(f"header {name!r} is {value!r:.80}, must be an ISO 8601 time") from None


def _kind(value: object) -> str:
    return "empty" if value in ("", [], {}) else type(value).__name__
