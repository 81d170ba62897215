"""What a worker writes on standard error, and from which level on."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest

from blimp.clock import ManualClock
from blimp.queue.log import LEVELS, MOST_LINES, LineLimit, Throttle, stderr_logger


@pytest.mark.parametrize(
    ("level", "written"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)]
)
def test_lines_below_the_level_are_not_written(
    level: str, written: int, capsys: pytest.CaptureFixture[str]
) -> None:
    log = stderr_logger(level=level, worker="pad")
    for one in LEVELS:
        getattr(log, one)("consuming")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == written
    assert all("worker=pad" in line for line in lines)


def test_a_line_can_be_split_into_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    stderr_logger().info(
        "task", id="a-1", ms=0.25, ok=True, none=None, empty="", queues="a,b", said='no "x" = 1'
    )
    line = capsys.readouterr().err
    assert re.match(r"timestamp=\d{4}-\d\d-\d\dT[\d:.]+Z level=info event=task ", line)
    assert line.endswith('id=a-1 ms=0.25 ok=true none= empty= queues=a,b said="no \\"x\\" = 1"\n')


def test_on_a_terminal_a_line_is_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    log = stderr_logger(worker="pad")
    try:
        raise OSError("gone\n12:00:00 info    forged")
    except OSError:
        log.exception("task failed\x1b[2J", task="read")
    first, *others = terminal.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d error   task failed.x1b.2J worker=pad task=read", first)
    assert others[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in others)


@pytest.mark.parametrize("evil", ["one\nlevel=error event=forged", "\x1b[2J", "\r", "a\u2028b"])
def test_no_value_can_forge_a_line(evil: str, capsys: pytest.CaptureFixture[str]) -> None:
    stderr_logger().warning("refused", reason=evil)
    text = capsys.readouterr().err
    assert len(text.splitlines()) == 1
    assert text.removesuffix("\n").isprintable()


def test_an_exception_is_one_line_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise OSError("bus gone")
    except OSError:
        stderr_logger().exception("middleware", task="read")
    (line,) = capsys.readouterr().err.splitlines()
    assert "level=error event=middleware task=read" in line
    assert 'OSError: bus gone"' in line
    assert "test_log.py" in line


def test_a_closed_stream_makes_no_log_call_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    stderr_logger().error("name lost")


def test_a_throttle_admits_some_lines_a_period_and_counts_the_others() -> None:
    clock = ManualClock()
    throttle = Throttle(clock=clock, most=2, period_s=60.0)
    assert [throttle.admit("unreadable") for _ in range(5)] == [{}, {}, None, None, None]
    assert throttle.admit("unknown_task") == {}, "each kind has its own"
    clock.advance(60.0)
    assert throttle.admit("unreadable") == {"left_out": 3}
    assert throttle.admit("unreadable") == {}


def record(text: str, created_s: float, *arguments: object) -> logging.LogRecord:
    one = logging.LogRecord("blimp", logging.ERROR, "file", 1, text, arguments, None)
    one.created = created_s
    return one


def test_lines_of_one_event_are_limited_and_the_next_says_how_many_were_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = stderr_logger(level="debug")
    for number in range(10 * MOST_LINES):
        log.error("broadcast unreadable", reason=number)
        log.debug("kept")
    log.warning("another")
    lines = capsys.readouterr().err.splitlines()
    assert sum("broadcast unreadable" in line for line in lines) == MOST_LINES
    assert sum("kept" in line for line in lines) == 10 * MOST_LINES
    assert "another" in lines[-1]


def test_a_limit_follows_the_records_time_also_when_that_is_set_back() -> None:
    limit = LineLimit()
    for start_s in (1e9, 1e9 + 60.0, 5.0):  # the last is a computer without a clock
        passed = [
            one
            for second in range(MOST_LINES + 5)
            if limit.filter(one := record("%s: entry %s", start_s + second / 100, "q", second))
        ]
        assert len(passed) == MOST_LINES
    assert passed[0].getMessage() == "q: entry 0 (5 like it were left out)"
    assert passed[1].getMessage() == "q: entry 1"
