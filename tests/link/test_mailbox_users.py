"""Who may ask and command a flight process of another user: root and its group, and nobody else."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blimp.clock import SystemClock
from blimp.errors import MailboxError
from blimp.link.mailbox import MailboxClient, MailboxServer, is_served
from blimp.types import Command, Outcome, OutcomeState
from tests.needs import needs_root

OWNER, MEMBER, STRANGER = 61_001, 61_002, 61_003  # of nobody on a machine of Debian's
pytestmark = needs_root("needs other users")


def as_user(act: Callable[[], bool], *, user: int, groups: list[int]) -> int:
    """Run `act` as another user in a process of its own; return its process number.

    It ends with status 0 if `act` says so, 1 if not, 2 after an error.
    """
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            os.umask(0o077)
            os.setgroups(groups)
            os.setgid(user)
            os.setuid(user)
            status = 0 if act() else 1
        finally:
            os._exit(status)
    return pid


@pytest.fixture
def run() -> Iterator[Path]:
    """A runtime directory as systemd makes it for the units' user."""
    path = Path(tempfile.mkdtemp(prefix="b"))
    os.chown(path, OWNER, OWNER)
    path.chmod(0o750)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def flight(run: Path) -> Iterator[Path]:
    """The mailbox of a flight process in small: it says of each command that it is done."""
    ready, ready_end = os.pipe()

    def serve() -> bool:
        with MailboxServer(path=run / "flight.sock", clock=SystemClock()) as server:
            os.write(ready_end, b"x")
            pause = SystemClock()
            while True:
                for command in (*server.emergencies(), *server.receive()):
                    server.post(Outcome(id=command.id, state=OutcomeState.DONE))
                pause.sleep_until(pause.now_s() + 0.001)

    pid = as_user(serve, user=OWNER, groups=[])
    os.close(ready_end)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    yield run / "flight.sock"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def is_obeyed(flight: Path, *names: str) -> bool:
    with MailboxClient(server_path=flight, clock=SystemClock()) as client:
        outcomes = [client.call(Command(id=n, name=n), timeout_s=5.0) for n in names]
    return all(one is not None and one.state is OutcomeState.DONE for one in outcomes)


def is_kept_out(flight: Path) -> bool:
    if is_obeyed(flight, "hold") or is_obeyed(flight, "estop"):
        return False
    try:
        is_served(flight)
    except MailboxError as error:
        return "Permission denied" in str(error)
    return False


@pytest.mark.parametrize("user", [0, OWNER, MEMBER])
def test_root_its_own_user_and_its_group_are_answered_and_leave_no_file(
    flight: Path, user: int
) -> None:
    before = set(flight.parent.iterdir())
    pid = as_user(lambda: is_obeyed(flight, "hold", "estop"), user=user, groups=[OWNER])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert set(flight.parent.iterdir()) == before


def test_a_stranger_is_kept_out(flight: Path) -> None:
    pid = as_user(lambda: is_kept_out(flight), user=STRANGER, groups=[])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_group_commands_no_ship_in_a_directory_that_everybody_may_read(run: Path) -> None:
    """As a person makes it, whose group may have everybody of the machine in it."""
    run.chmod(0o755)

    with MailboxServer(path=run / "flight.sock", clock=SystemClock()):
        for name in ("flight.sock", "estop.sock"):
            os.chown(run / name, OWNER, OWNER)
        pid = as_user(lambda: is_kept_out(run / "flight.sock"), user=MEMBER, groups=[OWNER])
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_root_has_left_there_keeps_no_flight_process_from_starting(run: Path) -> None:
    """As of a `sudo blimp doctor` that was killed: its user may not even ask whether it is used."""
    with MailboxServer(path=run / "flight.sock", clock=SystemClock()):
        for name in ("flight.sock", "estop.sock"):
            os.link(run / name, run / f"{name}.left")
    for name in ("flight.sock", "estop.sock"):
        os.rename(run / f"{name}.left", run / name)
        os.chown(run / name, 0, 0)
        (run / name).chmod(0o600)

    def starts() -> bool:
        with MailboxServer(path=run / "flight.sock", clock=SystemClock()):
            return {path.stat().st_uid for path in run.iterdir()} == {OWNER}

    pid = as_user(starts, user=OWNER, groups=[])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
