"""Tests under a real systemd: PID 1 of a PID namespace, with this project's units in it.

A test marked with `under_systemd` runs twice: outside it starts `systemd-sandbox` with a second
pytest that runs the same test inside, where `systemctl` and `journalctl` speak to that systemd.
Inside, the clone is at a place that every unit sees, and the interpreter can be read by every user:
the units run as their own user, as on board.
"""

import contextlib
import io
import json
import os
import pty
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial, wraps
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import pytest

from blimp.link.paths import LOCAL_BROKER
from blimp.service.computer.configuration import Configuration
from blimp.service.computer.systemd import CAMERA, FLIGHT, UNIT_DIR, UNITS, plan_install
from blimp.service.files import write_whole
from blimp.sim.remote import RemoteWorld
from blimp.tasks.client import VehicleClient
from ground_station.cli import run
from tests.forked import forked
from tests.needs import not_run
from tests.repeating import until

ROOT = Path(__file__).parents[2]
INSIDE = "BLIMP_TEST_INSIDE_SYSTEMD"
SANDBOX = Path(__file__).with_name("systemd-sandbox")
CLONE = Path("/srv/blimp")  # inside
USER = "blimp"
CONFIG = Path("/etc/blimp/blimp.toml")  # inside: a copy of this machine's /etc
TAKEOFFS = int(os.environ.get("BLIMP_TEST_TAKEOFFS", "2"))  # of the campaign of two programs
LIMIT_S = 300 + 30 * TAKEOFFS
RUN = Path("/run/blimp")

T = TypeVar("T")

_SIMULATED = """
[Unit]
Wants=blimp-world.service
After=blimp-world.service

[Service]
Environment=PYTHONPATH={root}
"""

_WORLD = """
[Service]
Type=notify
ExecStart={python} -m blimp sim --airframe {airframe} --runtime-dir {run}
Environment=PYTHONPATH={root}
# Real chips answer at once, whatever else the computer does.
CPUSchedulingPolicy=fifo
CPUSchedulingPriority=60
User={user}
RuntimeDirectory=blimp
RuntimeDirectoryMode=0750
RuntimeDirectoryPreserve=yes
"""


def under_systemd(test: Callable[..., None]) -> Callable[..., None]:
    """Run `test` under a real systemd; it must have the parameter `system`."""

    @wraps(test)
    def run(system: "System | None") -> None:
        if system is not None:
            test(system)
            return
        need_systemd()
        name = f"{Path(test.__code__.co_filename).relative_to(ROOT)}::{test.__name__}"
        ended = subprocess.run(
            [str(SANDBOX), str(ROOT), str(LIMIT_S), *readable(), "--",
             "env", f"{INSIDE}=1", str(seen_inside(Path(sys.executable))),
             "-m", "pytest", "-qs", "--tb=short", "--noconftest", "-p", "no:cacheprovider",
             "-p", "no:xdist", "-o", f"faulthandler_timeout={LIMIT_S - 30}", name],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]

    return run


def need_systemd() -> None:
    """Skip if no systemd can be run here, and under CI fail."""
    if why := no_systemd():
        raise not_run(why)


def no_systemd() -> str:
    """Return why no systemd can be run as the sandbox runs one; "" if it can."""
    if os.getuid() != 0:
        return "the units under systemd: needs root"
    if not Path("/lib/systemd/systemd").exists():
        return "the units under systemd: no systemd here: apt-get install systemd"
    tried = ["unshare", "--pid", "--fork", "--mount", "--ipc", "--uts", "--cgroup",
             "mount", "-t", "tmpfs", "tmpfs", "/run"]  # fmt: skip
    ended = subprocess.run(tried, capture_output=True, text=True, check=False)
    return f"the units under systemd: {ended.stderr.strip()}" if ended.returncode else ""


def readable() -> list[str]:
    """Return the directories of the interpreter, where they are not in the clone."""
    found = {Path(sys.base_prefix), Path(sys.prefix)}
    return [str(path) for path in sorted(found) if not path.is_relative_to(ROOT)]


def seen_inside(path: Path) -> Path:
    return CLONE / path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def check_readable(user: str) -> None:
    """Fail unless `user` can run this interpreter with this project."""
    account = pwd.getpwnam(user)
    try:
        subprocess.run(
            [sys.executable, "-c", "import blimp.cli"], user=account.pw_uid,
            group=account.pw_gid, extra_groups=[], cwd="/", check=True, capture_output=True,
            text=True, env={"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.fail(
            f"{user}: that user cannot read the interpreter, {sys.executable}, or {ROOT}: "
            f"{getattr(error, 'stderr', error)}",
            pytrace=False,
        )


class System:
    """The units of one ship in this systemd, flown in a simulated world. Made inside only."""

    def __init__(
        self, *, broker: str = LOCAL_BROKER, ceiling_m: float = 30.0, flown: str = "twin"
    ) -> None:
        self.broker = broker
        CONFIG.parent.mkdir()
        self.airframe = str(CONFIG.with_name("ship.toml"))
        # A ship that a restart finds in the air would fly on, armed, to land: how soon its
        # sensors see it there is no matter of the units.
        text = (resources.files("blimp.airframes") / f"{flown}.toml").read_text("utf-8")
        assert "max_altitude_m = 30.0" in text or flown != "twin"
        text = text.replace("max_altitude_m = 30.0", f"max_altitude_m = {ceiling_m}")
        lines = 'resume_after_crash = "never"\n' + text
        write_whole(Path(self.airframe), lines, mode=0o644)
        self.configure()
        plan = plan_install(
            Configuration(broker=broker, airframe=self.airframe), config_path=CONFIG, user=USER
        )
        self._texts = {Path(file.path).name: file.text for file in plan.files}
        for file in plan.files:
            if file.path.endswith(".service"):
                self._drop_in(Path(file.path).name, file.text)
        (UNIT_DIR / "blimp-world.service").write_text(
            _WORLD.format(
                python=sys.executable, run=RUN, root=ROOT, user=USER, airframe=self.airframe
            )
        )
        self.systemctl("daemon-reload")

    def configure(self, **more: str) -> None:
        """Write the configuration file."""
        keys = {"vehicle": "ship", "broker": self.broker, "airframe": self.airframe, **more}
        text = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
        write_whole(CONFIG, text, mode=0o600)

    def _drop_in(self, name: str, text: str) -> None:
        """Have the unit fly in the world: the same commands with --sim."""
        lines = _SIMULATED.format(root=ROOT)
        if name == FLIGHT:
            # A loaded machine may need longer than its minute for ten starts.
            lines += "[Unit]\nStartLimitIntervalSec=600\n[Service]\n"
        if name in (FLIGHT, CAMERA):
            for line in text.splitlines():
                key, _, command = line.partition("=")
                if key in ("ExecStart", "ExecStopPost"):
                    lines += f"{key}=\n{key}={command} --sim\n"
        folder = UNIT_DIR / f"{name}.d"
        folder.mkdir()
        (folder / "simulated.conf").write_text(lines)

    def unit(self, name: str) -> list[str]:
        """Return the lines of a unit as `install-service` writes it."""
        return self._texts[name].splitlines()

    # --- commands -------------------------------------------------------------------------

    def blimp(self, *words: str) -> str:
        """Run a command as root; return what it says on standard error."""
        command = [sys.executable, "-m", "blimp", *words]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60.0
        ).stderr

    def ran(self, *words: str, user: str, program: str = "blimp") -> tuple[int, str]:
        """Run a command as a user with its groups, at a terminal on which nobody types.

        Returns its exit status, and what it says.
        """
        person, terminal = pty.openpty()
        try:
            status, said, why = forked(
                program, *words, environment=os.environ, user=user, typed=terminal
            )
        finally:
            os.close(person)
            os.close(terminal)
        return status, said + why

    def install(self) -> None:
        assert "the units are written and run; next: " in self.blimp("install-service")
        check_readable(USER)

    def examined(self) -> list[dict[str, str]]:
        """Return what `blimp doctor` finds."""
        words = ["doctor", "--sim", "--json"]
        report = json.loads(_output([sys.executable, "-m", "blimp", *words], check=False))
        return list(report["findings"])

    def ground(self, *words: str) -> dict[str, Any]:
        """Run a command of the ground station, in this process: its start is not under test."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            run(["--json", "--broker", self.broker, "--vehicle", "ship", *words])
        answer = json.loads(printed.getvalue())
        assert isinstance(answer, dict)
        return answer

    def run_ground(self, *words: str) -> str:
        """Run a command of the ground station as a program of its own; return how it ended."""
        options = ["--json", "--broker", self.broker, "--vehicle", "ship"]
        command = [sys.executable, "-m", "ground_station", *options, *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120.0)
        found = json.loads(ended.stdout)
        return f"{found['state']} {found['reason']}".strip()

    def answers(self) -> bool:
        return bool(self.ground("ping")["state"] == "SUCCESS")

    def systemctl(self, *words: str) -> str:
        try:
            return _output(["systemctl", *words])
        except AssertionError as error:
            raise AssertionError(f"{error}{self.journal('blimp-*')[-4000:]}") from None

    def journal(self, unit: str) -> str:
        return _output(["journalctl", "--no-pager", "--output=short-precise", f"--unit={unit}"])

    # --- units ----------------------------------------------------------------------------

    def show(self, unit: str, key: str) -> str:
        return self.systemctl("show", "--value", f"--property={key}", unit).strip()

    def pid(self, unit: str) -> int:
        return int(self.show(unit, "MainPID"))

    def is_active(self, unit: str) -> bool:
        return self.show(unit, "ActiveState") == "active"

    def has_failed(self, unit: str) -> bool:
        return self.show(unit, "ActiveState") == "failed"

    def has_begun_or_failed(self, unit: str) -> bool:
        return self.pid(unit) > 0 or self.has_failed(unit)

    def runs_no_more(self, unit: str, pid: int) -> bool:
        return self.pid(unit) != pid

    def wait_until_active(self, *units: str, within_s: float = 90.0) -> None:
        for unit in units:
            self.wait_until(partial(self.is_active, unit), within_s=within_s)

    def wait_until_other_pid(self, unit: str, pid: int) -> None:
        """Wait until `unit` runs again, as another process than `pid`."""
        self.wait_until(lambda: self.pid(unit) not in (0, pid), within_s=60.0)
        self.wait_until_active(unit)

    def wait_until(self, holds: Callable[[], T], *, within_s: float) -> T:
        """Return the first true value of `holds()`, asked again and again until a deadline."""
        try:
            return until(holds, within_s=within_s)
        except TimeoutError as error:
            raise AssertionError(f"not within {within_s} s:\n{self._state()}") from error

    def _state(self) -> str:
        return _output(["systemctl", "status", "--no-pager", "--lines=20", *UNITS], check=False)

    # --- the world ------------------------------------------------------------------------

    def world(self) -> RemoteWorld:
        return RemoteWorld(RUN / "world.sock")

    def take_off(self, altitude_m: float = 2.0) -> None:
        """Have the motors turn in the air."""
        self.wait_until(lambda: self.ground("arm")["state"] == "SUCCESS", within_s=60.0)
        with self.world() as world, VehicleClient(self.broker, "ship") as client:
            # Refused as long as no position is known, which may be a moment after the start.
            self.wait_until(partial(_is_heard, client, altitude_m), within_s=60.0)
            self.wait_until(lambda: world.truth().altitude_m > 0.5, within_s=90.0)
            assert not at_rest(world)


def _is_heard(client: VehicleClient, altitude_m: float) -> bool:
    """Whether a takeoff is not refused at once: it takes longer than that."""
    return client.send("takeoff", {"altitude_m": altitude_m}).wait(timeout_s=2.0).state != "REFUSED"


def at_rest(world: RemoteWorld) -> bool:
    outputs = world.outputs()
    return all(outputs[name] == 0.0 for name in ("left", "right", "tail"))


@contextlib.contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Have nobody write below `directory`, root neither."""
    for words in (("--bind", str(directory)), ("-o", "remount,bind,ro")):
        _output(["mount", *words, str(directory)])
    try:
        yield
    finally:
        _output(["umount", str(directory)])


def _output(words: list[str], *, check: bool = True) -> str:
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60.0)
    assert not check or ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
    return ended.stdout
