"""Task messages: Celery's bytes in, the same out, and every malformed one named."""

import json
import time
import uuid
import zlib
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blimp.errors import MessageError, NotGenuine
from blimp.queue.canvas.follow import after
from blimp.queue.canvas.plan import Settings
from blimp.queue.protocol.message import (
    LIFE,
    PARENT,
    STATE,
    TaskMessage,
    build_body,
    build_headers,
    epoch_s,
    new_id,
    read_context,
    trace_headers,
    write_message,
)
from blimp.queue.protocol.read import parse_message, readable_id
from blimp.queue.protocol.record import Outcome, State
from blimp.queue.protocol.signing import Signer
from tests.queue.celery_messages import CELERY_BODY, CELERY_HEADERS


def parse(
    headers: dict[str, Any] | None = None, body: bytes = CELERY_BODY, **changes: Any
) -> TaskMessage:
    options: dict[str, Any] = {
        "headers": CELERY_HEADERS if headers is None else headers,
        "body": body,
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "queue": "q",
    }
    return parse_message(**(options | changes))


def test_reads_what_celery_wrote() -> None:
    message = parse()
    assert message.id == "11111111-2222-3333-4444-555555555555"
    assert message.task == "weather.read"
    assert message.args == ("pad",)
    assert message.kwargs == {"n": 2}
    assert message.eta_s == 1795179723.477079
    assert message.expires_s == 1795179751.977079
    assert message.retries == 0
    assert message.delivery == 1
    assert message.timelimit == (None, None)
    assert message.origin == "gen10179@vm"
    assert message.issued_ms is None
    assert message.ttl_s is None


def test_writes_what_celery_reads() -> None:
    read = parse()
    headers = build_headers(read)
    assert set(headers) == set(CELERY_HEADERS)
    differing = {name for name in headers if headers[name] != CELERY_HEADERS[name]}
    assert differing == {"ignore_result"}  # false for null
    assert headers["ignore_result"] is False
    assert json.loads(build_body(read)) == json.loads(CELERY_BODY)


def test_our_headers_come_back() -> None:
    sent = TaskMessage(
        id="a",
        task="t",
        queue="q",
        issued_ms=1_795_179_723_477,
        ttl_s=2.5,
        delivery=3,
        headers={"blimp_vehicle": "twin", "other": "not carried"},
    )
    headers = build_headers(sent)
    assert "other" not in headers
    back = parse(headers, build_body(sent))
    assert (back.issued_ms, back.ttl_s, back.delivery) == (1_795_179_723_477, 2.5, 3)
    assert back.headers["blimp_vehicle"] == "twin"


def test_kombus_own_redelivery_counts_as_one() -> None:
    assert parse({**CELERY_HEADERS, "redelivered": True}).delivery == 2
    assert parse({**CELERY_HEADERS, "redelivered": True, "blimp_delivery": 4}).delivery == 5


def test_argument_representations_are_cut() -> None:
    headers = build_headers(TaskMessage(id="a", task="t", args=("x" * 5000,)))
    assert len(headers["argsrepr"]) == 1024


def test_large_arguments_are_not_written_out_to_be_cut() -> None:
    class Loud(dict[str, int]):
        def __repr__(self) -> str:
            raise AssertionError("written out whole")

    rows = [{"n": n} for n in range(2000)] + [Loud(n=1)]
    headers, _ = write_message(TaskMessage(id="a", task="t", args=(rows,)), signer=None)
    assert headers["argsrepr"].startswith("([{'n': 0}, {'n': 1}")
    assert len(headers["argsrepr"]) <= 1024


@pytest.mark.parametrize(
    ("header", "value", "complaint"),
    [
        ("id", None, "header 'id' is None: Expected `str`"),
        ("id", "", "header 'id' is '': Expected `str` of length >= 1"),
        ("id", "x" * 256, "xx: Expected `str` of length <= 255"),
        ("id", "\ud800", "header 'id' is '\\ud800', must be printable letters"),
        ("blimp_coalesce", "\0", "header 'blimp_coalesce' is '\\x00', must be printable letters"),
        ("blimp_fair", "\0", "header 'blimp_fair' is '\\x00', must be printable letters"),
        ("task", None, "header 'task' is None: Expected `str`"),
        ("retries", -1, "header 'retries' is -1: Expected `int` >= 0"),
        ("retries", 2**31, "Expected `int` <= 2147483647"),
        ("retries", True, "header 'retries' is True: Expected `int | null`"),
        ("stamps", [1], "header 'stamps' is [1]: Expected `object | null`"),
        ("eta", "soon", "header 'eta' is 'soon', must be an ISO 8601 time"),
        ("timelimit", [1, -1], "header 'timelimit[1]' is [1, -1]: Expected `float` >= 0.0"),
        (
            "timelimit",
            [1e10, None],
            "'timelimit[0]' is [10000000000.0, None]: Expected `float` <",
        ),
        ("timelimit", [1], "header 'timelimit' is [1]: Expected `array` of length 2"),
        ("ignore_result", 1, "header 'ignore_result' is 1: Expected `bool | null`"),
        ("blimp_ttl_s", 2.0, "'blimp_ttl_s' needs 'blimp_issued_ms'"),
        ("blimp_ttl_s", 0.0, "header 'blimp_ttl_s' is 0.0: Expected `float` > 0.0"),
        ("blimp_ttl_s", float("nan"), "header 'blimp_ttl_s' is nan: Expected `float` > 0.0"),
        ("blimp_issued_ms", float("nan"), "'blimp_issued_ms' is nan: Expected `float` >= -1"),
        ("blimp_delivery", float("inf"), "'blimp_delivery' is inf: Expected `float` <= 1000000"),
        ("blimp_ttl_s", 10**400, "Number out of range: the limit is 1e+15"),
        ("blimp_version", 2, "header 'blimp_version' is 2: this worker reads up to 1"),
    ],
)
def test_a_wrong_header_is_named(header: str, value: object, complaint: str) -> None:
    with pytest.raises(MessageError) as caught:
        parse({**CELERY_HEADERS, header: value})
    assert complaint in str(caught.value)


def test_a_message_without_an_id_is_named() -> None:
    with pytest.raises(MessageError, match=r"headers: .* missing required field `id`"):
        parse({"task": "t"})


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "body is not JSON"),
        (b"\xff\xfe", "body is not JSON"),
        (b"[[NaN], {}, {}]", "body is not JSON (NaN and Infinity are not)"),
        (b"[[1e999], {}, {}]", "body: must be the three of [args, kwargs, embed]: Number out of"),
        (b"{}", "must be the three of [args, kwargs, embed]"),
        (b'["ab", {}, {}]', "Expected `array`, got `str` - at `$[0]`"),
        (b'[{"__type__": 1}, {}, {}]', "Expected `array`, got `object` - at `$[0]`"),
        (b"[[], {}, 3]", "Expected `object | null`, got `int` - at `$[2]`"),
        (b'[[], {}, {"chain": [{"task": 1}]}]', "body: chain[0] is no signature: Expected `str`"),
        (b'[[], {}, {"chain": 3}]', "'chain' must be a list of at most"),
        (b'[[], {}, {"chord": {"task": "t"}}]', "header 'group' is missing"),
        (b"[" * 100_000, "body is not JSON"),
    ],
)
def test_a_wrong_body_is_named(body: bytes, complaint: str) -> None:
    with pytest.raises(MessageError) as caught:
        parse(body=body)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("content_type", ["application/x-python-serialize", "text/plain", None])
def test_only_json_is_accepted(content_type: str | None) -> None:
    with pytest.raises(MessageError, match="only 'application/json' is accepted"):
        parse(content_type=content_type)


def test_only_utf8_is_accepted() -> None:
    with pytest.raises(MessageError, match="content encoding 'latin-1'"):
        parse(content_encoding="latin-1")


def test_a_body_above_the_limit_names_both() -> None:
    with pytest.raises(MessageError, match="body of 88 bytes: the limit is 80"):
        parse(limit_bytes=80)


def test_a_message_above_the_limit_is_not_sent() -> None:
    message = TaskMessage(id="a", task="t", args=("x" * 50,))
    size = len(build_body(message))
    write_message(message, signer=None, limit_bytes=size)
    with pytest.raises(MessageError, match=f"is {size} bytes as JSON: the limit is {size - 1}"):
        write_message(message, signer=None, limit_bytes=size - 1)
    tall = msgspec.structs.replace(message, headers={"blimp_source": "x" * 1000})
    with pytest.raises(MessageError, match="the limit is 1000"):
        write_message(tall, signer=None, limit_bytes=1000)


def test_with_a_key_nothing_of_a_stranger_is_unpacked_nor_believed_to_be_genuine() -> None:
    signer = Signer("k" * 16)
    packed = zlib.compress(CELERY_BODY)
    headers = {**CELERY_HEADERS, "compression": "application/x-gzip"}
    with pytest.raises(NotGenuine):
        parse(headers, packed, signer=signer)
    for wrong in ({"content_type": "text/x"}, {"content_encoding": "x"}, {"limit_bytes": 8}):
        with pytest.raises(NotGenuine):
            parse(signer=signer, **wrong)
    signer.sign_again(headers, packed, queue="q")
    assert parse(headers, packed, signer=signer).args == ("pad",)
    wide = zlib.compress(b" " * 5000)
    signer.sign_again(headers, wide, queue="q")
    with pytest.raises(MessageError, match="is longer than 1000"):
        parse(headers, wide, signer=signer, limit_bytes=1000)


def test_a_time_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        expected_s = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
        for text in ("2026-01-02T03:04:05", "2026-01-02T04:04:05+01:00"):
            assert epoch_s(text) == expected_s
            assert parse({**CELERY_HEADERS, "expires": text}).expires_s == expected_s
    finally:
        monkeypatch.undo()
        time.tzset()


def test_each_life_of_a_message_has_followers_of_its_own() -> None:
    first = TaskMessage(id="a", task="t")
    lives = [first, *(msgspec.structs.replace(first, headers={LIFE: n}) for n in (1, 2))]
    assert len({one.lineage for one in lives}) == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_json_cannot_hold_is_not_sent(value: object) -> None:
    with pytest.raises(MessageError, match="JSON cannot hold"):
        build_body(TaskMessage(id="a", task="t", args=(value,)))


@pytest.mark.parametrize(
    ("headers", "id"),
    [
        ({"id": "a"}, "a"), ({"id": 3}, None), ({"id": ""}, None), ([], None), (None, None),
        ({"id": "a\nforged=1"}, None), ({"id": "x" * 256}, None),
    ],
)  # fmt: skip
def test_an_id_is_found_where_there_is_one(headers: object, id: str | None) -> None:
    assert readable_id(headers) == id


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([*CELERY_HEADERS, "blimp_ttl_s"]), json_values))
def test_any_headers_are_taken_or_named(changes: dict[str, Any]) -> None:
    """Nothing but MessageError, whatever the headers hold."""
    try:
        message = parse({**CELERY_HEADERS, **changes})
    except MessageError:
        return
    assert message.id == changes.get("id", CELERY_HEADERS["id"])


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_body_is_taken_or_named(body: bytes) -> None:
    with pytest.raises(MessageError):
        parse(body=b"\x00" + body)


# --- the trace it belongs to ---------------------------------------------------------------

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_a_trace_goes_on_through_retries_and_what_a_task_calls() -> None:
    headers = {PARENT: GOOD, STATE: "congo=t61rcWkgMzE,rojo@x=1", "lang": "py", "other": 1}
    message = TaskMessage(id="a", task="t", callbacks=({"task": "next"},), headers=headers)
    assert build_headers(message)[PARENT] == GOOD
    assert build_headers(message)[STATE] == headers[STATE]
    assert "other" not in build_headers(message)
    settings = Settings(queue="q", now_s=time.time)
    (called,) = after(message, Outcome(state=State.SUCCESS), settings).messages
    assert build_headers(called)[PARENT] == GOOD
    assert build_headers(called)[STATE] == headers[STATE]


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    found = read_context({PARENT: f"cc-{TRACE}-{SPAN}-01-what-the-future-brings"})
    assert found == (TRACE, SPAN)


@pytest.mark.parametrize(
    "bad",
    [
        None, 1, [GOOD], {"a": GOOD}, b"00", "", "00", GOOD.upper(), GOOD + "-x", GOOD + "\n",
        f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0", f"00-{TRACE[:-1]}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01x",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * 500, f"00-{TRACE}-{SPAN}-01" * 100_000,
    ],
)  # fmt: skip
def test_an_invalid_trace_is_left_out(bad: Any) -> None:
    headers = {PARENT: bad, STATE: "a=b"}
    assert read_context(headers) is None
    assert trace_headers(headers) == {}
    written = build_headers(TaskMessage(id="a", task="t", headers=headers))
    assert PARENT not in written
    assert STATE not in written


@pytest.mark.parametrize(
    "bad",
    [
        7, "", "novalue", "a=b,=c", "A=b", "a=b\n", "a=\x00", "a=b" * 200, "é=b", "a=b\ud800",
        ",".join(f"k{n}=v" for n in range(33)),
    ],
)  # fmt: skip
def test_a_bad_state_does_not_cost_the_trace(bad: Any) -> None:
    assert trace_headers({PARENT: GOOD, STATE: bad}) == {PARENT: GOOD}


def test_no_state_takes_long_to_check() -> None:
    began_s = time.process_time()
    for evil in (" " * 512, "\t \t ," * 100, "a=" + " " * 510, "a=b," * 128):
        trace_headers({PARENT: GOOD, STATE: evil})
    assert time.process_time() - began_s < 1.0


def test_an_id_is_a_random_uuid() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(str(uuid.UUID(id)) == id and uuid.UUID(id).version == 4 for id in ids)
