"""What this machine lacks is said with its reason by a person's run, and fails under CI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("1", 1)])
def test_what_needs_root_is_not_run_by_a_user_and_fails_under_ci(
    tmp_path: Path, ci: str, status: int
) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "import pytest\nfrom tests.needs import needs_root, not_run\n"
        "@needs_root('changes an owner')\ndef test_it(): pass\n"
        "@pytest.fixture\ndef moon(): raise not_run('no moon here')\n"
        "def test_one(moon): pass\ndef test_other(moon): pass\n"
    )
    tmp_path.joinpath("conftest.py").write_text("import os\nos.getuid = lambda: 1000\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "tests.conftest", "-p", "no:cacheprovider",
         "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT, env={**os.environ, "CI": ci}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert ("NOT RUN: changes an owner: needs root" in ended.stdout) == (not ci)
    assert "changes an owner: needs root" in ended.stdout
    found = [line for line in ended.stdout.splitlines() if "NOT RUN: no moon here" in line]
    assert [line.split()[:2] for line in found] == ([] if ci else [["SKIPPED", "[2]"]])
