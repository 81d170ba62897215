"""Texts of others on a terminal: names, reasons and sources cannot steer it."""

import io
import itertools
import pty
from contextlib import closing
from typing import Any

import msgspec
import pytest
from rich.console import Console

from blimp.link.telemetry import stream_key
from blimp.queue.redis.client import RedisServer
from blimp.tasks.authority import pilots
from blimp.types import Snapshot
from ground_station.report import Outcome, ProgressLine, Report
from ground_station.session import NotConfirmed, Options, Session
from ground_station.view import FlightView, flight_line, status_table
from tests.ground_station.ship import FlyingShip
from tests.ground_station.test_cli import Ground
from tests.ground_station.test_view import SHIP

# ESC alone, CSI, CSI of one byte, OSC 52 to the clipboard, ends of line, and a bidi override.
EVIL = (
    "\x1b[2J\x1bc\x9b31m\x1b]52;c;aGk=\x07\x9d0;x\x9c\r\n\x08\x85\u2028\u202e\u2066[red]twin: armed"
)


def raw(text: str) -> list[str]:
    """Return what a terminal might obey: all but printable characters and ends of our lines."""
    return [letter for letter in text if not letter.isprintable() and letter != "\n"]


def evil(value: Any, numbers: Any) -> Any:
    """Return a message with every text, and every name, replaced by a hostile one."""
    if isinstance(value, str):
        return f"{EVIL}{next(numbers)}"
    if isinstance(value, dict):
        return {f"{EVIL}{next(numbers)}": evil(part, numbers) for part in value.values()}
    if isinstance(value, list | tuple):
        return [evil(part, numbers) for part in value]
    return value


def hostile() -> Snapshot:
    numbers = itertools.count()
    fields = {
        name: part
        if name in ("attitude_rad", "loop", "type")
        else {
            f"{EVIL}{n}": status | {"unit": EVIL, "error": EVIL}
            for n, status in enumerate(part.values())
        }
        if name == "sensors"
        else evil(part, numbers)
        for name, part in msgspec.to_builtins(SHIP).items()
    }  # fmt: skip
    return msgspec.convert(fields, Snapshot)


def shown(*renderables: Any) -> str:
    out = io.StringIO()
    console = Console(file=out, width=100, height=40, force_terminal=False, no_color=True)
    for renderable in renderables:
        console.print(renderable)
    return out.getvalue()


def test_no_text_of_a_snapshot_reaches_a_terminal_raw() -> None:
    snapshot = hostile()
    for failsafe in (EVIL, ""):
        this = msgspec.structs.replace(snapshot, failsafe=failsafe)
        view = FlightView(vehicle=EVIL, snapshot=this, progress=EVIL)
        text = shown(view, FlightView(vehicle=EVIL, snapshot=None, progress=EVIL))
        text += shown(status_table(this, 9.0), status_table(this, 0.0))
        assert raw(text) == []
        assert "\\x1b[2J" in text
        assert "[red]" in text  # no markup either


@pytest.mark.parametrize("is_terminal", [False, True])
def test_no_reason_and_no_result_reaches_a_terminal_raw(is_terminal: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    out, err = Stream(), Stream()
    report = Report(as_json=False, out=out, err=err)
    line = ProgressLine(report=report, what=EVIL)
    line(EVIL, 0.5)
    line.end(state=EVIL, reason=EVIL, latency_ms=1.0)
    report.say(EVIL)
    report.go_on(EVIL)
    report.data(flight_line(hostile(), 0.0))
    for result in (EVIL, {EVIL: EVIL, "a": [EVIL], "b": {EVIL: EVIL}}, [EVIL]):
        report.outcome(Outcome(id=EVIL, task=EVIL, state="SUCCESS", result=result))
    Report(as_json=True, out=out, err=err).outcome(
        Outcome(id=EVIL, task=EVIL, state="FAILURE", result={EVIL: EVIL}, reason=EVIL)
    )
    text = out.getvalue() + err.getvalue().replace("\r\x1b[2K", "")
    assert raw(text) == []
    assert not any(row.startswith("twin: armed") for row in text.splitlines())


def test_a_question_shows_the_pilots_name_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    master, slave = pty.openpty()
    with open(slave) as terminal, open(master, "w") as keys:
        monkeypatch.setattr("sys.stdin", terminal)
        err = io.StringIO()
        monkeypatch.setattr(err, "isatty", lambda: True)
        monkeypatch.setattr("sys.stderr", err)
        session = Session(options=Options(), config=None, report=Report(as_json=False), clock=None)  # type: ignore[arg-type]
        keys.write("n\n")
        keys.flush()
        with pytest.raises(NotConfirmed):
            session.confirm(f"{EVIL} holds control. Take it away?")
    assert raw(err.getvalue()) == []
    assert "holds control" in err.getvalue()


def test_who_holds_control_and_telemetry_of_another_are_printed_escaped(
    capsys: pytest.CaptureFixture[str], parked: FlyingShip
) -> None:
    ground = Ground(capsys)
    ground.options = ["--broker", parked.broker.url, "--vehicle", parked.vehicle]
    with closing(RedisServer(parked.broker.url)) as link:
        pool = pilots(link, parked.vehicle)
        pool.add(parked.vehicle)
        pool.acquire("\x1b]52;c;aGk=\x07\u202e#0123456789abcdef")
        fields: Any = {b"snapshot": msgspec.json.encode(hostile()), b"age_s": b"0.0"}
        link.ask(lambda client: client.xadd(stream_key(parked.vehicle), fields))
    for words, status in (
        (["control", "who"], 0),
        (["status"], 0),
        (["--timeout", "0.1", "watch"], 0),
    ):
        assert ground(*words) == status
        assert raw(ground.out + ground.err) == [], words
    assert ground("control", "take") == 7
    assert raw(ground.out + ground.err) == []
