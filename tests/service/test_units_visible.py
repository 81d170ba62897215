"""install-service tries the program as units would run it, and refuses what they could not read.

One boot for all. What the mode of a directory tells is in `test_visible.py`.
"""

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from blimp.service.computer.systemd import FLIGHT, TARGET, UNIT_DIR
from tests.forked import ran
from tests.service.under_systemd import INSIDE, ROOT, USER, System, under_systemd

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

COPY = Path("/srv/copy")  # inside: nobody else's


@pytest.fixture
def system() -> System | None:
    return System() if INSIDE in os.environ else None


def refused(*, home: Path = COPY) -> str:
    """Return what install-service of a copy of the program says."""
    ended = ran(
        [sys.executable, "-m", "blimp", "install-service"],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(home)},
        timeout=120.0,
    )
    return ended.stderr if ended.returncode else ""


@under_systemd
def test_what_the_units_could_not_read_is_found_by_trying_it_as_they_run(system: System) -> None:
    for name in ("blimp", "ground_station"):
        shutil.copytree(ROOT / name, COPY / name, ignore=shutil.ignore_patterns("__pycache__"))
    module = COPY / "blimp" / "cli.py"
    module.chmod(0o600)  # as pip leaves it under umask 077
    said = refused()
    assert "tried as the user 'nobody', closed in as the units are: " in said, said  # no blimp yet
    assert f"Permission denied: '{module}'" in said
    assert f"sudo chmod -R a+rX {COPY}/blimp, or move" in said
    assert not (UNIT_DIR / FLIGHT).exists()
    module.chmod(0o644)

    subprocess.run(["useradd", "--system", "--user-group", USER], check=True)
    file = COPY / "blimp" / "airframes" / "twin.toml"  # no module: no import finds it
    file.chmod(0o600)
    assert f"tried as the user 'blimp', closed in as the units are: {file} is not r" in refused()
    file.chmod(0o640)
    os.chown(file, 0, pwd.getpwnam(USER).pw_gid)  # its group may

    airframe = Path("/srv/mine.toml")
    shutil.copy(ROOT / "blimp" / "airframes" / "twin.toml", airframe)
    airframe.chmod(0o604)
    system.configure(airframe=str(airframe))
    assert refused() == ""
    system.systemctl("stop", TARGET)

    file.chmod(0o644)
    home = Path("/home/blimp-test")
    home.mkdir(mode=0o700)
    try:
        shutil.copytree(COPY, home, dirs_exist_ok=True)
        home.chmod(0o700)
        said = refused(home=home)
        assert (
            f"the program is {home}/blimp, but the user 'blimp' may not read {home} (mode 700)"
            in said
        )
        home.chmod(0o755)  # ProtectHome=read-only
        assert refused(home=home) == ""
    finally:
        shutil.rmtree(home)
