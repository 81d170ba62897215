"""`blimp init`: one commented file, a key for its owner alone, and nothing overwritten."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from blimp.config import read_signing_keys
from blimp.errors import AirframeError, ConfigError
from blimp.link.paths import LOCAL_BROKER
from blimp.service.computer.configuration import Configuration, read_configuration
from blimp.service.computer.initialise import (
    Question,
    Wishes,
    as_text,
    ask_until_usable,
    initialise,
    take_defaults,
)
from blimp.service.files import write_whole
from tests.forked import ran
from tests.needs import needs_root

REMOTE = 'redis://me:pa"ss\\@ground.example/0'


def written(path: Path, *, force: bool = False, **wishes: Any) -> Configuration:
    initialise(path, Wishes(**wishes), ask=take_defaults, force=force)
    return read_configuration(path)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_defaults_are_a_ship_with_its_own_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "etc" / "blimp.toml"
    monkeypatch.setattr(
        "blimp.service.computer.initialise.CONFIG_PATH", path
    )  # its directory is made
    assert written(path) == Configuration(vehicle="twin", broker=LOCAL_BROKER)
    assert mode(path) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["blimp.toml"]  # no draft, and no key
    text = path.read_text()
    for key in ("airframe", "vehicle", "broker", "# signing_key_file"):
        above = text.partition(f"\n{key} = ")[0].splitlines()[-1]
        assert above.startswith("# "), f"{key} has no comment"


@needs_root("gives a file to another group")
def test_a_file_that_the_units_read_is_replaced_by_one_that_they_read(tmp_path: Path) -> None:
    """A flight process that died in the air is restarted, and reads it."""
    path = tmp_path / "blimp.toml"
    written(path)
    os.chown(path, 0, 61_001)  # as install-service does it
    path.chmod(0o640)
    written(path, force=True, vehicle="other")
    assert (path.stat().st_gid, mode(path)) == (61_001, 0o640)
    path.chmod(0o666)
    written(path, force=True)
    assert mode(path) == 0o640  # no stranger reads a password, also of a file that one could read


def test_a_broker_on_the_network_gets_a_key(tmp_path: Path) -> None:
    path = tmp_path / "blimp.toml"
    configuration = written(path, broker=REMOTE, airframe="gtmab", vehicle="red")
    key = tmp_path / "signing.key"
    assert configuration == Configuration(
        airframe="gtmab", vehicle="red", broker=REMOTE, signing_key_file=str(key)
    )
    assert mode(key) == 0o600
    (secret,) = read_signing_keys(key)
    assert len(secret) == 43
    assert secret not in path.read_text()

    with pytest.raises(ConfigError, match="exists already: --force replaces it"):
        written(path)
    assert read_configuration(path) == configuration
    written(path, force=True, sign=True)
    assert read_signing_keys(key) == (secret,)  # ground stations have it
    written(path, force=True, sign=True, new_key=True)
    assert read_signing_keys(key)[1:] == (secret,)  # and are still heard with it


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"airframe": "zeppelin"}, "no airframe 'zeppelin'"),
        ({"vehicle": "My Ship"}, "vehicle: 'My Ship' cannot name a ship"),
        ({"broker": "localhost"}, "'localhost' is not a URL"),
        ({"broker": "redis://h:x/0", "sign": True}, "Port could not be cast"),
        ({"broker": "rediss:/host", "sign": True}, "'rediss:/host' is not a URL"),
        ({"broker": "http://host", "sign": True}, "'http://host': its scheme must be one of"),
    ],
)
def test_an_answer_that_cannot_be_used_writes_nothing(
    tmp_path: Path, wishes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        written(tmp_path / "blimp.toml", **wishes)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_typed_wrong_is_named_and_not_made(tmp_path: Path) -> None:
    def ask(_: Question) -> str:
        raise AssertionError("asked before the path was looked at")

    path = tmp_path / "ect" / "blimp.toml"
    with pytest.raises(ConfigError, match=f"{path} cannot be written: no directory {path.parent}"):
        initialise(path, Wishes(), ask=ask, force=False)
    with pytest.raises(ConfigError, match=f"{path} cannot be written: No such file or directory"):
        write_whole(path, "")
    assert list(tmp_path.iterdir()) == []


def test_a_person_is_asked_again_after_a_bad_answer() -> None:
    answers = iter(["zeppelin", " twin "])
    said: list[str] = []

    def load(name: str) -> None:
        if name != "twin":
            raise AirframeError(f"no airframe {name}")

    ask = ask_until_usable(lambda text, default: next(answers), say=said.append)
    assert ask(Question("Airframe", "gtmab", load)) == "twin"
    assert said == ["no airframe zeppelin"]


def test_on_a_terminal_it_asks_and_without_one_it_takes_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "blimp.toml"
    command = [sys.executable, "-m", "blimp", "init", "--json", "--config", str(path)]
    here, there = pty.openpty()
    try:
        os.write(here, b"gtmab\nMy Ship\nred\n\nno\n")
        asked = ran(command, stdin=there, timeout=60)
    finally:
        os.close(here)
        os.close(there)
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == {"config": str(path), "signing_key_file": None}
    assert "Name of the ship [gtmab]: " in asked.stderr
    assert "'My Ship' cannot name a ship" in asked.stderr
    assert read_configuration(path) == Configuration(
        airframe="gtmab", vehicle="red", broker=LOCAL_BROKER
    )
    again = ran([*command, "--force"], stdin=subprocess.DEVNULL, timeout=60, check=True)
    assert again.stderr == ""
    assert read_configuration(path).airframe == "twin"


def test_a_configuration_is_read_as_it_was_written(tmp_path: Path) -> None:
    odd = Configuration(
        airframe="/srv/ähm \"x\".toml", vehicle="a", broker="redis://u:\u007f%22@h/0",
        signing_key_file="/etc/k y",
    )  # fmt: skip
    path = tmp_path / "blimp.toml"
    path.write_text(as_text(odd), encoding="utf-8")
    assert read_configuration(path) == odd
