"""`blimp sim truth` and `hold`: asked of the world, whatever the flight process does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from blimp.cli import app
from blimp.errors import ConfigError
from blimp.service.truth import ask_truth, hold
from blimp.sim.electrical import Pull
from blimp.sim.remote import RemoteWorld
from tests.sim.served import served_world

FIELDS = [
    "t_s", "position_ned_m", "velocity_ned_mps", "altitude_m", "attitude_rad", "on_ground",
    "actuators", "outputs_safe",
]  # fmt: skip


def test_it_prints_one_object_of_the_world_alone() -> None:
    with served_world() as path:
        asked = subprocess.run(
            [sys.executable, "-m", "blimp", "sim", "truth", "--json",
             "--runtime-dir", str(path.parent)],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    assert (asked.returncode, asked.stderr) == (0, "")
    truth = json.loads(asked.stdout)
    assert list(truth) == FIELDS
    assert list(truth["attitude_rad"]) == ["roll", "pitch", "yaw"]
    assert len(truth["position_ned_m"]) == len(truth["velocity_ned_mps"]) == 3
    assert truth["altitude_m"] == pytest.approx(-truth["position_ned_m"][2])
    assert set(truth["actuators"]) == {"left", "right", "tail", "tilt", "elevator", "rudder"}
    assert (truth["on_ground"], truth["outputs_safe"]) == (True, True)


def test_a_driven_motor_or_a_servo_with_pulses_is_not_safe() -> None:
    with served_world() as path, RemoteWorld(path) as world:
        for pin in (6, 13, 12):
            world.pin_mode(pin, output=True, pull=Pull.OFF)
        world.pin_write(12, True, held_s=0.0)
        world.pin_pwm(6, 0.5, frequency_hz=100.0)
        driven = ask_truth(path.parent)
        assert driven["actuators"]["left"] == 0.5
        assert driven["outputs_safe"] is False
        world.pin_write(12, False, held_s=0.0)
        assert ask_truth(path.parent)["outputs_safe"] is True
        world.i2c(1, 0x40, bytes([0x00, 0x20]), 0)  # PCA9685: awake, then a pulse on channel 0
        world.i2c(1, 0x40, bytes([0x06, 0, 0, 0x33, 0x02]), 0)
        assert ask_truth(path.parent)["outputs_safe"] is False


def test_a_ship_that_a_person_holds_stays_where_it_is_until_it_is_let_go() -> None:
    with served_world() as path, RemoteWorld(path) as world:
        hold(path.parent, held=True)
        for pin in (6, 13, 12):
            world.pin_mode(pin, output=True, pull=Pull.OFF)
        world.pin_write(12, True, held_s=0.0)
        world.pin_pwm(6, 1.0, frequency_hz=100.0)  # the left motor, which turns the ship
        until_s = world.truth().t_s + 0.5
        while (held := ask_truth(path.parent))["t_s"] < until_s:
            assert held["attitude_rad"]["yaw"] == 0.0
        assert held["actuators"]["left"] == 1.0
        assert held["velocity_ned_mps"] == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)
        let_go = CliRunner().invoke(app, ["sim", "hold", "off", "--runtime-dir", str(path.parent)])
        assert let_go.exit_code == 0, let_go.output
        until_s = held["t_s"] + 30.0
        while (free := ask_truth(path.parent))["attitude_rad"]["yaw"] == 0.0:
            assert free["t_s"] < until_s


def test_no_stack_several_stacks_and_a_dead_world_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match="no simulated ship runs on this machine"):
        ask_truth(None)
    with pytest.raises(ConfigError, match=r"no simulated world answers at .*world\.sock"):
        ask_truth(tmp_path)
