"""A log in other formats: every cycle in a table, the track on a map, pictures for a report."""

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from typer.testing import CliRunner

from blimp.airframe import load
from blimp.cli import app
from blimp.errors import LogError
from blimp.recording.log_file import LogFile
from blimp.recording.recording import Entry, Recording, open_recording
from blimp.recording.topics import Message

run = CliRunner().invoke
KML = "{http://www.opengis.net/kml/2.2}"
GX = "{http://www.google.com/kml/ext/2.2}"


def test_the_table_has_a_row_for_every_cycle(flown: Path, tmp_path: Path) -> None:
    said = run(app, ["log", "export", str(flown), str(tmp_path / "flight.csv")])
    assert said.exit_code == 0, said.output
    with (tmp_path / "flight.csv").open() as file:
        rows = list(csv.DictReader(file))
    with open_recording(flown) as log:
        cycles = list(log.entries({"/snapshot"}))
    assert [int(row["cycle"]) for row in rows] == [one.data["cycle"] for one in cycles]
    assert float(rows[550]["down_m"]) == cycles[550].data["position_ned_m"][2]
    assert float(rows[550]["left"]) == cycles[550].data["actuators"]["left"]
    assert (rows[5]["set_down_m"], rows[5]["armed"]) == ("", "0")
    assert float(rows[550]["set_down_m"]) < 0.0
    said_next = f"{tmp_path / 'flight.csv'} written: one row a cycle"
    assert said_next in said.stderr
    printed = run(app, ["log", "export", str(flown)]).stdout
    assert printed == (tmp_path / "flight.csv").read_text()


def test_the_table_has_battery_wind_votes_and_truth(flown: Path, tmp_path: Path) -> None:
    run(app, ["log", "export", str(flown), str(tmp_path / "flight.csv")])
    with (tmp_path / "flight.csv").open() as file:
        rows = list(csv.DictReader(file))
    with open_recording(flown) as log:
        known: dict[str, Entry] = {}
        cells: list[tuple[dict[str, str], dict[str, Entry]]] = []
        for entry in log.entries({"/snapshot", "/status", "/truth"}):
            known[entry.topic] = entry
            if entry.topic == "/snapshot":
                cells.append((rows[len(cells)], dict(known)))
    assert len(cells) == len(rows)
    assert (rows[0]["battery_v"], rows[0]["true_down_m"], rows[0]["mode"]) == ("", "", "")
    assert any(row["wind_north_mps"] for row in rows)
    assert any(row["failsafe"] for row in rows)
    for row, newest in cells[20:]:
        status, truth = newest["/status"].data, newest["/truth"].data
        assert (row["mode"], row["failsafe"]) == (status["mode"], status["failsafe"])
        assert row["battery_v"] == str(status.get("battery_v", ""))
        assert float(row["true_north_m"]) == truth["position_ned_m"][0]
        assert float(row["true_down_mps"]) == truth["velocity_ned_mps"][2]
        assert float(row["true_yaw_rad"]) == truth["attitude_rad"]["yaw"]
        votes = {vote["sensor"]: vote for vote in status["health"]["height"]["votes"]}
        for sensor in ("baro", "sonar"):
            wanted = votes.get(sensor)
            cell = row[f"height_{sensor}_innovation"]
            assert cell == ("" if wanted is None else str(wanted["innovation"]))
            assert row[f"height_{sensor}_agrees"] == (
                "" if wanted is None else str(int(wanted["agrees"]))
            )


def test_maps_have_the_track_at_home_and_what_happened_on_it(flown: Path, tmp_path: Path) -> None:
    for name in ("a.kml", "a.geojson"):
        assert run(app, ["log", "export", str(flown), str(tmp_path / name)]).exit_code == 0
    track, *points = json.loads((tmp_path / "a.geojson").read_text())["features"]
    longitude, latitude, _ = track["geometry"]["coordinates"][50]
    home = load("twin").home
    assert latitude == pytest.approx(home.latitude_deg, abs=1e-4)
    assert longitude == pytest.approx(home.longitude_deg, abs=1e-4)
    assert max(place[2] for place in track["geometry"]["coordinates"]) > 1.0
    names = [point["properties"]["name"] for point in points]
    assert {"arm", "takeoff", "goto", "baro", "failsafe"} <= set(names)

    root = ElementTree.parse(tmp_path / "a.kml").getroot()
    coords = [one.text for one in root.iter(f"{GX}coord")]
    assert len(coords) == len(track["geometry"]["coordinates"])
    assert len(coords) == len(list(root.iter(f"{KML}when"))) - len(points)
    assert coords[50] == " ".join(map(str, track["geometry"]["coordinates"][50]))


def test_names_with_markup_stay_text(flown: Path, tmp_path: Path) -> None:
    nasty = "</name><script>alert(1)</script>"
    with Recording(flown) as log, LogFile(tmp_path / "n.mcap", log.session) as new:
        for message in log.messages(0):
            new.add(message)
            if message.topic == "/status":
                event = {"t_s": 0.0, "name": "fault", "message": nasty, "id": "x"}
                new.add(Message("/event", message.time_ns, msgspec.json.encode(event)))
    assert (
        run(app, ["log", "export", str(tmp_path / "n.mcap"), str(tmp_path / "n.kml")]).exit_code
        == 0
    )
    root = ElementTree.parse(tmp_path / "n.kml").getroot()
    assert nasty in {one.text for one in root.iter(f"{KML}name")}


def test_what_cannot_be_exported_is_said(flown: Path, tmp_path: Path) -> None:
    said = run(app, ["log", "export", str(flown), str(tmp_path / "a.gpx")])
    assert said.exit_code == 2
    assert "'gpx': must be csv, kml, geojson" in said.output
    said = run(app, ["log", "export", str(flown), "/proc/none/a.csv"])
    assert isinstance(said.exception, LogError)
    assert "/proc/none/a.csv" in str(said.exception)
    data = flown.read_bytes()
    (tmp_path / "none.mcap").write_bytes(data[:20_000])
    for words in (["export", "--format", "kml"], ["plot"], ["refly"]):
        said = run(app, ["log", words[0], str(tmp_path / "none.mcap"), *words[1:]])
        assert isinstance(said.exception, LogError), said.output
        assert "is in it" in str(said.exception)
