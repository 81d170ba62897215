"""The limit of nesting is one number on every Python, and is no way to hold a process up."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.errors import MessageError, ResultError
from blimp.nesting import MAX_DEPTH, shallow
from blimp.queue.brokers.streams.envelope import BODY, HEAD, unpack
from blimp.queue.celery.control.command import read_command
from blimp.queue.extras.sql.tables import from_json, row_of
from blimp.queue.protocol.message import TaskMessage, build_body, to_json
from blimp.queue.protocol.read import parse_message
from blimp.queue.protocol.record import Record, State, decode, encode
from blimp.queue.worker.decode import find_headers


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * depth + b"1" + closing * depth


@pytest.mark.parametrize("pair", [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_the_limit_is_exact(pair: tuple[bytes, bytes]) -> None:
    most = MAX_DEPTH // pair[1].__len__()
    data = nested(most, *pair)
    assert shallow(data) is data
    msgspec.json.decode(data)  # and every Python reads as deep as it allows
    with pytest.raises(RecursionError, match=f"the limit of recursion is {MAX_DEPTH}"):
        shallow(nested(most + 1, *pair))


@pytest.mark.parametrize(
    "data",
    [
        json.dumps("[" * 5000).encode(),
        json.dumps(['"[{\\' * 3000, "[" * 900]).encode(),
        json.dumps([[n, {}] for n in range(5000)]).encode(),
        b"]" * 2000 + b"[" * MAX_DEPTH,
        b'"' + b"[" * 2000,  # a text that does not end is for the reader to refuse
        b'"' + rb"\"[" * 2000 + b"\\",
        b"\xff\xfe" * 2000,
        b"",
    ],
)
def test_many_brackets_are_not_deep(data: bytes) -> None:
    assert shallow(data) is data


def test_a_text_is_looked_at_as_well() -> None:
    assert shallow("ä") == "ä"
    with pytest.raises(RecursionError):
        shallow("\ud800" + "[" * (MAX_DEPTH + 1))


@given(
    st.recursive(
        st.text(alphabet='[]{}"\\ä') | st.integers(),
        lambda part: st.lists(part) | st.dictionaries(st.text(alphabet='[{"\\'), part),
        max_leaves=40,
    ),
    st.integers(0, 2 * MAX_DEPTH),
)
def test_depth_is_that_of_the_value(value: object, around: int) -> None:
    def depth(value: object) -> int:
        if not isinstance(value, list | dict):
            return 0
        parts: Iterable[object] = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth, parts), default=0)

    data = b"[" * around + json.dumps(value).encode() + b"]" * around
    if depth(value) + around <= MAX_DEPTH:
        assert shallow(data) is data
    else:
        with pytest.raises(RecursionError):
            shallow(data)


def read_body(value: bytes) -> object:
    return parse_message(
        headers={"id": "a", "task": "t"},
        body=b"[[%b], {}, {}]" % value,
        content_type="application/json",
        content_encoding="utf-8",
        queue="q",
    )


def read_head(value: bytes) -> object:
    head = b'{"headers": {"a": %b}, "properties": {"delivery_info": {}}}' % value
    return unpack([HEAD, head, BODY, b""])


RECORD = b'{"status": "SUCCESS", "task_id": "a", "result": %b}'
READERS: dict[str, tuple[int, Callable[[bytes], object]]] = {  # what is around the value, how read
    "body": (2, read_body),
    "body with types": (3, lambda value: read_body(b'[%b, {"__type__": 1, "a": 2}]' % value)),
    "head": (2, read_head),
    "record": (1, lambda value: decode(RECORD % value)),
    "row": (1, lambda value: row_of(RECORD % value, extended=True, now=datetime.now(UTC))),
    "column": (0, lambda value: from_json({"result": value}, "result")),
    "command": (
        1,
        lambda value: read_command(
            b'{"method": "ping", "arguments": %b}' % value, content_type="application/json"
        ),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_each_reader_takes_the_same_depth_and_names_it(name: str) -> None:
    """On CPython 3.13 and later a reader in C would go ten times as deep as Python may walk."""
    around, read = READERS[name]
    read(nested(MAX_DEPTH - around))
    with pytest.raises(
        (MessageError, ResultError, ValueError), match=f"limit of recursion is {MAX_DEPTH}"
    ):
        read(nested(MAX_DEPTH - around + 1))


def test_what_no_reader_takes_is_not_written() -> None:
    value: list[object] = []
    for _ in range(MAX_DEPTH - 3):
        value = [value]  # with its own level, and those of args and of the body, at the limit
    message = TaskMessage(id="a", task="t", args=(value,), queue="q")
    assert read_body(json.dumps(value).encode()) is not None
    assert build_body(message)
    with pytest.raises(MessageError, match="'t': JSON cannot hold them: JSON nested 401 levels"):
        build_body(TaskMessage(id="a", task="t", args=([value],), queue="q"))
    record = Record(id="a", state=State.SUCCESS, result=[value])
    with pytest.raises(ResultError, match="JSON nested 401 levels"):
        encode(Record(id="a", state=State.SUCCESS, result=[[value]]), limit_bytes=10**6)
    assert decode(encode(record, limit_bytes=10**6)).result == [value]
    with pytest.raises(RecursionError):
        to_json([[[value]]])


def test_headers_too_deep_to_read_are_none() -> None:
    assert find_headers(b'{"headers": %b}' % nested(MAX_DEPTH)) is None
    assert find_headers(b'{"headers": {}}') == {}
