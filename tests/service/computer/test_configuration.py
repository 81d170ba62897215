"""The on-board configuration: read, checked, and taken by the command line."""

from importlib import resources
from pathlib import Path

import pytest

from blimp.errors import ConfigError
from blimp.link.paths import BROKER_DIR, LOCAL_BROKER, socket_url
from blimp.service.commands.terminal import WRONG_CONFIGURATION
from blimp.service.computer import systemd
from blimp.service.computer.configuration import (
    Configuration,
    parse_configuration,
    read_configuration,
)
from tests.forked import blimp


def test_an_empty_one_is_the_default_ship_with_a_broker_of_its_own() -> None:
    configuration = parse_configuration("", where="x")
    assert configuration == Configuration()
    assert configuration.has_local_broker
    assert configuration.broker == socket_url(BROKER_DIR)
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
    ended = blimp(*command, "--config", path, "--runtime-dir", tmp_path)
    assert (ended.returncode, ended.stdout) == (status, "")
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


@pytest.mark.parametrize("unit", [systemd.WORKER, systemd.RELAY, systemd.RECORDER, systemd.MAVLINK])
def test_a_unit_that_starts_for_ever_knows_the_status_that_ends_it(unit: str) -> None:
    text = (resources.files("blimp.service") / "units" / unit).read_text("utf-8")
    lines = text.splitlines()
    assert "Restart=always" in lines
    assert f"RestartPreventExitStatus={WRONG_CONFIGURATION}" in lines
