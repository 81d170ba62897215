"""`blimp keys`, and brokers off the machine: refused by every process without TLS and a key."""

import os
from pathlib import Path

import pytest

from blimp.config import read_signing_keys
from blimp.errors import ConfigError, MessageError
from blimp.queue.protocol.signing import Signer
from blimp.service.commands.terminal import WRONG_CONFIGURATION
from blimp.service.computer import keys
from ground_station import cli as ground
from tests.forked import blimp


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BLIMP_SIGNING_KEY", "BLIMP_SIGNING_KEY_FILE", "BLIMP_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)


def test_a_new_key_is_for_its_user_alone_and_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    made = blimp("keys", "new", "--out", str(path))
    assert made.returncode == 0
    assert made.stderr.startswith(f"{path} written; next: copy it to ship and ground")
    assert path.stat().st_mode & 0o777 == 0o600
    (key,) = read_signing_keys(path)
    assert made.stdout == f"{keys.fingerprint(key)}  signs\n"
    again = blimp("keys", "new", "--out", str(path))
    assert again.returncode == 1
    assert f"{path} exists already: blimp keys rotate" in again.stderr
    assert read_signing_keys(path) == (key,)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="link exists already"):
        keys.make(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
    assert len(blimp("keys", "new").stdout.strip()) == 43


def test_while_rotating_two_keys_are_valid_and_then_the_old_one_ends(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    keys.make(path)
    before = read_signing_keys(path)
    shown = blimp("keys", "rotate", str(path))
    rotated = read_signing_keys(path)
    assert rotated[1:] == before
    assert path.stat().st_mode & 0o777 == 0o600
    assert shown.stdout == blimp("keys", "show", str(path)).stdout
    assert shown.stderr.startswith(f"{path} written; next: copy it to every ship")
    assert [line.split()[1] for line in shown.stdout.splitlines()] == ["signs", "accepted"]
    assert not any(key in shown.stdout for key in rotated)

    document = {"id": "1", "name": "estop", "payload": {}}
    by_old = Signer(before).sign_document(document, place="p")
    Signer(rotated).check_document(document, by_old, place="p")
    assert keys.rotate(path)[1] == rotated[0]
    with pytest.raises(MessageError, match="signed with another key"):
        Signer(read_signing_keys(path)).check_document(document, by_old, place="p")


@pytest.mark.parametrize("command", ["worker", "relay"])
def test_a_process_on_board_refuses_an_open_broker_with_the_cure(
    command: str, tmp_path: Path
) -> None:
    where = ("--runtime-dir", str(tmp_path), "--broker")
    ended = blimp(command, *where, "redis://u:secret@ground.example:6379/0")
    assert ended.returncode == WRONG_CONFIGURATION
    assert "refused without TLS: rediss://; and a signing key: blimp keys new" in ended.stderr
    assert "secret" not in ended.stderr
    path = tmp_path / "signing.key"
    path.write_text("")
    path.chmod(0o600)
    ended = blimp(command, *where, "rediss://ground.example", "--signing-key-file", str(path))
    assert ended.returncode == WRONG_CONFIGURATION
    assert "there is no key in it" in ended.stderr


@pytest.mark.parametrize(
    "words",
    [["hold"], ["estop"], ["status"], ["watch"], ["control", "who"], ["dispatch", "--any", "hop"]],
)
def test_ground_refuses_an_open_broker_before_it_connects(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vehicle = [] if "--any" in words else ["--vehicle", "twin"]
    assert ground.run(["--broker", "redis://ground.example", *vehicle, *words, "--yes"]) == 2
    assert "refused without TLS: rediss://; and a signing key" in capsys.readouterr().err
    path = tmp_path / "signing.key"
    keys.make(path)
    key = ["--signing-key-file", str(path)]
    assert ground.run(["--broker", "redis://ground.example", *vehicle, *words, "--yes", *key]) == 2
    assert "refused without TLS: rediss://\n" in capsys.readouterr().err
    path.chmod(0o640)
    assert ground.run(["--broker", "redis://localhost:1", *vehicle, *words, "--yes", *key]) == 2
    assert "other users may read it" in capsys.readouterr().err


def test_a_key_file_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "signing.key"
    keys.make(path)
    owner = os.getuid() or 12345
    if os.getuid() == 0:
        os.chown(path, owner, -1)
    monkeypatch.setattr(os, "getuid", lambda: owner)
    assert len(read_signing_keys(path)) == 1
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match=f"it belongs to user {owner}"):
        read_signing_keys(path)
