"""Signatures: taken once, judged by the broker's clock, remembered by the next process."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pymavlink.dialects.v20 import all as dialect

from ground_station.mavlink.frames import Frame, frames_in
from ground_station.mavlink.signing import OLD_S, Signing
from ground_station.mavlink.stamps import MOST, RECORD_BYTES
from tests.faults.fuzz_mavlink import EPOCH_S, framed

KEY = b"k" * 32
NOW_S = 1000.0
Judge = Callable[[Frame], bool]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def file_in(state: Path) -> Path:
    (found,) = state.iterdir()
    return found


def signed(at_s: float, *, is_stop: bool = False, system: int = 255, key: bytes = KEY) -> Frame:
    kind = dialect.MAVLink_command_long_message
    one = kind(1, 1, 400, 0, *((0.0, 21196.0) if is_stop else (1.0, 0.0)), *[0.0] * 5)
    payload = one.pack(dialect.MAVLink(None))[10:-2]
    data = framed(kind, payload, system=system, key=key, time=int(at_s * 1e5))
    (found,), _ = frames_in(data, accept=lambda _: True)
    return found


class Process:
    """One life of a gateway: its clock is the broker's."""

    def __init__(self, state: Path, now_s: float = NOW_S) -> None:
        self.now_s = now_s
        self.signing = Signing(
            KEY, unix_s=lambda: EPOCH_S + self.now_s, directory=state, ship="twin"
        )
        self.stamps = self.signing._stamps

    def takes(self, frame: Frame) -> bool:
        return not self.signing.refusal(frame)


@pytest.fixture
def process(state: Path) -> Iterator[Process]:
    one = Process(state)
    yield one
    one.signing.close()


def test_what_was_accepted_is_refused_by_the_next_process(process: Process, state: Path) -> None:
    """Also if it was ahead of the clock, and after the file has been rewritten."""
    ahead = [signed(NOW_S + 50 + n, is_stop=n == 2) for n in range(3)]
    assert all(process.takes(one) for one in ahead)
    assert not any(process.takes(one) for one in ahead)
    for _ in range(2):
        later = Process(state, NOW_S + 1)
        assert not later.stamps.is_lost
        assert not any(later.takes(one) for one in ahead)
        assert later.takes(signed(NOW_S + 1 + _ * 0.1))
        later.signing.close()


def test_one_stations_clock_shuts_out_no_other(process: Process) -> None:
    for lead_s in (120.0, 86400.0, 2.0**31):  # the last: the end of a signature's time
        for system in (88, 255):  # 255: the same numbers as the right one's
            assert process.takes(signed(NOW_S + lead_s, system=system))
        for _ in range(3):
            process.now_s += 1.0
            assert process.takes(signed(process.now_s))
            assert process.takes(signed(process.now_s, system=89))
            assert process.takes(signed(process.now_s + 1e-3, is_stop=True))


def test_age_is_judged_by_the_brokers_clock(process: Process) -> None:
    assert not process.takes(signed(NOW_S - OLD_S - 1))
    assert not process.takes(signed(NOW_S - OLD_S - 1, is_stop=True))
    assert process.takes(signed(NOW_S))
    late = signed(NOW_S + 1)  # held back on the way
    process.now_s += OLD_S + 2
    assert not process.takes(late)
    process.now_s = -EPOCH_S  # a machine that has just started, in 1970
    assert process.takes(signed(NOW_S + 2, is_stop=True))
    assert process.takes(signed(NOW_S + 3))
    assert process.signing.now() == 0


def test_a_stop_is_taken_where_its_stream_is_past_it_and_only_once(state: Path) -> None:
    before = Process(state)
    for number in range(MOST + 1):  # so many that the oldest are not known one by one
        assert before.takes(signed(NOW_S + 10 + number * 1e-3))
    stop = signed(NOW_S + 1, is_stop=True)
    assert not before.takes(signed(NOW_S + 1))
    assert before.takes(stop)
    assert not before.takes(stop)
    before.signing.close()
    after = Process(state, NOW_S + 2)
    assert not after.takes(stop)
    assert after.takes(signed(NOW_S + 2.5, is_stop=True))
    assert file_in(state).stat().st_size < 2 * MOST * RECORD_BYTES
    after.signing.close()


def lost(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)


def no_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [lost, cut, changed, no_file])
def test_a_damaged_file_lets_no_recording_in_and_no_station_out(
    process: Process, state: Path, damage: Callable[[Path], None]
) -> None:
    recorded = [signed(NOW_S + 0.1), signed(NOW_S + 0.2, is_stop=True)]
    assert all(process.takes(one) for one in recorded)
    damage(file_in(state))
    for now_s in (NOW_S + 1, NOW_S + 2):  # the next process knows no more
        after = Process(state, now_s)
        assert not any(after.takes(one) for one in recorded)
        assert after.takes(signed(now_s + 0.1))
        assert after.takes(signed(now_s + 0.2, is_stop=True))
        after.signing.close()


def test_a_full_disk_is_said_and_stops_nobody(
    process: Process, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.close(process.stamps._file)
    process.stamps._file = os.open("/dev/full", os.O_WRONLY)
    recorded = signed(NOW_S)
    assert process.takes(recorded)
    assert "No space left" in caplog.text
    assert not list(state.iterdir())
    for number in range(1, 200):
        assert process.takes(signed(NOW_S + number * 1e-3))
    assert file_in(state)  # there was room again
    after = Process(state, NOW_S + 1)
    assert not after.takes(recorded)
    after.signing.close()


def test_what_is_unsigned_forged_or_of_another_key_is_refused(process: Process) -> None:
    right = signed(NOW_S)
    other = signed(NOW_S, key=b"x" * 32)
    flipped = right._replace(data=right.data[:-1] + bytes([right.data[-1] ^ 1]))
    unsigned = right._replace(data=bytes([0xFD, right.data[1], 0]) + right.data[3:-13])
    assert not any(process.takes(one) for one in (other, flipped, unsigned))
    assert process.takes(right)
