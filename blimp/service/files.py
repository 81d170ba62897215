"""Files of a person that this program writes: the old one stays whole until the new one is."""

from pathlib import Path

from blimp.errors import ConfigError
from blimp.files import write_atomically


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace `path` by `text` in one step; its directory is made if it is missing.

    Raises ConfigError if the file cannot be written; the old one is then unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode(), mode=mode)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
