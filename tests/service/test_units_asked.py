"""Every command that asks the ship: as root, the units' user, a member of its group, a stranger.

One boot for all of it, with the ship on the ground and in the air. What each must say is a table.
"""

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from blimp.service.computer.configuration import LOG_DIR
from blimp.service.computer.systemd import FLIGHT, TARGET, WORKER
from tests.service.under_systemd import INSIDE, RUN, USER, System, at_rest, under_systemd

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

CEILING_M = 1.5  # so low that `tune auto` has no room, whatever height the ship is at
MEMBER, STRANGER = "pilot", "stranger"
ASKS = ("root", USER, MEMBER)
TUNE = ("tune", "auto")


class Case(NamedTuple):
    """A command; who runs it; its exit status and what it says, on the ground and in the air.

    Its status is None where it depends on how long the ship has flown.
    """

    words: tuple[str, ...]
    users: tuple[str, ...]
    on_ground: tuple[int | None, str]
    in_air: tuple[int | None, str]


CLOSED = (1, r"flight.sock: Permission denied: be root, or in the group")
ARMED = (1, r"ship is armed: land it and disarm it first")
RUNS = (1, r"its flight process runs, disarmed")
ROOT = (1, r"needs root: sudo blimp ")
CASES = (
    Case(("doctor", "--sim"), ASKS[:2], (0, r"jitter .* of the running loop"),
         (0, r"bus scan +not scanned: the flight process runs and owns the buses")),
    Case(("doctor",), (MEMBER,), (1, r"jitter .* of the running loop"),
         (1, r"bus scan +not scanned: the flight process runs and owns the buses")),
    Case(("doctor",), (STRANGER,), *[(2, "blimp.toml. is not readable")] * 2),
    Case(("bench", "/etc/blimp/ship.toml"), ASKS, (1, r"motor: refused: .*bench"),
         (1, r"the ship is armed: disarm it first")),
    Case(("bench", "/etc/blimp/ship.toml"), (STRANGER,), CLOSED, CLOSED),
    Case(("trim",), ASKS, (1, r"ship has not been weighed yet"),
         (None, r"ship has not been weighed yet|g heavy: take out")),
    Case(("trim",), (STRANGER,), CLOSED, CLOSED),
    Case(TUNE, ASKS, (1, r"disarmed: let it hover in HOLD first"),
         (1, r"the ship (hovers at|is in) .*: (tuning takes|let it hover)")),
    Case(TUNE, (STRANGER,), CLOSED, CLOSED),
    Case(("log", "list", str(LOG_DIR)), ASKS, *[(0, r"ship-\d+-\w+\.mcap")] * 2),
    Case(("safe-state", "--sim"), ASKS, RUNS, ARMED),
    Case(("safe-state", "--sim"), (STRANGER,), *[(1, "cannot be asked, so it may be flying")] * 2),
    Case(("safe-state", "--sim", "--force", "--yes"), ("root",), RUNS, ARMED),
    Case(("uninstall-service",), ASKS[1:], ROOT, ROOT),
    Case(("install-service",), ASKS[1:], ROOT, ROOT),
    Case(("uninstall-service", "--force", "--yes"), ("root",), (0, ""), ARMED),
    Case(("uninstall-service",), ("root",), (0, ""), ARMED),
    Case(("install-service",), ("root",), (0, "systemctl restart"), ARMED),
)  # fmt: skip


# `ground status` on board finds the ship's own broker, for those who may reach it.
GROUND = (
    *((user, 0, "ship") for user in ASKS),
    (STRANGER, 7, r"/etc/blimp/blimp\.toml names.* sudo usermod -aG blimp \$USER"),
)


@pytest.fixture
def system() -> System | None:
    return System(ceiling_m=CEILING_M) if INSIDE in os.environ else None


@under_systemd
def test_root_the_units_user_and_its_group_ask_the_ship_and_nothing_of_theirs_drops_it(
    system: System,
) -> None:
    system.install()
    subprocess.run(["useradd", "--no-create-home", "--groups", USER, MEMBER], check=True)
    subprocess.run(["useradd", "--no-create-home", STRANGER], check=True)
    wrong = []

    system.wait_until_active(FLIGHT, WORKER)
    system.wait_until(system.answers, within_s=60.0)
    for user, status, expected in GROUND:
        ended, said = system.ran("status", user=user, program="ground_station")
        assert (ended, bool(re.search(expected, said))) == (status, True), (
            f"{user}: {ended}: {said}"
        )
    before = {path.name for path in RUN.iterdir()}
    for case in CASES:
        if "install-service" not in case.words[0]:
            wrong += [line for user in case.users if (line := differs(system, case, user))]
    assert {path.name for path in RUN.iterdir()} == before  # nobody has left a file

    system.take_off(1.0)
    pid, dropped = system.pid(FLIGHT), []
    with system.world() as world:
        for case in CASES:
            for user in case.users:
                wrong += [line for line in [differs(system, case, user, in_air=True)] if line]
                if at_rest(world) or system.pid(FLIGHT) != pid:
                    dropped.append(f"{user}: blimp {' '.join(case.words)}")
        assert dropped == []
    assert not wrong, "".join(wrong)

    # A ship that cannot be asked: something has its socket, and does not answer.
    system.systemctl("stop", TARGET)
    with silent(RUN / "flight.sock"):
        for words in (["uninstall-service"], ["install-service"], ["safe-state", "--sim"]):
            said = system.blimp(*words)
            assert "cannot be asked, so it may be flying: the flight process at" in said, said
            assert "does not answer within 2 s" in said
            assert "There is no terminal to ask on: give --yes" in system.blimp(*words, "--force")
        assert system.blimp("safe-state", "--sim", "--force", "--yes") == ""
    for case in [case for case in CASES if "install-service" in case.words[0]]:
        wrong += [line for user in case.users if (line := differs(system, case, user))]
    assert not wrong, "".join(wrong)
    system.wait_until_active(FLIGHT, WORKER)
    assert system.blimp("uninstall-service").startswith(
        "the units are removed; "
    )  # of a ship that runs, on the ground
    assert system.show(FLIGHT, "ActiveState") == "inactive"


def differs(system: System, case: Case, user: str, *, in_air: bool = False) -> str:
    """Run a command; return what is not as the table has it, "" if all is."""
    status, words = case.in_air if in_air else case.on_ground
    ended, said = system.ran(*case.words, user=user)
    if status in (ended, None) and re.search(words, said):
        return ""
    place = "in the air" if in_air else "on the ground"
    return f"{user}, {place}: blimp {' '.join(case.words)}: {ended}: {said}"


@contextmanager
def silent(path: Path) -> Iterator[None]:
    """A process that has a flight process's socket, and does not answer."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(path))
        yield
    path.unlink()
