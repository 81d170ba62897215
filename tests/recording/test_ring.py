"""The ring between flight process and recorder: whole, bounded, never waiting, kept over kills."""

import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from blimp.errors import ConfigError
from blimp.recording import ring as rings
from blimp.recording.ring import Ring

WRITER = """
import itertools, sys
from pathlib import Path
from blimp.recording.ring import Ring
ring = Ring(Path(sys.argv[1]))
print("begun", flush=True)
for number in itertools.count():
    while not ring.write(number % 7, b"%d" % number * (number % 90)):
        pass
"""


def test_records_come_in_order_and_around_the_end(tmp_path: Path) -> None:
    with Ring(tmp_path / "ring") as writer, Ring(tmp_path / "ring") as reader:
        for number in range(3000):
            payload = bytes([number % 251]) * (number % 1500)
            assert writer.write(number % 5, payload)
            assert reader.read() == (number % 5, payload)
            reader.release()
        assert reader.read() is None
        assert not reader.waits
        assert writer.dropped == 0
    assert (tmp_path / "ring").stat().st_mode & 0o777 == 0o600


def test_two_processes_that_begin_at_once_make_one_ring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder has looked at a new file; before it goes on, the flight process has begun."""
    flight: list[Ring] = []

    class Slow(mmap.mmap):
        def __getitem__(self, place: Any) -> Any:
            seen = super().__getitem__(place)
            if not flight:
                monkeypatch.undo()
                flight.append(Ring(tmp_path / "ring"))
                assert flight[0].keep(b"session")
                assert flight[0].write(1, b"first")
            return seen

    monkeypatch.setattr(mmap, "mmap", Slow)
    with Ring(tmp_path / "ring") as recorder:
        assert recorder.kept() == b"session"
        assert recorder.read() == (1, b"first")
    flight[0].close()


def test_a_full_ring_drops_and_counts_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with Ring(tmp_path / "ring") as writer, Ring(tmp_path / "ring") as reader:
        written = 0
        while writer.write(2, b"x" * 1000):
            written += 1
        assert 900 < written < rings.SIZE / 1000
        assert not writer.write(2, b"y" * 1000)
        assert writer.dropped == reader.dropped == 2
        for _ in range(written):
            assert reader.read() == (2, b"x" * 1000)
        assert not writer.write(2, b"y" * 1000), "what is not released has no room yet"
        reader.release()
        assert writer.write(2, b"y" * 1000)
        assert reader.read() == (2, b"y" * 1000)


def test_what_a_killed_reader_had_not_released_comes_again(tmp_path: Path) -> None:
    with Ring(tmp_path / "ring") as writer:
        assert writer.keep(b"session")
        for number in range(10):
            writer.write(1, b"%d" % number)
        with Ring(tmp_path / "ring") as first:
            assert [first.read() for _ in range(4)][3] == (1, b"3")
            first.release()
            assert first.read() == (1, b"4")
        with Ring(tmp_path / "ring") as second:
            assert second.kept() == b"session"
            assert second.read() == (1, b"4")


def test_a_killed_writer_leaves_whole_records_and_a_successor_goes_on(tmp_path: Path) -> None:
    path, expected = tmp_path / "ring", 0
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    with Ring(path) as reader:
        while expected < 20_000:
            record = reader.read()
            if record is None:
                continue
            assert record == (expected % 7, b"%d" % expected * (expected % 90))
            expected += 1
            if expected % 64 == 0:
                reader.release()
        writer.kill()
        writer.communicate()
        while (record := reader.read()) is not None:
            assert record == (expected % 7, b"%d" % expected * (expected % 90))
            expected += 1
        reader.release()
        assert not reader.waits, "no half record is visible"
        with Ring(path) as successor:
            assert successor.write(3, b"again")
        assert reader.read() == (3, b"again")


def test_damage_is_no_record_and_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with Ring(path) as writer, Ring(path) as reader:
        writer.write(1, b"whole")
        writer.write(1, b"broken")
        with path.open("r+b") as file:
            data = file.read()
            file.seek(data.index(b"broken"))
            file.write(b"B")
        assert reader.read() == (1, b"whole")
        assert reader.read() is None
        assert reader.waits
        reader.skip()
        writer.write(1, b"next")
        assert reader.read() == (1, b"next")


def test_a_ring_of_another_boot_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ring(tmp_path / "ring") as ring:
        ring.write(1, b"old")
        ring.keep(b"old")
    other = "00000000-0000-4000-8000-000000000000"
    monkeypatch.setattr(Path, "read_text", lambda _: other)
    with Ring(tmp_path / "ring") as ring:
        assert ring.read() is None
        assert ring.kept() == b""


def test_a_symlink_of_a_stranger_is_refused(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "ring"
    victim.write_bytes(b"precious")
    path.symlink_to(victim)
    with pytest.raises(ConfigError, match="ring"):
        Ring(path)
    assert victim.read_bytes() == b"precious"
