"""Task messages: Celery's bytes in, the same out, and every malformed one named."""

import base64
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blimp.errors import MessageError
from blimp.queue.protocol.message import TaskMessage, build_body, build_headers, write_message
from blimp.queue.protocol.read import parse_message, readable_id
from tests.queue.celery_messages import CELERY_BODY, CELERY_HEADERS, CELERY_MESSAGE


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


def test_the_golden_body_is_inside_the_golden_message() -> None:
    assert base64.b64decode(json.loads(CELERY_MESSAGE)["body"]) == CELERY_BODY


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
        ("id", None, "header 'id' is missing"),
        ("id", "", "header 'id' is empty, must be 1 to 255"),
        ("id", 7, "header 'id' is int, must be 1 to 255"),
        ("id", "x" * 256, "header 'id' is str, must be 1 to 255"),
        ("id", "\ud800", "header 'id' is str, must be 1 to 255"),
        ("task", None, "header 'task' is missing"),
        ("task", ["t"], "header 'task' is list, must be 1 to 255"),
        ("retries", -1, "header 'retries' is -1, must be an integer from 0"),
        ("retries", "2", "header 'retries' is '2', must be an integer from 0"),
        ("retries", 2**31, "must be an integer from 0 to 2^31"),
        ("retries", True, "header 'retries' is True, must be an integer"),
        ("eta", "soon", "header 'eta' is 'soon', must be an ISO 8601 time"),
        ("eta", 12, "header 'eta' is 12, must be an ISO 8601 time"),
        ("expires", [], "header 'expires' is [], must be an ISO 8601 time"),
        ("timelimit", 3, "header 'timelimit' is int, must be [hard, soft]"),
        ("timelimit", [1, -1], "header 'timelimit' is [1, -1], must be 0 or more seconds"),
        (
            "timelimit",
            [1e10, None],
            "header 'timelimit' is [10000000000.0, None], must be up to 31536000 seconds",
        ),
        ("timelimit", [1], "header 'timelimit' is list, must be [hard, soft]"),
        ("timelimit", ["a", None], "header 'hard' is str, must be a finite number"),
        ("ignore_result", 1, "header 'ignore_result' is int, must be true or false"),
        ("blimp_ttl_s", 2.0, "'blimp_ttl_s' needs 'blimp_issued_ms'"),
        ("blimp_ttl_s", "2", "header 'blimp_ttl_s' is str, must be a finite number"),
        ("blimp_issued_ms", float("nan"), "'blimp_issued_ms' is nan, must be a finite number"),
        ("blimp_delivery", float("inf"), "header 'blimp_delivery' is inf, must be a finite"),
        ("blimp_ttl_s", 10**400, "must be a finite number up to 1e+15"),
    ],
)
def test_a_wrong_header_is_named(header: str, value: object, complaint: str) -> None:
    with pytest.raises(MessageError) as caught:
        parse({**CELERY_HEADERS, header: value})
    assert complaint in str(caught.value)


@pytest.mark.parametrize("ttl_s", [0.0, -1.0])
def test_a_time_to_live_must_be_positive(ttl_s: float) -> None:
    with pytest.raises(MessageError, match="it must be above 0"):
        parse({**CELERY_HEADERS, "blimp_ttl_s": ttl_s, "blimp_issued_ms": 1})


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "body is not JSON"),
        (b"not json", "body is not JSON"),
        (b"\xff\xfe", "body is not JSON"),
        (b"[[NaN], {}, {}]", "body is not JSON (NaN and Infinity are not)"),
        (b"[[1e999], {}, {}]", "body is not JSON (NaN and Infinity are not)"),
        (b"[[], {}, {}", "body is not JSON"),
        (b"{}", "must be the three of [args, kwargs, embed]"),
        (b"[[], {}]", "must be the three of [args, kwargs, embed]"),
        (b'["ab", {}, {}]', "args is str, must be list"),
        (b"[[], [1], {}]", "kwargs is list, must be dict"),
        (b"[[], {}, 3]", "embed is int, must be dict"),
        (b'[[], {}, {"chain": [{"task": 1}]}]', "body: chain[0]: 'task' must be"),
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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_json_cannot_hold_is_not_sent(value: object) -> None:
    with pytest.raises(MessageError, match="JSON cannot hold"):
        build_body(TaskMessage(id="a", task="t", args=(value,)))


@pytest.mark.parametrize(
    ("headers", "id"),
    [({"id": "a"}, "a"), ({"id": 3}, None), ({"id": ""}, None), ([], None), (None, None)],
)
def test_an_id_is_found_where_there_is_one(headers: object, id: str | None) -> None:
    assert readable_id(headers) == id


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


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
