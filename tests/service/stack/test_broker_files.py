"""Damaged files of a broker: cut at the damage or put aside, and each server starts again."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from blimp.link.paths import socket_path
from blimp.service.stack.broker import find_server_binary
from blimp.service.stack.broker_files import DAMAGED, DATA, MANIFEST, BrokerFiles
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.forked import ran
from tests.queue.conftest import wait_until

HALF = 50  # entries in the base file, and as many in what was appended since


class Files:
    """The files of a killed server, to be damaged; and the server that reads them."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.binary = directory, find_server_binary()

    @property
    def data(self) -> Path:
        return self.directory / DATA

    @property
    def base(self) -> Path:
        return next(self.data.glob("*.base.rdb"))

    @property
    def appended(self) -> Path:
        return next(self.data.glob("*.incr.aof"))

    def mended(self) -> list[str]:
        files = BrokerFiles(self.directory, binary=self.binary)
        files.mend()
        return files.done

    def entries(self) -> int:
        """Start the server on the files; return how many entries it has."""
        with (
            EmbeddedBroker(directory=self.directory),
            redis.Redis(unix_socket_path=str(socket_path(self.directory))) as client,
        ):
            return int(client.xlen("s"))


@pytest.fixture(scope="module")
def killed() -> Iterator[Files]:
    with socket_directory() as home:
        directory = home / "b"
        broker = EmbeddedBroker(directory=directory, options={"appendfsync": "always"})
        path = str(socket_path(directory))
        with broker, redis.Redis(unix_socket_path=path) as client:
            for number in range(HALF):
                client.xadd("s", {"number": number})
            client.bgrewriteaof()
            wait_until(
                lambda: (
                    not client.info("persistence")["aof_rewrite_in_progress"]
                    and not client.info("persistence")["aof_rewrite_scheduled"]
                ),
                "it does not rewrite its file",
            )
            for number in range(HALF):
                client.xadd("s", {"number": number})
            os.kill(broker.pid, 9)
        yield Files(directory)


@pytest.fixture
def files(killed: Files) -> Iterator[Files]:
    with socket_directory() as home:
        shutil.copytree(killed.data, home / "b" / DATA)
        yield Files(home / "b")


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def in_the_middle(path: Path) -> int:
    """Return where a command's length stands in the middle of a file."""
    data = path.read_bytes()
    return data.index(b"\r\n*", len(data) // 2) + 3


def put_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def put_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


DAMAGE: dict[str, tuple[Callable[[Files], object], Callable[[int], bool], str]] = {
    "none": (lambda f: None, lambda n: n == 2 * HALF, ""),
    "a byte in the middle": (
        lambda f: flip(f.appended, in_the_middle(f.appended)),
        lambda n: HALF + HALF // 3 < n < 2 * HALF,
        "was damaged at byte .* cut there",
    ),
    "cut off in a command": (
        lambda f: os.truncate(f.appended, f.appended.stat().st_size - 7),
        lambda n: n == 2 * HALF - 1,
        "cut there",
    ),
    "zeros at the end, as after a power cut": (
        lambda f: os.truncate(f.appended, f.appended.stat().st_size + 4096),
        lambda n: n == 2 * HALF,
        "cut there",
    ),
    "a manifest of garbage": (
        lambda f: (f.data / MANIFEST).write_bytes(b"\xff\0garbage\n" * 9),
        lambda n: n == 2 * HALF,
        "manifest was damaged: written again",
    ),
    # Without one a server starts empty beside its data, and says nothing.
    "no manifest": (
        lambda f: (f.data / MANIFEST).unlink(), lambda n: n == 2 * HALF, "written again",
    ),
    "a damaged base file": (
        lambda f: flip(f.base, f.base.stat().st_size // 2), lambda n: n == 0, "starts empty",
    ),
    "no base file": (lambda f: f.base.unlink(), lambda n: n == 0, "starts empty"),
    "no appended file": (lambda f: f.appended.unlink(), lambda n: n == HALF, "cannot be read"),
    "a directory for a file": (
        lambda f: put_a_directory(f.appended),
        lambda n: n == HALF,
        "cannot be read",
    ),
    "a file for the directory": (
        lambda f: put_a_file(f.data),
        lambda n: n == 0,
        "starts empty",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_cut_or_put_aside_and_the_server_starts(
    files: Files, damage: str
) -> None:
    harm, is_right, said = DAMAGE[damage]
    harm(files)
    done = files.mended()
    assert bool(done) is bool(said), done
    assert re.search(said, "; ".join(done)), done
    assert is_right(files.entries())
    assert files.mended() == []  # once is enough


def test_a_manifest_with_the_further_numbers_of_redis_8_2_is_whole(files: Files) -> None:
    manifest = files.data / MANIFEST
    manifest.write_text(manifest.read_text().replace("type i", "type i startoffset 7"))
    assert files.mended() == []


def test_what_follows_a_damaged_file_goes_with_it_and_is_kept(files: Files) -> None:
    first = files.appended
    number = int(first.name.split(".")[2])
    second = first.with_name(f"appendonly.aof.{number + 1}.incr.aof")
    shutil.copy(first, second)
    with (files.data / MANIFEST).open("a") as manifest:
        manifest.write(f"file {second.name} seq {number + 1} type i\n")
    before = first.read_bytes()
    flip(first, in_the_middle(first))
    assert len(files.mended()) == 1
    assert not second.exists()
    kept = files.directory / DAMAGED
    assert (kept / second.name).read_bytes() == before
    assert len((kept / first.name).read_bytes()) == len(before)
    assert before.startswith(first.read_bytes())
    assert HALF < files.entries() < 2 * HALF


def test_only_the_newest_damage_is_kept(files: Files) -> None:
    for _ in range(3):
        os.truncate(files.appended, files.appended.stat().st_size + 100)
        assert len(files.mended()) == 1
    assert [path.name for path in (files.directory / DAMAGED).iterdir()] == [files.appended.name]


def test_a_file_that_permissions_close_is_put_aside(files: Files) -> None:
    """Root reads everything, unless that is taken from it."""
    files.appended.chmod(0)
    as_a_user = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    mend = [sys.executable, "-m", "blimp.service.stack.broker_files", "mend"]
    done = ran(
        [*(as_a_user if os.getuid() == 0 else []), *mend, files.directory, files.binary],
        timeout=60.0,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "cannot be read: what it held is lost" in done.stderr
    assert files.entries() == HALF


def test_a_disk_without_room_for_a_copy_still_cuts(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    flip(files.appended, in_the_middle(files.appended))
    (said,) = files.mended()
    assert said.endswith("not kept: No space left on device")
    assert HALF < files.entries() < 2 * HALF


def test_empty_puts_everything_aside(files: Files) -> None:
    BrokerFiles(files.directory, binary=files.binary).empty("it does not load")
    assert (files.directory / DAMAGED / DATA).is_dir()
    assert files.entries() == 0
