"""`ground` refuses a package `ground_station` that is another distribution's."""

import subprocess
import sys
from pathlib import Path

import pytest

from blimp import ground
from blimp.errors import ConfigError
from tests.forked import ran

ROOT = Path(__file__).parents[1]
RUN = "from blimp.ground import main; main()"


def run_with(first: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the console script with `first` before all others that Python looks in."""
    code = f"import sys; sys.path[:0] = [{str(first)!r}, {str(ROOT)!r}]; {RUN}"
    return ran([sys.executable, "-P", "-c", code, *words], cwd="/", timeout=60)


def test_a_package_of_that_name_elsewhere_is_refused_before_it_runs(tmp_path: Path) -> None:
    package = tmp_path / "ground_station"
    package.mkdir()
    (package / "__init__.py").write_text("print('somebody else')\n")
    info = tmp_path / "antenna-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: antenna\nVersion: 1.0\n")
    (info / "RECORD").write_text("ground_station/__init__.py,,\n")
    ended = run_with(tmp_path, "estop")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"ground_station in {package} is not blimp-autopilot's but of antenna" in ended.stderr
    assert "environment of its own" in ended.stderr


def test_our_directory_with_their_file_in_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("ground_station.DISTRIBUTION")
    with pytest.raises(ConfigError, match="is not blimp-autopilot's"):
        ground.check_package()


def test_ours_runs(tmp_path: Path) -> None:
    ended = run_with(tmp_path, "--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "(commit " in ended.stdout
