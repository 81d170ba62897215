"""The recorder on a real ring and a real disk: full, idle, restarted, out of room."""

import base64
import contextlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blimp.clock import ManualClock, SystemClock
from blimp.config import log_bound_mb, log_directory
from blimp.errors import CameraError, ConfigError, LogError
from blimp.link.camera_control import ControlServer
from blimp.link.paths import RuntimePaths
from blimp.recording.directory import LogDirectory, check_bound
from blimp.recording.log_file import LogFile
from blimp.recording.part import LogPart
from blimp.recording.recording import open_recording
from blimp.recording.recover import recover
from blimp.recording.ring import Ring
from blimp.recording.tape import Kind, Session, Tape
from blimp.service.logs.live_view import LiveView
from blimp.service.recorder import IDLE_S, RETRY_S, Recorder, RecorderOptions
from blimp.types import Command, Outcome, OutcomeState, Setpoint, VehicleState
from tests.disk import small_disk
from tests.queue.conftest import DEADLINE_S, wait_until
from tests.sim.served import served_world

SESSION = Session(
    vehicle="twin",
    boot_id="b1",
    simulated=True,
    rate_hz=100.0,
    epoch_s=1.7e9,
    actuators=("left", "right"),
    servos=(),
    airframe={"name": "twin"},
)


class Flight:
    """A flight loop's face towards the tape, and its tape."""

    def __init__(self, ring: Ring, session: Session = SESSION, *, up_s: float = 0.0) -> None:
        self.armed = True
        self._up_s = up_s  # of the machine when the flight process starts: its clock begins there
        self.state = VehicleState(t_s=up_s)
        self.setpoint = Setpoint(position_ned_m=(1.0, None, -2.0))
        self._number = 0
        self._tape = Tape(session, write=ring.write)
        ring.keep(self._tape.session)

    def fly(self, cycles: int) -> None:
        for _ in range(cycles):
            self._number += 1
            self.state = VehicleState(t_s=self._up_s + self._number / 100)
            values = {"left": 0.5, "right": -0.5}
            self._tape.cycle(self, values, number=self._number, step_s=0.001)

    def say(self, message: Command | Outcome) -> None:
        self._tape.message(msgspec.json.encode(message))


class Rig:
    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.ring = Ring(directory / "ring")
        self.flight = Flight(self.ring)
        self.directory = LogDirectory(directory / "logs", max_bytes=50_000_000)
        self.recorder = self.start()

    def start(self, live: LiveView | None = None) -> Recorder:
        options = RecorderOptions(
            runtime_dir=None, directory=self.directory.path, max_bytes=1, seed=9, wind_mps=0.5
        )
        ring = Ring(self.directory.path.parent / "ring")
        self.recorder = Recorder(ring, self.directory, clock=self.clock, options=options, live=live)
        return self.recorder

    def fly(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.flight.fly(10)
            self.clock.advance(0.1)
            self.recorder.poll()

    def cycles(self) -> list[int]:
        """Return the number of every cycle in every log."""
        numbers = []
        for entry in self.directory.logs():
            with open_recording(entry.path, alone=True) as log:
                numbers += [int(one.data["cycle"]) for one in log.entries({"/snapshot"})]
        return numbers

    def words(self, topic: str) -> str:
        found = []
        for entry in self.directory.logs():
            with open_recording(entry.path, alone=True) as log:
                found += [str(one.data) for one in log.entries({topic})]
        return "\n".join(found)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_killed_recorder_loses_nothing(rig: Rig) -> None:
    rig.fly(2.55)
    rig.flight.fly(30)  # nobody is there
    rig.start()  # the old one was killed: it never stored its last half second
    rig.fly(1.0)
    rig.recorder.finish()
    cycles = rig.cycles()
    assert cycles == list(range(1, rig.flight._number + 1))
    assert len(rig.directory.logs()) == 2
    with open_recording(rig.directory.logs()[0].path, alone=True) as first:
        assert not first.complete
    with open_recording(rig.directory.logs()[1].path, alone=True) as second:
        assert second.complete
        assert (second.session.seed, second.session.wind_mps) == (9, 0.5)
        assert second.session.boot_id == "b1"


def test_a_flight_is_whole_whichever_of_its_logs_is_read(rig: Rig, tmp_path: Path) -> None:
    rig.fly(2.55)
    rig.flight.fly(30)  # nobody is there: its recorder was killed
    rig.start()
    rig.fly(1.0)
    after = msgspec.structs.replace(SESSION, boot_id="b2", follows="b1", epoch_s=1.8e9)
    rig.flight = Flight(rig.ring, after, up_s=4.0)  # and this one's clock was set meanwhile
    rig.fly(1.7)
    rig.recorder.finish()
    logs = [entry.path for entry in rig.directory.logs()]
    assert len(logs) == 3
    for path in logs:
        with open_recording(path) as log:
            assert log.info().logs == tuple(one.name for one in logs)
            assert log.duration_s == pytest.approx(5.69)
            found = list(log.entries({"/snapshot"}))
            numbers = [one.data["cycle"] for one in found]
            assert numbers == [*range(1, 391), *range(1, 171)]
            assert [one.t_s for one in found] == sorted(one.t_s for one in found)
            assert log.status_at(9.0) is None
    with LogPart(logs[1]) as second, LogPart(logs[2]) as third:
        assert (second.before, second.after) == (logs[0].name, logs[2].name)
        assert (third.before, third.after) == (logs[1].name, "")
    whole = tmp_path / "whole.mcap"
    assert recover(logs[2], whole).lost_bytes == 0
    with open_recording(whole) as log:
        assert log.info().topics["/snapshot"] == 560
        assert log.duration_s == pytest.approx(5.69)
    logs[0].unlink()
    with open_recording(logs[2]) as log:
        assert log.info().logs == (logs[1].name, logs[2].name)
    logs[1].write_bytes(b"no log")
    with open_recording(logs[2]) as log:
        assert log.info().logs == (logs[2].name,)


def test_what_a_killed_recorder_left_twice_is_read_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.fly(1.5)
    with monkeypatch.context() as killed:  # when a chunk is stored, and not yet off the ring
        killed.setattr(rig.recorder._ring, "release", lambda: None)
        rig.fly(0.7)
    rig.start()
    rig.fly(1.0)
    rig.recorder.finish()
    assert len(rig.cycles()) > rig.flight._number, "both logs have the chunk"
    with open_recording(rig.directory.logs()[0].path) as log:
        numbers = [one.data["cycle"] for one in log.entries({"/snapshot"})]
    assert numbers == list(range(1, rig.flight._number + 1))


def test_another_flight_is_not_taken_for_the_same(rig: Rig) -> None:
    rig.fly(1.5)
    rig.flight = Flight(rig.ring, msgspec.structs.replace(SESSION, boot_id="b2"), up_s=2.0)
    rig.fly(1.5)  # the first one has ended in order
    strange = msgspec.structs.replace(SESSION, boot_id="b3", follows="b1")
    rig.flight = Flight(rig.ring, strange, up_s=4.0)  # its predecessor is not the one before
    rig.fly(1.5)
    rig.flight.armed = False
    rig.fly(IDLE_S + 10.0)
    rig.flight.armed = True  # it stood for long
    rig.fly(1.5)
    rig.recorder.finish()
    logs = [entry.path for entry in rig.directory.logs()]
    assert len(logs) == 4
    for path in logs:
        with open_recording(path) as log:
            assert log.info().logs == (path.name,)


@pytest.mark.parametrize("name", ["", ".", "..", "../x.mcap", "no\0file", "x" * 300, "a.mcap"])
def test_a_name_that_is_no_log_beside_it_ends_the_flight(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.mcap"
    with LogFile(path, SESSION, before=name) as log:
        log.continue_in(name)
    with open_recording(path) as found:
        assert found.info().logs == ("a.mcap",)


def test_what_found_no_room_is_counted_in_the_log(rig: Rig) -> None:
    rig.fly(1.0)
    rig.flight.fly(6000)  # a minute without a recorder: more than the ring holds
    assert rig.ring.dropped > 0
    rig.recorder.poll()
    rig.fly(1.5)
    rig.recorder.finish()
    dropped = rig.ring.dropped
    assert f"{dropped} records dropped: the ring was full" in rig.words("/event")
    cycles = rig.cycles()
    assert len(cycles) == rig.flight._number - dropped
    assert cycles[-1] == rig.flight._number


def test_a_ship_that_stands_is_thinned_out_and_the_next_flight_is_a_log_of_its_own(
    rig: Rig,
) -> None:
    rig.flight.armed = False
    rig.fly(IDLE_S + 60.0)
    full = round(IDLE_S * 100)
    assert full <= len(rig.cycles()) <= full + 110
    rig.flight.say(Command(id="c1", name="arm"))
    rig.flight.say(Outcome(id="c1", state=OutcomeState.DONE))
    rig.flight.armed = True
    rig.fly(3.0)
    rig.recorder.finish()
    before, after = (entry.path for entry in rig.directory.logs())
    with open_recording(before) as log:
        assert [one.data["id"] for one in log.entries({"/command"})] == ["c1"]
    with open_recording(after) as log:
        assert log.info().topics["/snapshot"] == 300


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to write beyond: as a full disk does, with EFBIG for ENOSPC."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_and_costs_the_log_only_what_does_not_fit(
    rig: Rig, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rig.fly(2.5)
    (log,) = rig.directory.logs()
    with files_of_at_most(log.path.stat().st_size + 700):
        rig.fly(4.0)
    said = capfd.readouterr().err
    assert "File too large; not recording, trying again in 5 s" in said
    assert said.count("\n") == 1
    assert rig.ring.dropped == 0, "the flight process's ring is kept free"
    found = recover(log.path, tmp_path / "whole.mcap")
    assert found.chunks >= 2
    assert found.lost_bytes == 0, "what did not fit whole was cut off again"
    rig.fly(RETRY_S + 2.0)
    rig.recorder.finish()
    assert len(rig.directory.logs()) == 2
    assert rig.cycles()[-1] == rig.flight._number
    assert "records dropped: the disk took none" in rig.words("/event")


def test_a_disk_that_others_fill_is_said_once_and_no_flight_is_lost(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with small_disk(mib=80) as disk:
        rig = Rig(disk.path)
        rig.fly(2.5)
        (log,) = rig.directory.logs()
        rig.recorder.finish()
        rig.start()
        rig.fly(2.5)
        before = {one.path: one.path.read_bytes() for one in rig.directory.logs()}
        assert len(before) == 2
        disk.fill()
        rig.fly(60.0)
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        assert "not recording, trying again in 5 s" in said
        assert rig.ring.dropped == 0, "the flight process's ring is kept free"
        assert set(before) <= {one.path for one in rig.directory.logs()}, "a flight was removed"
        assert all(path.read_bytes().startswith(data) for path, data in before.items())
        disk.free()
        rig.fly(RETRY_S + 2.0)
        assert "recorder: recording again: " in capfd.readouterr().err
        rig.recorder.finish()
        assert rig.cycles()[-1] == rig.flight._number
        assert "records dropped: the disk took none" in rig.words("/event")
        assert log.path.exists()
        disk.fill()
        rig.fly(2.0)
        assert "not recording" in capfd.readouterr().err, "another time is said again"


def test_a_record_that_cannot_be_read_is_said_and_no_more(rig: Rig) -> None:
    rig.fly(1.0)
    for kind in Kind:
        if kind is not Kind.SESSION:
            rig.ring.write(kind, b'{"type":"snapshot"}')
    rig.ring.write(99, b"from another time")
    rig.fly(1.5)
    rig.recorder.finish()
    assert rig.cycles() == list(range(1, rig.flight._number + 1))
    assert "record of kind 3: Object missing required field" in rig.words("/event")


def test_a_command_before_the_first_cycle_has_the_time_of_that_cycle(rig: Rig) -> None:
    """Until a cycle is read nobody knows how long the machine is up: 0 would add all of it."""
    rig.fly(1.0)
    again = msgspec.structs.replace(SESSION, boot_id="b2")
    rig.flight = Flight(rig.ring, again, up_s=28_341.0)
    for number in ("c1", "c2"):
        rig.flight.say(Command(id=number, name="ping"))
        rig.flight.say(Outcome(id=number, state=OutcomeState.DONE))
        rig.ring.write(Kind.MESSAGE, b"no message")
        rig.fly(1.5)
        rig.recorder.finish()
        rig.start()  # with a translator that has seen no cycle of this flight process
    logs = [entry.path for entry in rig.directory.logs()]
    assert len(logs) == 3
    for path, cycle in zip(logs[1:], (1, 151), strict=True):
        with open_recording(path, alone=True) as log:
            assert 1.0 < log.duration_s < 2.0
            for topic in ("/command", "/outcome"):
                (entry,) = log.entries({topic})
                assert entry.data["cycle"] == cycle
                assert entry.data["t_s"] == pytest.approx(28_341.0 + cycle / 100, abs=0.011)


def test_a_log_has_only_a_share_of_the_bound(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.directory.max_bytes = 100_000
    rig.fly(20.0)
    rig.recorder.finish()
    sizes = [entry.size for entry in rig.directory.logs()]
    assert len(sizes) > 3
    assert sum(sizes) <= 100_000 + max(sizes)
    assert rig.directory.logs()[0].number > 1, "the oldest are gone"


def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="may be written by others"):
        LogDirectory(tmp_path / "open", max_bytes=1)
    with pytest.raises(ConfigError, match="cannot be made"):
        LogDirectory(Path("/proc/none"), max_bytes=1)


def test_directory_and_bound_come_from_the_environment() -> None:
    assert log_directory({"XDG_STATE_HOME": "/s"}) == Path("/s/blimp/logs")
    assert log_directory({"BLIMP_LOG_DIR": "/l", "XDG_STATE_HOME": "/s"}) == Path("/l")
    assert log_bound_mb({}) == 1000
    with pytest.raises(ConfigError, match="BLIMP_LOG_MB: 'much' is not a whole number of MB"):
        log_bound_mb({"BLIMP_LOG_MB": "much"})
    assert check_bound(0, where="x") == 0
    with pytest.raises(ConfigError, match="--log-mb: must be 10 to 1000000 MB, or 0"):
        check_bound(3, where="--log-mb")


def test_where_a_simulated_ship_really_is_comes_from_its_world(tmp_path: Path) -> None:
    with served_world() as world:
        paths = RuntimePaths(world.parent)
        ring = Ring(paths.tape)
        flight = Flight(ring, up_s=SystemClock().now_s())
        flight.fly(10)
        recorder = subprocess.Popen(
            [sys.executable, "-m", "blimp", "log", "record", "--runtime-dir", str(world.parent),
             "--log-dir", str(tmp_path / "logs"), "--log-mb", "100"],
        )  # fmt: skip
        try:
            wait_until(lambda: len(truths(tmp_path / "logs")) > 5, "no truth is recorded")
        finally:
            recorder.terminate()
            assert recorder.wait(DEADLINE_S) == 0
        found = truths(tmp_path / "logs")
    assert {len(one["position_ned_m"]) for one in found} == {3}
    times = [one["t_s"] for one in found]
    assert times == sorted(times)
    assert times[0] == pytest.approx(flight.state.t_s, abs=DEADLINE_S)  # one clock for both


def truths(directory: Path) -> list[dict[str, Any]]:
    """Return all that logs tell of the truth, one of them may be cut by being written."""
    found: list[dict[str, Any]] = []
    for path in directory.glob("*.mcap"):
        with contextlib.suppress(LogError), open_recording(path) as log:
            found += [one.data for one in log.entries({"/truth"})]
    return found


def test_the_cameras_picture_is_a_topic_that_foxglove_shows(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blimp.service.recorder.PICTURE_WAIT_S", DEADLINE_S)  # a busy machine
    control = tmp_path / "camera-control.sock"
    asked = 0
    jpeg = b"\xff\xd8\xff" + bytes(3000)

    def picture(_: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise CameraError("no new frame in 0.5 s")
        return {"about": {"t_s": 0.1 * asked}, "jpeg": jpeg}

    def fly(seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            rig.fly(0.5)
            rig.recorder.take_picture(control)

    fly(12.0)  # no camera's process: it is looked for every 10 s
    with ControlServer(control, {"picture": picture}):
        fly(14.0)
        assert asked == 3, "2 s from picture to picture, 10 s from none"
    rig.recorder.finish()
    with open_recording(rig.directory.logs()[0].path) as log:
        first, second = log.entries({"/camera"})
    assert base64.b64decode(first.data["data"]) == jpeg
    assert first.data["format"] == "jpeg"
    assert second.data["timestamp"] == {"sec": 1_700_000_000, "nsec": 200_000_000}
