"""Files of a person that this program writes: the old one stays whole until the new one is."""

from pathlib import Path

from blimp.errors import ConfigError
from blimp.files import write_atomically


def write_whole(
    path: Path, text: str, *, mode: int | None = 0o644, keep_owner: bool = False
) -> None:
    """Replace `path` by `text` in one step; its directory must be there.

    mode, keep_owner: see `write_atomically`.
    Raises ConfigError if the file cannot be written; the old one is then unchanged.
    """
    try:
        write_atomically(path, text.encode(), mode=mode, keep_owner=keep_owner)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def make_directory(path: Path) -> None:
    """Make a directory, and those above it, unless it is there. Raises ConfigError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"directory {path} cannot be made: {error.strerror}") from error
