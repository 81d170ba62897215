"""One trace, from the command on the ground to what the ship does."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from blimp.queue.watching import TraceSettings, Watching
from ground_station.cli import run
from tests.forked import ran
from tests.ground_station.ship import FlyingShip

GROUND = [sys.executable, "-m", "ground_station"]


def ground(ship: FlyingShip, *words: str, trace: Path | str) -> subprocess.CompletedProcess[str]:
    where = ["--broker", ship.broker.url, "--vehicle", ship.vehicle]
    return ran(
        [*GROUND, *where, *words], env=os.environ | {"BLIMP_TRACE_FILE": str(trace)}, timeout=60
    )


def spans_of(trace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trace.read_text().splitlines()]


def test_a_command_is_one_trace_from_the_command_line_to_the_ship(
    parked: FlyingShip, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    watching = Watching(trace=TraceSettings(file=str(trace)))
    with parked.worker(watching):
        assert ground(parked, "arm", trace=trace).returncode == 0
    spans = {span["name"]: span for span in spans_of(trace)}
    queue = f"blimp.{parked.vehicle}"
    chain = ["ground arm", f"send {queue}", f"process {queue}", "mailbox arm", "flight arm"]
    assert set(spans) == {*chain, f"wait {queue}"}
    assert len({span["context"]["trace_id"] for span in spans.values()}) == 1
    assert spans["ground arm"]["parent_id"] is None
    for parent, child in itertools.pairwise(chain):
        assert spans[child]["parent_id"] == spans[parent]["context"]["span_id"], child
    sent = spans[f"send {queue}"]
    assert spans[f"wait {queue}"]["parent_id"] == sent["context"]["span_id"]
    assert spans["ground arm"]["resource"]["attributes"]["service.name"] == "ground"
    assert spans["flight arm"]["resource"]["attributes"]["service.name"] == queue
    process = spans[f"process {queue}"]["attributes"]
    assert process["messaging.operation.type"] == "process"
    assert process["messaging.destination.name"] == queue
    assert process["messaging.message.id"] == sent["attributes"]["messaging.message.id"]
    assert process["blimp.state"] == "SUCCESS"


@pytest.fixture
def where(twin: FlyingShip) -> list[str]:
    return ["--broker", twin.broker.url, "--vehicle", twin.vehicle]


@pytest.mark.parametrize("bad", ["/nonexistent/trace.jsonl", "/", "/dev/full"])
def test_a_trace_that_cannot_be_written_stops_no_command(
    bad: str,
    where: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BLIMP_TRACE_FILE", bad)
    assert run([*where, "ping"]) == 0
    reply = capsys.readouterr().err
    assert "Traceback" not in reply
    assert ("not traced" in reply) == (bad != "/dev/full")
