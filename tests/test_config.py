"""Environment variables: the keys that sign messages."""

from pathlib import Path

import pytest

from blimp.config import signing_keys_from_environment
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
        ("key", 0o604, "every user may read it: chmod 600"),
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
