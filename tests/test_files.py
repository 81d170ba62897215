"""An interrupted write leaves the old file, whole."""

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from blimp.files import write_atomically
from tests.needs import needs_root

OLD, NEW = b"old " * 50_000, b"new " * 100_000

WRITER = """
import sys
from pathlib import Path
from blimp.files import write_atomically
path = Path(sys.argv[1])
print("begun", flush=True)
while True:
    write_atomically(path, b"new " * 100_000)
    write_atomically(path, b"old " * 50_000)
"""


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, b"1")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    write_atomically(path, b"2")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"2", 0o640)
    write_atomically(path, b"3", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_symlink_is_replaced_and_never_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "state.json"
    victim.write_bytes(b"precious")
    path.symlink_to(victim)
    write_atomically(path, b"mine")
    assert (victim.read_bytes(), path.read_bytes()) == (b"precious", b"mine")
    assert not path.is_symlink()


def test_a_file_is_replaced_and_never_written_in_place(tmp_path: Path) -> None:
    """Whatever interrupts it: who has the old file open reads it to its end."""
    path = tmp_path / "state.json"
    write_atomically(path, OLD)
    with path.open("rb") as old:
        write_atomically(path, NEW)
        assert old.read() == OLD
    assert path.read_bytes() == NEW


def test_a_full_disk_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, OLD)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(OLD), hard))
    try:
        with pytest.raises(OSError, match="too large"):
            write_atomically(path, NEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.timeout(200)
def test_a_writer_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, OLD)
    for killed_after_ms in (1, 2, 3, 5, 8, 13, 21):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env={**os.environ}
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        threading.Event().wait(killed_after_ms / 1000.0)
        writer.kill()
        writer.communicate()
        assert path.read_bytes() in (OLD, NEW)


@needs_root("gives files to other users")
def test_a_file_that_others_read_stays_theirs_if_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"1", mode=0o640, keep_owner=True)
    os.chown(path, 61_001, 61_002)
    write_atomically(path, b"2", keep_owner=True)
    about = path.stat()
    assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (61_001, 61_002, 0o640)
    write_atomically(path, b"3")
    assert (path.stat().st_uid, path.stat().st_gid) == (os.getuid(), os.getgid())
