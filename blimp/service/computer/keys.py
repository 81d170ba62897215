"""`blimp keys`: makes the keys that sign commands, shows which are valid, and changes them."""

import hashlib
import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from blimp.config import read_signing_keys
from blimp.errors import ConfigError
from blimp.service.commands.terminal import say
from blimp.service.files import write_whole

KEY_BYTES = 32
MODE = 0o600
FINGERPRINT_LETTERS = 16
VARIABLE = "BLIMP_SIGNING_KEY_FILE"

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
KeyFile = Annotated[Path, typer.Argument(metavar="FILE", envvar=VARIABLE, help="The key file.")]


def make(path: Path) -> str:
    """Write a new key file, for this user alone. Raises ConfigError if there is one already."""
    key = secrets.token_urlsafe(KEY_BYTES)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, MODE), "w") as file:
            os.fchmod(file.fileno(), MODE)
            file.write(key + "\n")
            os.fsync(file.fileno())
    except FileExistsError:
        raise ConfigError(f"{path} exists already: blimp keys rotate {path}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    return key


def rotate(path: Path) -> tuple[str, ...]:
    """Put a new key in front; the one that signed until now stays valid, older ones end.

    Returns the keys. Raises ConfigError as `read_signing_keys`.
    """
    keys = (secrets.token_urlsafe(KEY_BYTES), read_signing_keys(path)[0])
    write_whole(path, "\n".join(keys) + "\n", mode=MODE)
    return keys


def fingerprint(key: str) -> str:
    """Return what names a key and does not help to guess it."""
    return hashlib.sha256(key.encode()).hexdigest()[:FINGERPRINT_LETTERS]


@app.command("new")
def _new(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file to write, mode 0600; else standard output."),
    ] = None,
) -> None:
    """Make a signing key.

    \b
    Examples:
      blimp keys new --out signing.key
      blimp keys new | ssh pi@blimp 'umask 077; cat > signing.key'
    """
    if out is None:
        print(secrets.token_urlsafe(KEY_BYTES))
    else:
        make(out)
        _print((fingerprint(read_signing_keys(out)[0]),))
        say(f"{out} written; next: copy it to ship and ground, and name it by {VARIABLE} there")


@app.command("show")
def _show(file: KeyFile) -> None:
    """Show the fingerprints of a file's keys, to compare ship and ground; never the keys.

    Example: blimp keys show signing.key
    """
    _print(tuple(map(fingerprint, read_signing_keys(file))))


@app.command("rotate")
def _rotate(file: KeyFile) -> None:
    """Put a new key in front of the old one; both are valid until the next rotation.

    Copy the file to every ship and ground station, in any order, restart the ships' workers, then
    rotate once more. Until then everything is signed with both keys, so programs with the old file
    and with the new file accept each other's messages.

    Example: blimp keys rotate signing.key
    """
    _print(tuple(map(fingerprint, rotate(file))))
    say(f"{file} written; next: copy it to every ship and ground station, restart the workers")


def _print(fingerprints: tuple[str, ...]) -> None:
    for number, one in enumerate(fingerprints):
        print(f"{one}  {'signs' if number == 0 else 'accepted'}")
