"""A small disk of a test's own, which it fills to the last byte."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.directory import socket_directory
from tests.needs import not_run


class Disk:
    """A file system in memory at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)) == 4096:
                pass

    def free(self) -> None:
        self._filler.unlink()


@contextlib.contextmanager
def small_disk(*, mib: int) -> Iterator[Disk]:
    """Yield a disk of so many MiB. Only root can mount one: else the test is skipped."""
    if os.getuid() != 0 or shutil.which("mount") is None:
        raise not_run("a small disk: needs root, and mount")
    with socket_directory() as home:
        path = home / "d"
        path.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=700", "tmpfs", str(path)]
        mounted = subprocess.run(words, capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            raise not_run(f"a small disk: {mounted.stderr.strip()}")
        try:
            yield Disk(path)
        finally:
            subprocess.run(["umount", "-l", str(path)], check=True)
