"""Recorded flights by FILE_TRANSFER_PROTOCOL: pymavlink frame by frame, and MAVSDK as it is."""

import json
import random
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from blimp.config import log_directory
from ground_station.mavlink import ftp
from ground_station.mavlink.ftp import (
    ACK,
    BAD_SESSION,
    BAD_SIZE,
    BURST,
    CRC,
    DATA_BYTES,
    END,
    FAIL,
    HEADER,
    LIST,
    MAX_SESSIONS,
    NACK,
    NO_SESSION,
    NOT_FOUND,
    OPEN,
    PROTECTED,
    READ,
    RESET,
    TERMINATE,
    UNKNOWN,
)
from tests.forked import ran
from tests.ground_station.mavlink.test_gateway import Station, gateway, opened
from tests.ground_station.ship import FlyingShip

pytestmark = pytest.mark.long
FLOWN = random.Random(1).randbytes(40_001)


class Files:
    """A station's side of the protocol, one frame at a time."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.seq = 0

    def ask(
        self, opcode: int, data: str | bytes = b"", *, session: int = 0, size: int | None = None,
        offset: int = 0,
    ) -> tuple[int, int, bytes]:  # fmt: skip
        """Send one request; return opcode, session and data of its answer."""
        raw = data.encode() if isinstance(data, str) else data
        self.seq += 2
        size = len(raw) if size is None else size
        header = HEADER.pack(self.seq, session, opcode, size, 0, 0, offset)
        payload = (header + raw).ljust(HEADER.size + DATA_BYTES, b"\0")
        self.station.send.file_transfer_protocol_send(0, 1, 1, list(payload))
        return self.next(self.seq + 1, opcode)[:3]

    def next(self, seq: int, opcode: int) -> tuple[int, int, bytes, int, int]:
        """Return an answer by its sequence number, with `burst_complete` and offset."""
        found = self.station.get(
            "FILE_TRANSFER_PROTOCOL",
            lambda m: HEADER.unpack_from(bytes(m.payload))[0] == seq % 2**16,
        )
        payload = bytes(found.payload)
        _, session, answer, size, asked, complete, offset = HEADER.unpack_from(payload)
        assert asked == opcode
        return answer, session, payload[HEADER.size :][:size], complete, offset

    def burst(self, *, session: int, offset: int) -> bytes:
        """Return all that is sent for one BurstReadFile."""
        answer, _, got = self.ask(BURST, session=session, size=DATA_BYTES, offset=offset)
        complete = 0
        for number in range(self.seq + 2, self.seq + ftp.BURST_PIECES + 1):
            if offset + len(got) == len(FLOWN):
                break
            answer, _, piece, complete, at = self.next(number, BURST)
            assert (answer, at) == (ACK, offset + len(got))
            got += piece
        assert complete == 1
        return got

    def refused(self, opcode: int, data: str | bytes = b"", **options: int) -> int:
        answer, _, error = self.ask(opcode, data, **options)
        assert answer == NACK, error
        return error[0]

    def open(self, path: str, *, session: int = 0) -> int:
        answer, number, size = self.ask(OPEN, path, session=session)
        assert answer == ACK, size
        assert struct.unpack("<I", size)[0] == len(FLOWN)
        return number


@pytest.fixture
def log(twin: FlyingShip, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A recorded flight, and files beside it that are none of this ship's."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    logs = log_directory()
    logs.mkdir(parents=True)
    (logs.parent / "secret").write_bytes(b"secret")
    (logs / "notes.txt").write_bytes(b"notes")
    (logs / "other-000009-20261128T101112Z.mcap").write_bytes(b"another ship's")
    (logs / f"{twin.vehicle}-000008-20261128T101113Z.mcap").symlink_to(logs.parent / "secret")
    path = logs / f"{twin.vehicle}-000007-20261128T101112Z.mcap"
    path.write_bytes(FLOWN)
    return path


@pytest.fixture
def files(twin: FlyingShip, log: Path) -> Iterator[Files]:
    with gateway(twin) as port, opened(port) as station:
        yield Files(station)


def test_flights_are_listed_read_and_summed(files: Files, log: Path) -> None:
    assert files.ask(LIST, "/") == (ACK, 0, b"Dlogs\0")
    assert files.refused(LIST, "/", offset=1) == END
    entry = f"F{log.name}\t{len(FLOWN)}\0".encode()
    for folder in ("/logs", "logs/", "@MAV_LOG"):
        assert files.ask(LIST, folder) == (ACK, 0, entry)
        assert files.refused(LIST, folder, offset=1) == END
    session = files.open(f"/logs/{log.name}", session=9)
    assert session == 9  # MAVProxy reads on with the number that it has sent
    assert files.ask(READ, session=9, size=100, offset=300) == (ACK, 9, FLOWN[300:400])
    assert files.ask(READ, session=9, size=100, offset=40_000) == (ACK, 9, FLOWN[40_000:])
    assert files.refused(READ, session=9, size=100, offset=len(FLOWN)) == END
    assert files.refused(READ, session=9, size=100, offset=2**32 - 1) == END
    got = b""
    while len(got) < len(FLOWN):
        got += files.burst(session=9, offset=len(got))
    assert got == FLOWN
    assert files.refused(BURST, session=9, size=DATA_BYTES, offset=len(got)) == END
    _, _, total = files.ask(CRC, f"/logs/{log.name}")
    assert struct.unpack("<I", total)[0] == zlib.crc32(FLOWN, 2**32 - 1) ^ (2**32 - 1)
    assert files.ask(TERMINATE, session=9)[0] == ACK
    assert files.ask(TERMINATE, session=9)[0] == ACK  # its answer was lost
    assert files.refused(READ, session=9, size=100) == BAD_SESSION


def test_no_other_file_is_read_and_none_is_written(files: Files, log: Path) -> None:
    other = "other-000009-20261128T101112Z.mcap"
    link = log.name.replace("000007", "000008").replace("12Z", "13Z")
    for path in (
        "/logs/../secret", "../secret", "/logs/../../secret", f"/{log}", str(log.parent / other),
        f"/logs/{other}", "/logs/notes.txt", f"/logs/{link}", "/logs", "/", "", "/logs/..",
        f"/logs/./{log.name}", "/etc/passwd", "/logs/\udcff".encode("utf-8", "replace"),
        "@PARAM/param.pck", "@SYS/tasks.txt",
    ):  # fmt: skip
        assert files.refused(OPEN, path) == NOT_FOUND, path
        assert files.refused(CRC, path) == NOT_FOUND, path
    for path in ("/etc", "/logs/..", "..", log.name):
        assert files.refused(LIST, path) == NOT_FOUND, path
    for opcode in (6, 7, 8, 9, 10, 11, 12, 13):
        assert files.refused(opcode, f"/logs/{log.name}") == PROTECTED
    assert files.refused(16, "/logs") == UNKNOWN  # a list with times, of ArduPilot
    assert files.refused(200) == UNKNOWN
    assert files.refused(OPEN, size=DATA_BYTES + 1) == BAD_SIZE
    assert log.read_bytes() == FLOWN


def test_sessions_are_bounded_and_belong_to_their_station(
    files: Files, log: Path, twin: FlyingShip, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/logs/{log.name}"
    second = log.with_name(f"{twin.vehicle}-000006-20261128T101112Z.mcap")
    second.write_bytes(FLOWN)
    assert files.open(path) == 0
    assert files.open(path) == 0  # asked again: its answer was lost
    assert files.open(f"/logs/{second.name}") == 1
    for number in range(2, MAX_SESSIONS):
        assert files.open(path, session=number) == number
    assert files.refused(OPEN, path, session=MAX_SESSIONS) == NO_SESSION
    files.station.send.srcSystem = 77  # another station
    assert files.refused(READ, session=0, size=9) == BAD_SESSION
    assert files.refused(OPEN, path) == NO_SESSION
    assert files.ask(RESET)[0] == ACK
    assert files.refused(OPEN, path) == NO_SESSION  # it had none of them
    monkeypatch.setattr(ftp, "IDLE_S", 0.0)
    assert files.open(path) == 0
    files.station.send.srcSystem = 255
    assert files.refused(READ, session=0, size=9) == BAD_SESSION  # idle for longest
    assert files.ask(READ, session=1, size=9)[2] == FLOWN[:9]
    second.unlink()
    assert files.refused(READ, session=1, size=9) == NOT_FOUND
    assert files.ask(RESET)[0] == ACK
    assert files.refused(READ, session=2, size=9) == BAD_SESSION


def test_files_are_sent_while_the_ship_is_disarmed(files: Files, log: Path) -> None:
    files.open(f"/logs/{log.name}")
    assert files.station.command(400, 1) == 0
    files.station.get("HEARTBEAT", lambda m: m.base_mode & 128)
    for opcode, data in ((OPEN, f"/logs/{log.name}"), (CRC, f"/logs/{log.name}")):
        assert files.refused(opcode, data) == FAIL
    for opcode in (READ, BURST):
        assert files.refused(opcode, size=100) == FAIL
    files.station.text("logs are sent while the ship is disarmed")
    assert files.ask(LIST, "/logs")[0] == ACK


def test_mavsdk_lists_and_downloads_a_flight(twin: FlyingShip, log: Path, tmp_path: Path) -> None:
    program = Path(__file__).with_name("download.py")
    with gateway(twin) as port:
        done = ran([sys.executable, str(program), str(port), str(tmp_path)], timeout=120)
    found = json.loads(done.stderr.splitlines()[-1])
    assert found == {"/": ["logs"], "/logs": [log.name]}
    for burst in (False, True):
        assert (tmp_path / str(burst) / log.name).read_bytes() == FLOWN
