"""Parameters from a recorded flight: those of the plant, within what the figures claim."""

import json
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

# drag, thrust and weight of the plant over those of the file the ship flies by
TRUTH = {
    "thrust": 0.85, "drag_surge": 1.5, "drag_sway": 1.5, "drag_heave": 1.5, "drag_yaw": 1.5,
    "added_mass_surge": 1.0, "added_mass_sway": 1.0, "added_mass_heave": 1.0, "inertia_yaw": 1.0,
    "heaviness": 0.5 + 1e3 * 0.005 / 9.80665,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
def test_a_tuning_flight_finds_the_plant_with_honest_uncertainties(tmp_path: Path) -> None:
    path = tmp_path / "flight.mcap"
    ship = with_pose_sensor(airframes.load("gtmab"), "mocap")
    plant = Plant(heaviness_n=0.005, drag_scale=1.5, thrust_scale=0.85).of(ship)
    with Lockstep(ship, seed=2, plant=plant, log=path) as flight:
        flight.command("arm")
        flight.complete("takeoff", altitude_m=1.5, within_s=60.0)
        flight.command("hold")
        autotune.excite(flight, ship, steers=False)
    said = CliRunner().invoke(app, ["tune", "identify", str(path), "--json"])
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    parameters = {one["name"]: one for one in found["parameters"]}
    assert set(parameters) == set(TRUTH)
    for name, true in TRUTH.items():
        one = parameters[name]
        assert abs(one["found"] - true) <= 3.0 * one["sigma"], (name, one)
    for name in ("thrust", "drag_heave", "drag_yaw", "heaviness"):
        assert parameters[name]["excited"], parameters[name]
        distance = abs(parameters[name]["found"] - TRUTH[name])
        assert distance < 0.7 * abs(parameters[name]["file"] - TRUTH[name]), parameters[name]
    assert found["rms_after"] < 0.8 * found["rms_before"]
    plant_found = msgspec.convert(found, Identified)
    for one in autotune.proposals(plant_found, ship):
        assert abs(one.proposed - one.file / TRUTH["thrust"]) <= 3.0 * one.sigma, one
        assert one.proposed > one.file, "a weaker ship is asked for more"
    assert {one.name for one in autotune.proposals(plant_found, ship)} == {
        "velocity_p", "climb_p", "yaw_rate_p",
    }  # fmt: skip
    lines = "\n".join(autotune.lines(plant_found, ship))
    thrust = parameters["thrust"]["found"]
    assert f"[[thruster]] lift: max_thrust_n = {0.2 * thrust:.5g}" in lines
    assert "[aero] linear_drag = [" in lines


def test_too_little_flight_and_another_ship_are_said(flown: Path) -> None:
    with pytest.raises(LogError, match="0 windows"):
        identify(flown, airframe=airframes.load("gtmab"))  # no motor of that name
    with pytest.raises(LogError, match=r"windows of 2 s in flight, must be at least 8"):
        identify(flown)
