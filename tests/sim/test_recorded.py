"""A stack in real time with its recorder: what happens to one does nothing to the other."""

import contextlib
import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from blimp.recording.flight_data import read_flight
from blimp.recording.recording import open_recording
from ground_station.cli import run
from ground_station.page.recorded import Story
from tests.process_table import children, command_line
from tests.signals import stop_process
from tests.sim.running import RunningStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@contextlib.contextmanager
def out() -> Iterator[io.StringIO]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        yield said


def recorder_pid(stack: RunningStack) -> int:
    """Return the process number of the stack's recorder, 0 while there is none."""
    started = children(stack.process.pid)
    return next((pid for pid in started if command_line(pid)[3:5] == ["log", "record"]), 0)


def test_a_flight_is_recorded_whatever_becomes_of_its_recorder(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with RunningStack("--seed", "4", "--wind", "0.1", logs=logs) as stack:
        first = stack.wait_until(lambda: recorder_pid(stack), within_s=60.0)
        stack.wait_until(lambda: list(logs.glob("*.mcap")), within_s=60.0)
        assert stack.ground("arm").status == 0
        os.kill(first, signal.SIGKILL)
        back = stack.wait_for_event(lambda event: event.get("process") == "recorder")
        assert back["event"] == "restarted"
        second = stack.wait_until(lambda: recorder_pid(stack), within_s=60.0)
        assert second == back["pid"] != first
        stop_process(second)
        assert stack.ground("mode", "MANUAL").status == 0
        os.kill(second, signal.SIGCONT)
        assert stack.ground("disarm").status == 0
        assert stack.end() == 0
        assert stack.left_behind() == []
        said = {event["event"] for event in stack.events}
        assert said == {"ready", "restarted"}, "nothing but the recorder has died"

    cycles: set[int] = set()
    # By id: a recorder that is killed after it has stored a chunk, and before it has taken it off
    # the ring, leaves it to the next one as well.
    names: dict[str, str] = {}
    dropped = 0
    for path in sorted(logs.iterdir()):
        with open_recording(path) as log:
            assert (log.session.seed, log.session.simulated) == (4, True)
            cycles |= {int(one.data["cycle"]) for one in log.entries({"/snapshot"})}
            for one in log.entries({"/command"}):
                names[str(one.data["id"])] = str(one.data["name"])
            words = [str(one.data["message"]) for one in log.entries({"/event"})]
            dropped += sum(int(one.split()[0]) for one in words if "records dropped" in one)
    assert [one for one in names.values() if one != "ping"] == ["arm", "mode", "disarm"]
    # All of them, if the second recorder was not stopped for longer than the ring lasts.
    assert len(cycles) >= max(cycles) - dropped
    assert logs.stat().st_mode & 0o777 == 0o700


def test_one_incident_is_one_record_wherever_it_is_read(tmp_path: Path) -> None:
    logs = tmp_path / "logs"

    def live() -> list[dict[str, Any]]:
        with patch.dict(os.environ, stack.environment, clear=True), out() as said:
            status = run(["--json", "events"])
        lines = said.getvalue().splitlines()
        return [] if status else [json.loads(line) for line in lines]  # its broker was killed

    def wait_for(text: str) -> None:
        """Wait until the ground reads it, however long this machine takes."""
        stack.wait_until(lambda: [one for one in live() if text in one["text"]], within_s=240.0)

    with RunningStack("--seed", "4", logs=logs) as stack:
        assert stack.ground("arm").status == 0
        assert stack.ground("takeoff", "2").status == 0
        for process, name in (("worker",) * 2, ("broker",) * 2, ("flight", "flight process")):
            stack.kill(process)
            wait_for(f"the {name} died of SIGKILL")
            wait_for(f"the {name} runs again after")
        heard = live()
        assert stack.end() == 0

    names = tuple(sorted(path.name for path in logs.iterdir()))
    assert len(names) == 2, "a flight process that dies ends its log"
    for name in names:
        with open_recording(logs / name) as log:
            assert log.info().logs == names
            logged = log.timeline()
            shown = Story(log).happened
            flight = read_flight(log)
    ids = [one["id"] for one in heard]
    for place in (
        [one.id for one in logged],
        [one["id"] for one in shown],
        [one.id for one in flight.happenings],
    ):
        assert [id for id in place if id in set(ids)] == ids, "the same, in the same order"
    texts = [one["text"] for one in heard]
    order = [
        next(i for i, one in enumerate(texts) if part in one)
        for part in (
            "arm done", "takeoff altitude_m 2", "the worker died", "the worker runs again",
            "the broker died", "the broker runs again", "the flight process died of SIGKILL",
            "every output is safe", "the flight process before this one died",
        )
    ]  # fmt: skip
    assert order == sorted(order), texts
    (arm,) = [
        one["command"] for one in heard if one["text"].startswith("arm ") and one["kind"] == "done"
    ]
    assert arm in {one["command"] for one in heard if one["kind"] == "command"}
