"""The two headers of a message's trace are carried on, or left out."""

import time
from typing import Any

import pytest

from blimp.queue.canvas.follow import after
from blimp.queue.canvas.plan import Settings
from blimp.queue.protocol.message import TaskMessage, build_headers
from blimp.queue.protocol.record import State
from blimp.queue.protocol.trace_context import PARENT, STATE, read_context, trace_headers

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_a_trace_goes_on_through_retries_and_what_a_task_calls() -> None:
    headers = {PARENT: GOOD, STATE: "congo=t61rcWkgMzE,rojo@x=1", "lang": "py", "other": 1}
    message = TaskMessage(id="a", task="t", callbacks=({"task": "next"},), headers=headers)
    assert build_headers(message)[PARENT] == GOOD
    assert build_headers(message)[STATE] == headers[STATE]
    assert "other" not in build_headers(message)
    settings = Settings(queue="q", now_s=time.time)
    (called,) = after(message, state=State.SUCCESS, settings=settings).messages
    assert build_headers(called)[PARENT] == GOOD
    assert build_headers(called)[STATE] == headers[STATE]


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    found = read_context({PARENT: f"cc-{TRACE}-{SPAN}-01-what-the-future-brings"})
    assert found is not None
    assert (found.trace_id, found.span_id) == (TRACE, SPAN)


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
