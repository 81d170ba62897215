"""A directory for sockets."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def socket_directory() -> Iterator[Path]:
    """A directory with a short name: a Unix socket's path has 107 bytes, and pytest's are long."""
    directory = Path(tempfile.mkdtemp(prefix="blimp-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
