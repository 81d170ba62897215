"""`ground mission run|check|list|new` with the real ship: asked before anything moves."""

from pathlib import Path

import pytest

from tests.ground_station.ship import FlyingShip
from tests.ground_station.test_cli import Ground, ground, operator
from tests.ground_station.test_plan_file import item, place, plan

__all__ = ["ground", "operator"]


def test_new_is_a_mission_that_can_be_checked_for_a_ship(
    operator: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert operator("mission", "new", "survey.toml") == 0
    assert operator.err == "survey.toml written: edit it; next: ground mission run survey.toml\n"
    status, found = operator.json("mission", "check", "survey.toml", "--airframe", "twin")
    assert (status, found["result"]["name"]) == (0, "survey")
    assert 60.0 < found["result"]["estimate"]["duration_s"] < 200.0
    assert operator("mission", "new", "survey.toml") == 2
    assert "survey.toml exists already" in operator.err
    assert operator("mission", "new", "survey.plan") == 2
    (tmp_path / "site.plan").write_text(plan())
    (tmp_path / "broken.waypoints").write_text("no")
    (tmp_path / "pyproject.toml").write_text("[project]")
    status, found = operator.json("mission", "list")
    rows = {row["file"]: row for row in found["result"]["missions"]}
    assert list(rows) == ["hop", "show", "square", "broken.waypoints", "site.plan", "survey.toml"]
    assert "QGC WPL 110" in rows["broken.waypoints"]["error"]
    assert operator("mission", "list") == 0
    assert "square" in operator.out


def test_check_of_a_folder_is_a_table_of_its_files(
    operator: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site.plan").write_text(plan(UP_AND_HOME))
    assert operator("mission", "check", str(tmp_path)) == 0
    assert "site.plan site: 5 legs" in operator.out
    monkeypatch.setattr("ground_station.mission_command.SILENT_S", 0.0)
    assert operator("mission", "check", str(tmp_path)) == 0
    assert operator.err == ""  # into a pipe
    monkeypatch.setattr("ground_station.report.Report.err_is_terminal", True)
    assert operator("mission", "check", str(tmp_path)) == 0
    assert "checking 0 of 1: site.plan" in operator.err
    (tmp_path / "old.waypoints").write_text("QGC WPL 100")
    status, found = operator.json("mission", "check", str(tmp_path))
    assert "checking" not in operator.err
    assert (status, found["state"], found["reason"]) == (2, "REFUSED", "1 of 2 cannot be flown")
    assert "line 1: 'QGC WPL 100'" in found["result"]["missions"][0]["error"]
    assert operator("mission", "check", str(tmp_path), "--airframe", "twin") == 2
    assert "1 of 2 cannot be flown" in operator.err
    assert "old.waypoints REFUSED, line 1" in operator.out
    (tmp_path / "none").mkdir()
    assert operator("mission", "check", str(tmp_path / "none")) == 2


UP_AND_HOME = [item(22, 0, 0, 0, None, 0, 0, 1), item(20, frame=2)]


def test_a_plan_is_flown_inside_its_fence(
    operator: Ground, twin: FlyingShip, tmp_path: Path
) -> None:
    path, home = tmp_path / "up.plan", twin.ship.airframe.home
    path.write_text(plan(UP_AND_HOME, [home.latitude_deg, home.longitude_deg, 2.0]))
    status, found = operator.json("mission", "run", str(path), "--yes")
    assert (status, found["state"]) == (0, "SUCCESS"), found
    assert [report["do"] for report in found["result"]["reports"]] == [
        "geofence", "arm", "takeoff", "return", "land",
    ]  # fmt: skip


def test_a_plan_for_another_place_is_refused_before_it_arms(
    operator: Ground, twin: FlyingShip, tmp_path: Path
) -> None:
    path = tmp_path / "far.plan"
    path.write_text(plan([*UP_AND_HOME[:1], item(16, 0, 0, 0, None, *place(5, 0, 2))]))
    assert operator("mission", "run", str(path), "--yes") == 5
    assert "m from the home in" in operator.err
    assert "beyond 10000 m" in operator.err
    assert not twin.ship.armed


def test_without_a_name_the_ship_lists_what_it_has(operator: Ground, twin: FlyingShip) -> None:
    for kind, name in (("sensor", "baro"), ("motor", "tail"), ("servo", "tilt")):
        status, found = operator.json(kind)
        assert (status, found["state"]) == (0, "SUCCESS")
        assert name in found["result"][f"{kind}s"]
        assert operator(kind) == 0
        assert f"\n{name} " in f"\n{operator.out}"
    assert operator("motor", "left") == 2
    assert "say PERCENT and --seconds, too" in operator.err
