"""A stack in real time with its recorder: what happens to one does nothing to the other."""

import os
import signal
from pathlib import Path

import pytest

from blimp.recording.recording import open_recording
from tests.signals import stop_process
from tests.sim.running import RunningStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def recorder_pid(stack: RunningStack) -> int:
    """Return the process number of the stack's recorder, 0 while there is none."""
    children = Path(f"/proc/{stack.process.pid}/task/{stack.process.pid}/children").read_text()
    for pid in children.split():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[3:5] == [b"log", b"record"]:
            return int(pid)
    return 0


def test_a_flight_is_recorded_whatever_becomes_of_its_recorder(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    stack = RunningStack("--seed", "4", "--wind", "0.1", logs=logs)
    try:
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
    finally:
        stack.close()

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


def test_a_flight_process_that_dies_leaves_one_flight(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    stack = RunningStack("--seed", "4", logs=logs)
    try:
        stack.wait_until(lambda: list(logs.glob("*.mcap")), within_s=60.0)
        assert stack.ground("arm").status == 0
        stack.kill("flight")
        stack.wait_for_event(lambda event: event.get("process") == "flight")
        assert stack.ground("ping").status == 0
        assert stack.end() == 0
    finally:
        stack.close()
    names = tuple(sorted(path.name for path in logs.iterdir()))
    assert len(names) == 2
    for name in names:
        with open_recording(logs / name) as log:
            assert log.info().logs == names
            boots = {one.data["boot_id"] for one in log.entries({"/status"})}
            assert len(boots) == 2
            assert "arm" in {one.data["name"] for one in log.entries({"/command"})}
