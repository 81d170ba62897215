"""The run registry: one ship of a name, never a successor's entry removed."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from blimp.errors import ConfigError
from blimp.link.registry import Registration, read, register, start_time, unregister


def test_a_ship_is_entered_for_its_user_alone_and_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "registry" / "twin.json"
    register(path, vehicle="twin", broker="redis://:secret@h", runtime_dir=tmp_path / "a")
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    entry = read(path)
    assert entry is not None
    assert entry.runs
    assert (entry.vehicle, entry.pid, entry.runtime_dir) == ("twin", os.getpid(), f"{tmp_path}/a")
    unregister(path, runtime_dir=tmp_path / "a")
    assert not path.parent.exists()
    unregister(path, runtime_dir=tmp_path / "a")


def test_a_second_ship_of_the_name_is_refused_with_the_first_ones_number(tmp_path: Path) -> None:
    path = tmp_path / "twin.json"
    register(path, vehicle="twin", broker="b", runtime_dir=tmp_path / "a")
    with pytest.raises(ConfigError, match=f"'twin' runs .*process {os.getpid()}.*--vehicle"):
        register(path, vehicle="twin", broker="b", runtime_dir=tmp_path / "b")


def test_the_guard_of_a_killed_ship_leaves_its_successors_entry(tmp_path: Path) -> None:
    path = tmp_path / "twin.json"
    register(path, vehicle="twin", broker="b", runtime_dir=tmp_path / "successor")
    unregister(path, runtime_dir=tmp_path / "killed")
    assert read(path) is not None


def test_a_zombie_and_a_number_used_again_are_no_ships(tmp_path: Path) -> None:
    path = tmp_path / "twin.json"
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, not yet reaped
        zombie = Registration(vehicle="twin", broker="b", pid=process.pid)
        assert not zombie.runs
    reused = Registration(
        vehicle="twin", broker="b", pid=os.getpid(), started=(start_time(os.getpid()) or 0) - 1
    )
    assert not reused.runs
    path.write_bytes(msgspec.json.encode(reused))
    register(path, vehicle="twin", broker="b", runtime_dir=tmp_path)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"pid":"x"}', b"\xff", b"[" * 9000])
def test_an_unreadable_entry_is_no_ship_and_is_replaced(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "twin.json"
    path.write_bytes(data)
    assert read(path) is None
    register(path, vehicle="twin", broker="b", runtime_dir=tmp_path)
    assert read(path) is not None
