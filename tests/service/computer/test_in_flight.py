"""A ship that cannot be asked is flying: nothing that stops its motors goes on by itself."""

import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec import structs

from blimp.clock import SystemClock
from blimp.errors import BlimpError
from blimp.link.flight_record import RecordFile
from blimp.link.mailbox import MailboxServer
from blimp.link.paths import RuntimePaths
from blimp.service.computer import in_flight
from blimp.service.computer.in_flight import demand_on_ground, running_snapshot
from blimp.types import FlightRecord
from tests.directory import socket_directory
from tests.needs import needs_root
from tests.repeating import repeating
from tests.sim.running import RunningStack
from tests.snapshot import SNAPSHOT

CLOCK = SystemClock()
SAID = "the ship cannot be asked, so it may be flying: "


@pytest.fixture
def paths() -> Iterator[RuntimePaths]:
    with socket_directory() as directory:
        yield RuntimePaths(directory)


@contextmanager
def answering(paths: RuntimePaths, *, armed: bool) -> Iterator[None]:
    """A flight process in small, which sends its snapshot to whom has greeted it."""
    with MailboxServer(path=paths.flight, clock=CLOCK) as server:

        def serve() -> None:
            server.receive()
            server.publish(structs.replace(SNAPSHOT, armed=armed))

        with repeating(serve, period_s=0.001):
            yield


def demand(paths: RuntimePaths, *, force: bool = False, yes: bool = False) -> None:
    demand_on_ground(paths, clock=CLOCK, force=force, yes=yes)


def test_no_flight_process_no_ship(paths: RuntimePaths) -> None:
    demand(paths)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(str(paths.flight))  # its file stays, as that of a killed process
    demand(paths)
    demand(RuntimePaths(paths.directory / "none"))


def test_one_that_answers_is_believed_and_never_overruled(paths: RuntimePaths) -> None:
    with answering(paths, armed=False):
        demand(paths)
    with answering(paths, armed=True), pytest.raises(BlimpError, match="twin is armed: land it"):
        demand(paths, force=True, yes=True)


@pytest.mark.parametrize("is_full", [False, True])
def test_one_that_is_silent_may_be_flying(
    paths: RuntimePaths, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """It hangs or was stopped. A full queue, in which no greeting has room, was taken for none."""
    monkeypatch.setattr(in_flight, "ANSWER_S", 0.05)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as silent,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as flood,
    ):
        silent.bind(str(paths.flight))
        while is_full:
            try:
                flood.sendto(b"x", socket.MSG_DONTWAIT, str(paths.flight))
            except BlockingIOError:
                break
        with pytest.raises(BlimpError, match=f"{SAID}the flight process at .* does not answer"):
            demand(paths)
        with pytest.raises(
            BlimpError, match=r"Stop its motors\? There is no terminal to ask on: give --yes"
        ):
            demand(paths, force=True)
        with pytest.raises(BlimpError, match=SAID):
            demand(paths, yes=True)
        demand(paths, force=True, yes=True)


def test_a_unit_that_has_not_ended_and_does_not_answer_may_be_flying(
    paths: RuntimePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a crash in the air and the next start of the unit, no process has the socket."""
    monkeypatch.setattr(in_flight, "ON_BOARD_DIR", paths.directory)
    for state in ("inactive", "failed", ""):
        monkeypatch.setattr(in_flight, "active_state", lambda _, state=state: state)
        assert running_snapshot(paths, clock=CLOCK) is None
    for state in ("activating", "deactivating", "active", "Failed to connect to bus"):
        monkeypatch.setattr(in_flight, "active_state", lambda _, state=state: state)
        with pytest.raises(BlimpError, match=f"{SAID}blimp-flight.service is {state}, and nothing"):
            demand(paths)


def test_one_that_has_not_found_out_whether_it_is_in_the_air_is_left_alone(
    paths: RuntimePaths,
) -> None:
    """Its predecessor died armed; it answers that it is disarmed until its sensors agree."""
    record = FlightRecord(
        t_s=1.0, armed=True, killed=False, airborne=True, height_m=3.0, heaviness_kg=0.0,
        pressure_pa=101_325.0, yaw_rad=0.0, yaw_sigma_rad=0.1, gyro_bias_radps=(0.0, 0.0, 0.0),
    )  # fmt: skip
    with RecordFile(paths.record) as file, answering(paths, armed=False):
        demand(paths)
        file.write(record)
        with pytest.raises(BlimpError, match="died in flight, and its successor has not found out"):
            demand(paths, force=True, yes=True)
        file.write(structs.replace(record, armed=False))
        demand(paths)


@needs_root("needs a second user")
def test_one_that_this_user_may_not_ask_may_be_flying(paths: RuntimePaths) -> None:
    with answering(paths, armed=False):
        asked = subprocess.run(
            [sys.executable, "-c",
             "import os, sys; from pathlib import Path;"
             "from blimp.clock import SystemClock; from blimp.link.paths import RuntimePaths;"
             "from blimp.service.computer.in_flight import demand_on_ground;"
             "os.setgroups([]); os.setgid(65534); os.setuid(65534);"
             "demand_on_ground(RuntimePaths(Path(sys.argv[1])), clock=SystemClock(),"
             " force=False, yes=False)", str(paths.directory)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert f"{SAID}mailbox socket {paths.flight}: Permission denied" in asked.stderr


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("n", 1), ("", 1)])
def test_a_person_is_asked_before_force(paths: RuntimePaths, answer: str, status: int) -> None:
    person, terminal = pty.openpty()
    os.write(person, f"{answer}\n".encode())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as silent:
        silent.bind(str(paths.flight))
        ended = subprocess.run(
            [sys.executable, "-c",
             "import sys; from pathlib import Path;"
             "from blimp.clock import SystemClock; from blimp.link.paths import RuntimePaths;"
             "from blimp.service.computer.in_flight import demand_on_ground;"
             "demand_on_ground(RuntimePaths(Path(sys.argv[1])), clock=SystemClock(),"
             " force=True, yes=False)", str(paths.directory)],
            stdin=terminal, stderr=terminal, check=False,
        )  # fmt: skip
    said = os.read(person, 4096).decode()
    os.close(person)
    os.close(terminal)
    assert ended.returncode == status
    assert "does not answer within 2 s. Stop its motors? [y/N] " in said


@pytest.mark.long
def test_safe_state_leaves_a_flight_process_that_runs_alone() -> None:
    """Its drivers would sleep without its knowledge: the ship armed, and did not lift."""
    with RunningStack() as stack:
        words = ["safe-state", "--sim", "--runtime-dir", str(stack.paths.directory)]
        for more in ([], ["--force", "--yes"]):
            refused = subprocess.run(
                [sys.executable, "-m", "blimp", *words, *more],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert refused.returncode == 1
            assert "its flight process runs, disarmed, and keeps the outputs safe" in refused.stderr
        after_the_unit = subprocess.run(
            [sys.executable, "-m", "blimp", *words],
            env={**os.environ, "SERVICE_RESULT": "signal"}, check=False,
        )  # fmt: skip
        assert after_the_unit.returncode == 0
