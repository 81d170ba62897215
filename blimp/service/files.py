"""Files of a person that this program writes: the old one stays whole until the new one is."""

import contextlib
import os
import tempfile
from pathlib import Path

from blimp.errors import ConfigError


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace `path` by `text` in one step; its directory is made if it is missing.

    A reader sees the old text or the new one, also if this process or the power fails in
    between. Raises ConfigError if the file cannot be written; the old one is then unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600, O_EXCL
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchmod(handle, mode)
                os.fsync(handle)
            Path(draft).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(draft).unlink()
            raise
        _sync_directory(path.parent)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _sync_directory(path: Path) -> None:
    """Have the new name survive a power cut: the file's own fsync does not write it."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
