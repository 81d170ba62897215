"""`ground mission run|check|list|new` with the real ship: asked before anything moves."""

from pathlib import Path

import pytest

from tests.ground_station.mavlink.test_plan_file import item, place, plan
from tests.ground_station.ship import FlyingShip
from tests.ground_station.test_cli import Ground, ground, operator

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
