"""The on-board configuration: read, checked, and taken by the command line."""

import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from blimp.errors import BlimpError, ConfigError
from blimp.service.commands.terminal import WRONG_CONFIGURATION
from blimp.service.computer import systemd
from blimp.service.computer.configuration import (
    LOCAL_BROKER,
    Configuration,
    parse_configuration,
    read_configuration,
)

ROOT = Path(__file__).parents[3]


def test_an_empty_one_is_the_default_ship_with_a_broker_of_its_own() -> None:
    configuration = parse_configuration("", where="x")
    assert configuration == Configuration()
    assert configuration.has_local_broker
    assert configuration.options() == {
        "airframe": "twin", "vehicle": "twin", "broker": LOCAL_BROKER
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("airframe = 5", r"ship\.toml: Expected `str`, got `int` - at `\$\.airframe`"),
        ("wings = 2", "unknown field `wings`"),
        ('vehicle = "My Ship"', r"ship\.toml: vehicle: 'My Ship' cannot name a ship"),
        ('airframe = "mine.toml"', "airframe 'mine.toml' must be an absolute path"),
        ('signing_key_file = "key"', "signing_key_file 'key' must be an absolute path"),
        ('broker = ""', r"length >= 1 - at `\$\.broker`"),
        ('broker = "redis://h:x/0"', r"ship\.toml: broker URL .* Port could not be cast"),
        ('broker = "foo://bar"', r"ship\.toml: broker URL 'foo://bar': its scheme must be one of"),
        ('broker = "memory://"', r"ship\.toml: broker URL 'memory://': its scheme must be one of"),
        ("broker", r"ship\.toml: Expected '='"),
        ("config_version = 0", r"ship\.toml: config_version 0: must be 1, or left out"),
        ('config_version = "1"', r"ship\.toml: config_version '1': must be 1, or left out"),
        (
            'config_version = 2\nunheard_of = "key"',
            r"ship\.toml: written for a newer blimp \(config_version 2, this program reads 1\): "
            "upgrade the program, or write the file again: sudo blimp init --force",
        ),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "ship.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_configuration(path)


def test_a_version_may_stand_in_it_and_an_old_file_has_none() -> None:
    assert parse_configuration("config_version = 1", where="x") == parse_configuration(
        "", where="x"
    )


def test_the_environment_goes_before_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configuration = Configuration(vehicle="ship", signing_key_file="/etc/blimp/signing.key")
    assert configuration.options()["signing_key_file"] == "/etc/blimp/signing.key"
    key = tmp_path / "key"
    key.write_text("x" * 43)
    key.chmod(0o600)
    monkeypatch.setenv("BLIMP_SIGNING_KEY_FILE", str(key))
    monkeypatch.setenv("BLIMP_BROKER_URL", "redis://there")
    options = configuration.options()
    assert options == {"airframe": "twin", "vehicle": "ship", "broker": "redis://there"}


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BlimpError, match="No such file"):
        read_configuration(tmp_path / "none.toml")


UNITS = (("fly",), ("worker",), ("relay",), ("log", "record"))
NEWER, ONE_KEY = "config_version = 2", 'vehicle = "Twin 1"'


@pytest.mark.parametrize(
    ("command", "text", "status"),
    [
        *[(command, NEWER, 2) for command in UNITS],
        (("worker",), ONE_KEY, 2),
        (("worker",), 'airframe = "twim"', 2),
        (("worker",), 'airframe = "/nonexistent/ship.toml"', 1),
        (("worker",), None, 1),
    ],
)
def test_what_no_restart_cures_has_the_status_of_a_wrong_command_line(
    command: tuple[str, ...], text: str | None, status: int, tmp_path: Path
) -> None:
    """A unit is restarted unless it ended with 2: a file that is missing may come back."""
    path = tmp_path / "ship.toml"
    if text is not None:
        path.write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "blimp", *command, "--config", path, "--runtime-dir", tmp_path],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (status, "")
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


RIGHT = 'broker = "unix:///nonexistent/broker.sock"\n'
STRANGERS = 'broker = "redis://192.0.2.1"\n'  # RFC 5737: nobody's


@pytest.mark.parametrize(
    ("command", "text", "environment", "status"),
    [
        (("worker",), STRANGERS, {}, 2),
        (("relay",), STRANGERS, {}, 2),
        (("worker",), RIGHT, {"BLIMP_SIGNING_KEY": " "}, 2),
        (("relay",), RIGHT, {"BLIMP_SIGNING_KEY_FILE": "open.key"}, 2),
        (("worker",), RIGHT, {"BLIMP_SIGNING_KEY_FILE": "missing.key"}, 1),
        (("log", "record"), "", {"BLIMP_LOG_MB": "many"}, 2),
        (("log", "record"), "", {"BLIMP_LOG_MB": "3"}, 2),
        (("mavlink",), RIGHT, {}, 2),
        (("mavlink", "--listen", "udp:127.0.0.1:0"), STRANGERS, {}, 2),
        (
            ("mavlink", "--listen", "udp:127.0.0.1:0", "--mavlink-key-file", "open.key"),
            RIGHT,
            {},
            2,
        ),
    ],
)
def test_a_wrong_key_broker_or_variable_is_not_started_again_and_again(
    command: tuple[str, ...],
    text: str,
    environment: dict[str, str],
    status: int,
    tmp_path: Path,
) -> None:
    """What is found out only after the configuration is read has its status, too."""
    (tmp_path / "ship.toml").write_text(text)
    (tmp_path / "open.key").write_text("x" * 43)
    (tmp_path / "open.key").chmod(0o644)
    where = () if command[0] == "mavlink" else ("--runtime-dir", tmp_path)
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("BLIMP_")}
    ended = subprocess.run(
        [sys.executable, "-m", "blimp", *command, "--config", tmp_path / "ship.toml", *where],
        capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (status, "")
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith("blimp: ")


@pytest.mark.parametrize("unit", [systemd.WORKER, systemd.RELAY, systemd.RECORDER, systemd.MAVLINK])
def test_a_unit_that_starts_for_ever_knows_the_status_that_ends_it(unit: str) -> None:
    text = (resources.files("blimp.service") / "units" / unit).read_text("utf-8")
    lines = text.splitlines()
    assert "Restart=always" in lines
    assert f"RestartPreventExitStatus={WRONG_CONFIGURATION}" in lines
