"""Environment variables: the keys that sign messages."""

from pathlib import Path

import pytest

from blimp.config import (
    broker_is_of_this_machine,
    check_broker_is_closed,
    signing_keys_from_environment,
)
from blimp.errors import ConfigError


def key_file(directory: Path, text: str, *, mode: int = 0o600) -> dict[str, str]:
    path = directory / "signing.key"
    path.write_text(text)
    path.chmod(mode)
    return {"BLIMP_SIGNING_KEY_FILE": str(path)}


def test_keys_come_from_a_variable_or_from_a_file(tmp_path: Path) -> None:
    assert signing_keys_from_environment({}) is None
    assert signing_keys_from_environment({"BLIMP_SIGNING_KEY": "new old"}) == ("new", "old")
    assert signing_keys_from_environment(key_file(tmp_path, "new\nold\n")) == ("new", "old")


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("", 0o600, "there is no key in it"),
        (" \n", 0o600, "there is no key in it"),
        ("key", 0o604, "other users may read it: chmod 600"),
        ("key", 0o640, "other users may read it: chmod 600"),
        ("schlüssel", 0o600, "is no text of ASCII"),
    ],
)
def test_a_file_without_a_secret_is_an_error(
    tmp_path: Path, text: str, mode: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        signing_keys_from_environment(key_file(tmp_path, text, mode=mode))


def test_a_missing_file_and_two_sources_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        signing_keys_from_environment({"BLIMP_SIGNING_KEY_FILE": str(tmp_path / "none")})
    with pytest.raises(ConfigError, match="both BLIMP_SIGNING_KEY and"):
        signing_keys_from_environment({"BLIMP_SIGNING_KEY": "x", **key_file(tmp_path, "y")})


@pytest.mark.parametrize("name", ["BLIMP_SIGNING_KEY", "BLIMP_SIGNING_KEY_FILE"])
def test_an_empty_key_is_an_error_and_not_unsigned(name: str) -> None:
    for value in ("", " \n"):
        with pytest.raises(ConfigError, match=f"{name} is set but empty"):
            signing_keys_from_environment({name: value})


def test_keys_are_a_credential_of_systemd_which_protects_it_by_its_directory(
    tmp_path: Path,
) -> None:
    file = Path(key_file(tmp_path, "new old", mode=0o440)["BLIMP_SIGNING_KEY_FILE"])
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert signing_keys_from_environment(environment) == ("new", "old")
    environment["BLIMP_SIGNING_KEY_FILE"] = str(file)
    assert signing_keys_from_environment(environment) == ("new", "old")
    file.chmod(0o444)
    with pytest.raises(ConfigError, match="other users may read it"):
        signing_keys_from_environment(environment)


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("redis+socket:///run/b.sock?virtual_host=0", True),
        ("unix://u:p@/run/b.sock?db=0", True),
        ("redis://localhost", True),
        ("redis://u:p@127.0.0.2:6379/0", True),
        ("redis://[::1]:6379", True),
        ("amqp://", True),
        ("redis://127.0.0.1.evil.example", False),
        ("redis://127.0.0.1@evil.example", False),
        ("redis://[2001:db8::1]:6379", False),
        ("redis://0.0.0.0", False),
        ("sentinel://localhost:26379,evil:26379/0?master_name=m", False),
        ("amqp://pi.local//", False),
    ],
)
def test_which_brokers_are_of_this_machine(url: str, is_here: bool) -> None:
    assert broker_is_of_this_machine(url) is is_here


def test_a_broker_off_the_machine_needs_tls_and_a_key() -> None:
    check_broker_is_closed("redis://localhost;unix:///b.sock", None)
    check_broker_is_closed("rediss://h/0;amqps://h//", ("key",))
    for url, keys, words in (
        ("redis://u:secret@h/0", ("key",), "broker h is not on this .* without TLS: rediss://$"),
        ("rediss://h", None, "without a signing key: blimp keys new, then --signing-key-file"),
        ("amqp://h", (), "TLS: amqps://; and a signing key"),
        (
            "cluster://localhost/twin",
            ("key",),
            "broker localhost: the broker of a ship cannot be a cluster",
        ),
        ("redis://localhost;valkey://h", ("key",), "TLS: valkeys://$"),
    ):
        with pytest.raises(ConfigError, match=words) as refused:
            check_broker_is_closed(url, keys)
        assert "secret" not in str(refused.value)
