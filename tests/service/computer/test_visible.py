"""What the units could not read is refused before it is installed, with the place and cure."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import blimp
from blimp.errors import ConfigError
from blimp.service.computer.configuration import Configuration
from blimp.service.computer.visible import check_visible
from tests.needs import needs_root

pytestmark = needs_root("makes files of root")
CONFIG = Path("/etc/blimp.toml")


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that is not below /tmp."""
    with tempfile.TemporaryDirectory(dir="/run") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture(autouse=True)
def _readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Pi: Debian's Python, and a program that everybody may read."""
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(blimp, "__file__", "/usr/lib/os-release")


def check(*, config: Path = CONFIG, airframe: str = "twin", python: str = "/usr/bin/env") -> None:
    check_visible(
        Configuration(airframe=airframe), config_path=config, user="nobody", python=python
    )


def test_a_readable_ship_is_installed(outside: Path) -> None:
    mine = outside / "mine.toml"
    mine.touch(mode=0o644)
    check(airframe=str(mine), config=outside / "blimp.toml")


def test_what_is_below_tmp_is_not_in_a_unit(outside: Path, tmp_path: Path) -> None:
    (tmp_path / "python").touch()
    words = r"the program is \S+/python: units have a /tmp of their own \(PrivateTmp\).*/opt/blimp"
    with pytest.raises(ConfigError, match=words):
        check(python=str(tmp_path / "python"))
    (outside / "python").symlink_to(tmp_path / "python")
    with pytest.raises(ConfigError, match=words):
        check(python=str(outside / "python"))
    with pytest.raises(ConfigError, match=r"the configuration is /tmp\S+: .* keep it in /etc"):
        check(config=tmp_path / "blimp.toml")


def test_what_the_user_may_not_read_is_named_with_the_directory_that_is_closed(
    outside: Path,
) -> None:
    home = outside / "root"
    home.mkdir(mode=0o700)
    (home / "python").touch(mode=0o755)
    with pytest.raises(
        ConfigError, match=rf"the user 'nobody' may not read {home} \(mode 700\): move it to .*/opt"
    ):
        check(python=str(home / "python"))
    mine = outside / "mine.toml"
    mine.touch(mode=0o600)
    with pytest.raises(ConfigError, match=rf"the airframe is {mine}, but .* \(mode 600\): keep it"):
        check(airframe=str(mine))
    with pytest.raises(ConfigError, match=f"{outside}/none.toml: No such file"):
        check(airframe=str(outside / "none.toml"))


def test_a_program_that_the_user_may_not_execute_is_refused(outside: Path) -> None:
    python = outside / "python"
    python.touch(mode=0o644)
    words = rf"the user 'nobody' may not execute {python} \(mode 644\): move it to .*/opt"
    with pytest.raises(ConfigError, match=words):
        check(python=str(python))
    python.chmod(0o711)
    check(python=str(python))


def test_the_interpreter_that_an_environment_was_made_of_must_be_open_too(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of uv or pyenv: below /root, while the environment is in /opt."""
    root = outside / "root"
    base = root / ".local" / "python"
    base.mkdir(parents=True)
    (base / "python3").touch(mode=0o755)
    root.chmod(0o700)
    (outside / "python").symlink_to(base / "python3")
    words = rf"the program is \S+, but the user 'nobody' may not read {root} \(mode 700\)"
    with pytest.raises(ConfigError, match=words):
        check(python=str(outside / "python"))
    monkeypatch.setattr(sys, "base_prefix", str(base))  # a copied python has its library there
    with pytest.raises(ConfigError, match=rf"the program's Python is {base}, but .* read {root} "):
        check()
