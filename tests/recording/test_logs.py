"""Logs of a flight: what is in them, what a cut leaves, what is refused, what strangers read."""

import contextlib
import json
import random
import shutil
from pathlib import Path

import pytest
from mcap.reader import make_reader
from mcap.stream_reader import StreamReader
from mcap.writer import Writer
from typer.testing import CliRunner

from blimp.cli import app
from blimp.distribution import build
from blimp.errors import LogError
from blimp.recording.directory import LogDirectory, newest_log
from blimp.recording.log_file import LogFile
from blimp.recording.part import NothingWhole
from blimp.recording.recording import Recording, open_recording
from blimp.recording.recover import recover
from blimp.ship import Lockstep
from tests.recording.conftest import FLIGHT_S

CUTS = 25  # 1,000 in benchmarks/log_cuts.py


def messages(path: Path, topic: str) -> list[dict[str, object]]:
    with open_recording(path) as log:
        return [entry.data for entry in log.entries({topic})]


def test_every_cycle_and_what_led_to_it_is_there(flown: Path) -> None:
    with open_recording(flown) as log:
        info, session = log.info(), log.session
        snapshots = [entry.data for entry in log.entries({"/snapshot"})]
        status = log.at(7.0)
        assert status is not None
        assert status.armed
        assert status.t_s == pytest.approx(snapshots[0]["t_s"] + 7.0, abs=0.11)
        assert next(iter(log.snapshots(from_s=5.0)))[0] == pytest.approx(5.0, abs=0.11)
    assert (info.vehicle, info.simulated, info.complete) == ("twin", True, True)
    assert info.topics["/snapshot"] == len(snapshots) >= 100 * FLIGHT_S
    assert info.topics["/status"] == len(snapshots) // 10
    assert info.duration_s == pytest.approx(len(snapshots) / 100 + 0.3, abs=0.1)
    assert [one["cycle"] for one in snapshots] == list(range(1, len(snapshots) + 1))
    assert session.airframe["name"] == "twin"
    assert (session.seed, session.wind_mps, session.lockstep) == (3, 0.2, True)

    names = [one["name"] for one in messages(flown, "/command")]
    assert names == ["arm", "takeoff", "goto"]
    refused = messages(flown, "/outcome")[-1]
    assert refused["state"] == "refused"
    assert "the limit is 100 m" in str(refused["reason"])
    faults = messages(flown, "/fault")
    assert [one["device"] for one in faults] == ["baro"]
    assert {"armed", "mode"} <= {one["name"] for one in messages(flown, "/event")}


def test_readers_that_are_not_ours_read_it(flown: Path) -> None:
    """The library's own readers: by the index, and as a stream, with all checksums."""
    with flown.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert summary is not None
        assert summary.statistics is not None
        assert {one.encoding for one in summary.schemas.values()} == {"jsonschema"}
        for schema in summary.schemas.values():
            check_for_foxglove(json.loads(schema.data), schema.name)
        heights = [
            -json.loads(message.data)["position_ned_m"][2]
            for _, channel, message in reader.iter_messages(topics=["/snapshot"])
        ]
        assert max(heights) > 1.0
        metadata = {one.name: one.metadata for one in reader.iter_metadata()}
        assert metadata["blimp"]["seed"] == "3"
        assert [one.name for one in reader.iter_attachments()] == ["airframe.json"]
    with flown.open("rb") as file:
        assert sum(1 for _ in StreamReader(file, validate_crcs=True).records) > 1000


def check_for_foxglove(schema: dict[str, object], where: str) -> None:
    """What its parser of JSON schemas demands: else the topic cannot be shown."""
    assert schema["type"] == "object", where
    properties = schema["properties"]
    assert isinstance(properties, dict)
    for name, part in properties.items():
        kind = part["type"]
        assert kind in ("boolean", "string", "number", "integer", "object", "array"), name
        if kind == "object":
            check_for_foxglove(part, f"{where}.{name}")
        if kind == "array":
            assert part["items"]["type"] in ("boolean", "string", "number", "integer"), name


def whole_chunks(data: bytes) -> list[int]:
    """Return where each chunk ends, found by nothing but the format's record heads."""
    ends, position = [], 8
    while position + 9 <= len(data):
        length = int.from_bytes(data[position + 1 : position + 9], "little")
        if position + 9 + length > len(data):
            break
        if data[position] == 0x06:
            ends.append(position + 9 + length)
        position += 9 + length
    return ends


def test_a_cut_anywhere_gives_back_all_whole_chunks(flown: Path, tmp_path: Path) -> None:
    data = flown.read_bytes()
    ends = whole_chunks(data)
    assert len(ends) >= 3
    chance = random.Random(11)
    edges = [0, 5, 8, 20, ends[0] - 1, ends[0], ends[0] + 1, len(data) - 1]
    for at in [*edges, *(chance.randrange(len(data)) for _ in range(CUTS))]:
        cut, out = tmp_path / "cut.mcap", tmp_path / "out.mcap"
        cut.write_bytes(data[:at])
        expected = sum(end <= at for end in ends)
        found = recover(cut, out)
        assert found.chunks == expected, f"cut at {at}"
        assert 0 <= found.lost_bytes <= at
        assert out.exists() is (expected > 0)
        if out.exists():
            with open_recording(out) as log:
                assert log.complete
                again = [data for number in range(expected) for data in log.messages(number)]
            with open_recording(flown) as log:
                first = [data for number in range(expected) for data in log.messages(number)]
            assert again == first
        out.unlink(missing_ok=True)


def test_a_damaged_chunk_costs_itself_alone(flown: Path, tmp_path: Path) -> None:
    ends = whole_chunks(flown.read_bytes())
    data = bytearray(flown.read_bytes())
    data[ends[0] - 100] ^= 0xFF
    broken, out = tmp_path / "broken.mcap", tmp_path / "out.mcap"
    broken.write_bytes(data)
    with open_recording(broken) as log, pytest.raises(LogError, match=r"damaged .* log recover"):
        log.info()
    found = recover(broken, out)
    assert found.chunks == len(ends) - 1
    assert found.lost_bytes > 1000
    assert len(messages(out, "/snapshot")) > 0


def test_what_is_no_log_is_refused_in_words(flown: Path, tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(LogError) as error:
            open_recording(path)
        assert str(path) in str(error.value)
        return str(error.value)

    text, foreign, other = (tmp_path / name for name in ("text", "foreign", "other"))
    text.write_text("this is a text file of some length")
    assert "is no MCAP file" in refused(text)
    with foreign.open("wb") as file:
        writer = Writer(file)
        writer.start(library="somebody else")
        writer.finish()  # type: ignore[no-untyped-call]
    assert "of another program" in refused(foreign)
    with pytest.raises(LogError, match="another program"):
        recover(foreign, tmp_path / "out")
    with Recording(flown) as log:
        facts = {**log.metadata, "format": "99"}
        LogFile(other, log.session, facts).close()
    assert "its format is '99', this program reads 1" in refused(other)
    assert refused(other).endswith(f"or a newer one: {build().version}")
    assert "No such file" in refused(tmp_path / "missing")
    assert "Is a directory" in refused(tmp_path)
    (tmp_path / "empty").touch()
    with pytest.raises(NothingWhole):
        open_recording(tmp_path / "empty")
    with pytest.raises(LogError, match="File exists"):
        recover(flown, text)
    with pytest.raises(LogError, match="File exists"):
        Lockstep(log=flown)


def test_any_flipped_bit_is_a_log_or_a_refusal(flown: Path, tmp_path: Path) -> None:
    data, chance = flown.read_bytes(), random.Random(5)
    path = tmp_path / "flipped.mcap"
    for _ in range(15):
        flipped = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        with contextlib.suppress(LogError), open_recording(path) as log:
            log.info()
        (tmp_path / "out").unlink(missing_ok=True)
        with contextlib.suppress(LogError):
            recover(path, tmp_path / "out")


def test_the_commands_print_what_they_promise(flown: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    shutil.copy(flown, tmp_path / "a.mcap")
    (tmp_path / "cut.mcap").write_bytes(flown.read_bytes()[:-50_000])
    keys = [
        "path", "vehicle", "simulated", "started", "duration_s", "complete", "chunks", "topics",
        "logs",
    ]  # fmt: skip
    said = run(app, ["log", "info", str(tmp_path / "a.mcap"), "--json"])
    assert list(json.loads(said.stdout)) == keys
    said = run(app, ["log", "list", str(tmp_path), "--json"])
    listed = [json.loads(line) for line in said.stdout.splitlines()]
    assert [(one["path"], one["complete"]) for one in listed] == [
        (str(tmp_path / "a.mcap"), True),
        (str(tmp_path / "cut.mcap"), False),
    ]
    words = [str(tmp_path / "cut.mcap"), str(tmp_path / "out.mcap"), "--json"]
    said = run(app, ["log", "recover", *words])
    found = json.loads(said.stdout)
    assert list(found) == ["chunks", "lost_bytes"]
    assert found["chunks"] == listed[1]["chunks"] > 0
    assert said.stderr == ""
    assert "complete" in run(app, ["log", "info", str(tmp_path / "out.mcap")]).stdout
    words[1] = str(tmp_path / "whole.mcap")
    said = run(app, ["log", "recover", *words[:2]])
    assert f"{found['chunks']} chunks written to {words[1]}" in said.stdout
    assert said.stderr == f"next: blimp log report {words[1]}\n"


def test_the_oldest_logs_go_first_and_open_ones_stay(flown: Path, tmp_path: Path) -> None:
    place = tmp_path / "logs"
    directory = LogDirectory(place, max_bytes=250_000)
    assert place.stat().st_mode & 0o777 == 0o700
    with open_recording(flown) as log:
        session = log.session
    held = directory.new(session)
    closed = []
    for _ in range(4):
        with directory.new(session) as one:
            closed.append(one.path)
        with one.path.open("ab") as file:
            file.write(bytes(100_000))
    stranger = place / "notes.mcap"
    stranger.write_bytes(bytes(1_000_000))
    assert directory.make_room() == closed[:2]
    assert held.path.exists()
    assert stranger.exists()
    held.close()
    numbers = [entry.number for entry in directory.logs()]
    assert numbers == [1, 4, 5]
    with directory.new(session) as newest:
        assert "-000006-" in newest.path.name
        assert newest.path.stat().st_mode & 0o777 == 0o600


def test_a_name_is_looked_for_where_logs_go(
    flown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLIMP_LOG_DIR", str(tmp_path))
    shutil.copy(flown, tmp_path / "twin-000007-20260101T000000Z.mcap")
    shutil.copy(flown, tmp_path / "twin-2-000008-20260101T000000Z.mcap")
    found = newest_log(tmp_path, "twin")
    assert found == tmp_path / "twin-000007-20260101T000000Z.mcap"
    assert newest_log(tmp_path, "twin-3") is None
    assert newest_log(tmp_path / "none", "twin") is None
    done = CliRunner().invoke(app, ["log", "info", found.name, "--json"])
    assert json.loads(done.stdout)["path"] == str(found)
    assert CliRunner().invoke(app, ["log", "info", f"./sub/{found.name}"]).exit_code != 0
