"""Parameters from recorded flights: those of the plant, within the intervals that are claimed."""

import json
import tomllib
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from blimp import airframe as airframes
from blimp.cli import app
from blimp.errors import LogError
from blimp.service.tune import autotune
from blimp.service.tune.identify import Identified, identify
from blimp.service.tune.track import Plant, with_pose_sensor
from blimp.ship import Lockstep
from tests.recording.conftest import flown

__all__ = ["flown"]

TRUTH = {
    "mass": 1.0, "thrust_x": 0.85, "thrust_y": 0.85, "thrust_z": 0.85, "thrust_lag": 1.0,
    "drag_surge": 1.5, "drag_sway": 1.5, "drag_heave": 1.5, "drag_yaw": 1.5,
    "added_mass_surge": 1.0, "added_mass_sway": 1.0, "added_mass_heave": 1.0, "inertia_yaw": 1.0,
    "inertia_tilt": 1.0, "hang": 1.0,
    "heaviness": 0.5 + 1e3 * 0.005 / 9.80665,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
def test_a_tuning_flight_finds_the_plant_within_its_intervals(tmp_path: Path) -> None:
    path = tmp_path / "flight.mcap"
    ship = with_pose_sensor(airframes.load("gtmab"), "mocap")
    plant = Plant(heaviness_n=0.005, drag_scale=1.5, thrust_scale=0.85).of(ship)
    with Lockstep(ship, seed=2, plant=plant, log=path) as flight:
        flight.command("arm")
        flight.complete("takeoff", altitude_m=1.5, within_s=60.0)
        flight.command("hold")
        autotune.excite(flight, ship, steers=False)
    said = CliRunner().invoke(app, ["identify", str(path), "--json"])
    assert said.exit_code == 0, said.output
    found = msgspec.convert(json.loads(said.stdout), Identified)
    parameters = {one.name: one for one in found.parameters}
    assert set(parameters) == set(TRUTH)
    for name, true in TRUTH.items():
        one = parameters[name]
        assert abs(one.found - true) <= one.high - one.low, (name, one)
    for name in ("thrust_z", "drag_yaw", "heaviness"):
        assert parameters[name].excited, parameters[name]
        distance = abs(parameters[name].found - TRUTH[name])
        assert distance < 0.7 * abs(parameters[name].file - TRUTH[name]), parameters[name]
    assert not parameters["mass"].excited, "a flight shows forces over masses only"
    assert found.rms_after < 0.5 * found.rms_before
    for gain in autotune.proposals(found, ship):
        assert abs(gain.proposed - gain.file / TRUTH["thrust_z"]) <= 3.0 * gain.sigma, gain
        assert gain.proposed > gain.file, "a weaker ship is asked for more"
    lines = "\n".join(found.lines)
    tables = tomllib.loads(lines[: lines.index("[[thruster]]")])
    assert tables["mass"]["heaviness_kg"] == pytest.approx(
        1e-3 * parameters["heaviness"].found, abs=1e-6
    )
    assert tables["aero"]["linear_drag"][5] == pytest.approx(
        0.00098 * parameters["drag_yaw"].found, rel=1e-3
    )
    lift_n = 0.2 * parameters["thrust_z"].found
    assert f"[[thruster]]  # lift\nmax_thrust_n = {lift_n:.4g}"[:40] in lines
    assert "volume_m3" not in lines
    assert f"; flight.mcap: {found.windows} windows" in lines
    shown = CliRunner().invoke(app, ["identify", str(path)])
    assert "mass                 unknown: not excited by this flight" in shown.output


def test_too_little_flight_and_other_ships_are_said(flown: Path, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no output front, rear, lift of airframe gtmab, but left"):
        identify([flown], airframe=airframes.load("gtmab"))
    with pytest.raises(LogError, match=r"\d windows of 5 s in flight, must be at least 8"):
        identify([flown])
    other = tmp_path / "other.mcap"
    with Lockstep("gtmab", seed=1, log=other) as ship:
        ship.step(0.5)
    with pytest.raises(LogError, match=r"other\.mcap: is of 'gtmab', .*flight\.mcap of 'twin'"):
        identify([flown, other])
    broken = tmp_path / "broken.mcap"
    broken.write_bytes(b"no log")
    with pytest.raises(LogError, match=r"broken\.mcap"):
        identify([broken])
