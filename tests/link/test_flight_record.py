"""What a flight process leaves: whole, of this boot, and there after a kill."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from blimp.errors import ConfigError
from blimp.link.flight_record import RecordFile
from blimp.types import FlightRecord

RECORD = FlightRecord(
    t_s=12.5,
    armed=True,
    killed=False,
    airborne=True,
    height_m=3.25,
    heaviness_kg=-0.004,
    pressure_pa=101_300.0,
    yaw_rad=-1.5,
    yaw_sigma_rad=0.05,
    gyro_bias_radps=(0.01, -0.02, 0.03),
)

WRITER = """
import itertools, sys
from pathlib import Path
from msgspec import structs
from blimp.link.flight_record import RecordFile
from tests.link.test_flight_record import RECORD
file = RecordFile(Path(sys.argv[1]))
print("begun", flush=True)
for number in itertools.count():
    file.write(structs.replace(RECORD, t_s=float(number), height_m=float(number)))
"""


def test_a_successor_reads_what_was_left(tmp_path: Path) -> None:
    with RecordFile(tmp_path / "record") as first:
        assert first.read() is None
        first.write(structs.replace(RECORD, killed=True))
        first.write(RECORD)
    with RecordFile(tmp_path / "record") as second:
        assert second.read() == RECORD
        second.clear()
        assert second.read() is None
    assert (tmp_path / "record").stat().st_mode & 0o777 == 0o600


def test_a_record_whose_file_was_removed_is_made_again(tmp_path: Path) -> None:
    """Else a light ship whose flight process dies after that would not be landed."""
    path = tmp_path / "record"
    with RecordFile(path) as first:
        first.write(RECORD)
        path.unlink()
        first.renew()
        with RecordFile(path) as second:
            assert second.read() == RECORD
            first.renew()
            first.write(structs.replace(RECORD, height_m=1.0))
            assert second.read() == structs.replace(RECORD, height_m=1.0)


@pytest.mark.parametrize("at", [0, 8, 20, 40, 60, 92])
def test_a_record_that_was_cut_short_is_none(tmp_path: Path, at: int) -> None:
    path = tmp_path / "record"
    with RecordFile(path) as file:
        file.write(RECORD)
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)
        assert file.read() is None


def test_a_record_of_another_boot_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RecordFile(tmp_path / "record") as file:
        file.write(RECORD)
    other = "00000000-0000-4000-8000-000000000000"
    monkeypatch.setattr(Path, "read_text", lambda _: other)
    with RecordFile(tmp_path / "record") as file:
        assert file.read() is None


@pytest.mark.timeout(200)
def test_a_killed_writer_leaves_a_whole_record_or_none(tmp_path: Path) -> None:
    path = tmp_path / "record"
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.kill()
        writer.communicate()
        with RecordFile(path) as file:
            left = file.read()
        assert left is None or left.t_s == left.height_m


def test_a_symlink_of_a_stranger_is_refused(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "record"
    victim.write_bytes(b"precious")
    path.symlink_to(victim)
    with pytest.raises(ConfigError, match="flight record"):
        RecordFile(path)
    assert victim.read_bytes() == b"precious"
