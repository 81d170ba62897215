"""A server that several test processes share, as it takes seconds to start."""

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path


@contextmanager
def shared(
    root: Path, name: str, start: Callable[[Path], AbstractContextManager[object]]
) -> Iterator[Path]:
    """Yield the directory of a server that runs until its last user leaves.

    root: a directory of this test run. The first process that comes starts the server in a new
    directory (of a short name: a Unix socket's path has 107 bytes) and waits at its end for the
    others: the server is its child.
    """
    where = root / f"{name}.directory"
    with (root / f"{name}.start").open("a") as starting, (root / f"{name}.use").open("a") as using:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(using, fcntl.LOCK_SH)  # waits for one that ends
        if where.exists():
            fcntl.flock(starting, fcntl.LOCK_UN)
            yield Path(where.read_text())
            return
        directory = Path(tempfile.mkdtemp(prefix=f"blimp-{name}-"))
        try:
            with start(directory):
                where.write_text(str(directory))
                fcntl.flock(starting, fcntl.LOCK_UN)
                yield directory
                fcntl.flock(using, fcntl.LOCK_EX)
                where.unlink()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
