"""Where no systemd can be run its tests say so at once; and none runs the units as root instead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import needs_root
from tests.service.under_systemd import ROOT, check_readable, no_systemd, seen_inside

ONE_TEST = (
    "tests/service/test_units.py::test_a_boot_without_the_broker_waits_for_it_and_keeps_its_key"
)
pytestmark = needs_root("drops a right of root")


@pytest.mark.parametrize(
    ("ci", "status", "said"), [("", 0, "NOT RUN: the units under systemd: unshare: "), ("1", 1, "")]
)
def test_without_the_right_to_make_namespaces_it_is_not_run_and_under_ci_fails(
    ci: str, status: int, said: str
) -> None:
    ended = subprocess.run(
        ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin",
         sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", ONE_TEST],
        cwd=ROOT, env={**os.environ, "CI": ci}, capture_output=True, text=True, check=False,
        timeout=60.0,
    )  # fmt: skip
    assert ended.returncode == status, ended.stdout
    assert said in ended.stdout
    assert "the units under systemd: unshare: " in ended.stdout
    assert "Operation not permitted" in ended.stdout


def test_without_root_it_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert no_systemd() == "the units under systemd: needs root"


def test_an_interpreter_that_the_user_cannot_read_fails_with_these_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "python"  # pytest's directories are of mode 0700
    hidden.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(hidden))
    with pytest.raises(
        pytest.fail.Exception, match="nobody: that user cannot read the interpreter"
    ):
        check_readable("nobody")


def test_the_clone_is_at_one_place_inside_wherever_it_is() -> None:
    assert seen_inside(ROOT / ".venv/bin/python") == Path("/srv/blimp/.venv/bin/python")
    assert seen_inside(Path("/usr/bin/python3")) == Path("/usr/bin/python3")
