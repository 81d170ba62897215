"""Hostile command lines and environments: one line of why, one JSON object, no traceback."""

import json
import os
import sys
from typing import Any

import pytest

from blimp.errors import MissionError
from ground_station import cli
from ground_station.mission_file import parse_mission
from tests.forked import Ended, forked, ran
from tests.ground_station.ship import FlyingShip

REPLY_KEYS = ["id", "task", "state", "result", "reason", "latency_ms"]


def ground(*words: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """Run `ground --json` as a process; return its exit status and its one object."""
    environment = os.environ | {"XDG_RUNTIME_DIR": "/nonexistent"} | environment
    if "PYTHONIOENCODING" in environment:  # which an interpreter reads as it starts
        command = [sys.executable, "-m", "ground_station", "--json", *words]
        done = ran(command, env=environment, timeout=20.0)
        ended = Ended(done.returncode, done.stdout, done.stderr)
    else:
        ended = forked("ground_station", "--json", *words, environment=environment)
    assert "Traceback" not in ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == 1, ended
    reply: dict[str, Any] = json.loads(lines[0])
    assert list(reply) == REPLY_KEYS
    return ended.returncode, reply


@pytest.mark.parametrize(
    "words",
    [("sensor", "\udcff"), ("result", "\udcff"), ("servo", "\udcff", "1"), ("--vehicle", "\udcff")],
)
def test_bytes_that_are_no_text_are_wrong_usage(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["--json", *words]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["reason"] == r"argument 3, '\udcff', is not UTF-8"
    assert "is not UTF-8" in err


@pytest.mark.parametrize(
    "url", ["redis://:secret@h:99999", "redis://:secret@h:abc", "redis://:secret@[::1", "garbage"]
)
@pytest.mark.parametrize("command", ["ping", "estop"])
def test_a_broker_that_cannot_be_read_is_wrong_usage(url: str, command: str) -> None:
    status, reply = ground("--vehicle", "any", command, BLIMP_BROKER_URL=url)
    assert (status, reply["state"], reply["task"]) == (2, "FAILURE", f"blimp.{command}")
    assert "broker URL" in reply["reason"]
    assert "secret" not in reply["reason"]


def test_an_empty_broker_is_not_the_ship_that_happens_to_run_here() -> None:
    status, reply = ground("--broker", "", "ping")
    assert status == 2
    assert "--broker is empty" in reply["reason"]


def test_any_output_encoding_carries_the_answer(twin: FlyingShip) -> None:
    where = ("--broker", twin.broker.url, "--vehicle", twin.vehicle)
    status, reply = ground(*where, "sensor", "é", PYTHONIOENCODING="ascii", LC_ALL="C.UTF-8")
    assert (status, reply["state"]) == (5, "REFUSED")
    assert "no sensor 'é'" in reply["reason"]


def test_a_number_with_endless_digits_is_a_bad_mission() -> None:
    text = 'name = "x"\n[[leg]]\ndo = "takeoff"\naltitude_m = ' + "9" * 5000
    with pytest.raises(MissionError, match=r"mission m\.toml: Exceeds the limit"):
        parse_mission(text, where="m.toml")
