"""Typed values and compressed bodies, as kombu writes and reads them."""

import bz2
import gzip
import zlib
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from kombu.utils import json as kombu_json

from blimp.errors import MessageError
from blimp.queue.protocol.kombu_body import decompress, from_json
from blimp.queue.protocol.message import TaskMessage, build_body, to_json
from blimp.queue.protocol.read import parse_message
from blimp.queue.protocol.record import Record, State, decode, encode

VALUES: list[Any] = [
    datetime(2026, 11, 22, 5, 43, 1, 250, tzinfo=UTC),
    datetime(2026, 11, 22, 5, 43),
    datetime(2026, 11, 22, tzinfo=timezone(timedelta(hours=-3))),
    date(2026, 11, 22),
    time(5, 43, 1),
    UUID("11111111-2222-3333-4444-555555555555"),
    Decimal("3.30"),
    "Grüße".encode(),
    b"\x00\xff",
    {"at": [date(2026, 1, 1), {"id": UUID(int=5)}]},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_kombu_reads_what_we_write_and_we_read_what_kombu_writes(value: Any) -> None:
    assert kombu_json.loads(to_json(value)) == value
    assert from_json(kombu_json.dumps(value).encode()) == value
    assert type(from_json(to_json(value))) is type(value)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_arguments_and_results_keep_their_types(value: Any) -> None:
    body = build_body(TaskMessage(id="a", task="t", args=(value,), kwargs={"one": value}))
    message = parse(body)
    assert (message.args, message.kwargs) == ((value,), {"one": value})
    record = Record(id="a", state=State.SUCCESS, result=value)
    assert decode(encode(record, limit_bytes=9999)).result == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"__type__": "lambda", "__value__": "x"}', "__type__ 'lambda' must be one of"),
        ('{"__type__": ["x"], "__value__": "x"}', "must be one of"),
        ('{"__type__": "uuid", "__value__": {"int": 1}}', "__value__ of a uuid"),
        ('{"__type__": "uuid", "__value__": {"hex": "x"}}', "__value__ of a uuid"),
        ('{"__type__": "date", "__value__": 5}', "__value__ of a date"),
        ('{"__type__": "decimal", "__value__": "3,3"}', "__value__ of a decimal"),
        ('{"__type__": "decimal", "__value__": [0, [1], "F"]}', "__value__ of a decimal"),
        ('{"__type__": "bytes", "__value__": 5}', "__value__ of a bytes"),
        ('{"__type__": "base64", "__value__": "%"}', "__value__ of a base64"),
    ],
)
def test_a_value_of_no_known_type_is_named(text: str, complaint: str) -> None:
    with pytest.raises(MessageError, match=complaint):
        parse(f"[[{text}], {{}}, {{}}]".encode())


def test_an_object_with_other_keys_is_a_dict() -> None:
    assert from_json(b'{"__type__": "x"}') == {"__type__": "x"}


BODY = b'[["' + b"x" * 5000 + b'"], {}, {}]'


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("application/x-gzip", zlib.compress(BODY)),  # kombu's word for zlib
        ("application/x-gzip", gzip.compress(BODY, mtime=0)),
        ("application/x-bz2", bz2.compress(BODY)),
    ],
    ids=["zlib", "gzip", "bz2"],  # gzip's bytes have the time in them
)
def test_a_compressed_body_is_read(name: str, packed: bytes) -> None:
    assert parse(packed, compression=name).args == ("x" * 5000,)
    assert parse(packed, content_encoding=name).args == ("x" * 5000,)


@pytest.mark.parametrize(
    ("name", "pack"), [("application/x-gzip", zlib.compress), ("application/x-bz2", bz2.compress)]
)
def test_a_bomb_is_refused_before_it_is_unpacked(name: str, pack: Any) -> None:
    import tracemalloc

    packed = pack(bytes(30_000_000))
    tracemalloc.start()
    with pytest.raises(MessageError, match=f"as '{name}' is longer than 1000000"):
        decompress(packed, name, limit_bytes=1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize(
    ("packed", "name", "complaint"),
    [
        (b"x", "application/x-lzma", "compression 'application/x-lzma': only"),
        (b"x", ["x"], "only"),
        (b"x", "application/x-gzip", "body is not 'application/x-gzip'"),
        (b"x", "application/x-bz2", "body is not 'application/x-bz2'"),
        (zlib.compress(BODY)[:-3], "application/x-gzip", "incomplete"),
        (zlib.compress(BODY) + b"more", "application/x-gzip", "extra data at its end"),
    ],
)
def test_a_wrong_compression_is_named(packed: bytes, name: Any, complaint: str) -> None:
    with pytest.raises(MessageError, match=complaint):
        parse(packed, compression=name)


def parse(body: bytes, *, content_encoding: str = "utf-8", **headers: Any) -> TaskMessage:
    return parse_message(
        headers={"id": "a", "task": "t"} | headers,
        body=body,
        content_type="application/json",
        content_encoding=content_encoding,
        queue="q",
    )
