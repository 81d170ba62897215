"""Flights of others flown again: the published model exactly, skill, and logs that are no good."""

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from blimp import airframe
from blimp.errors import ConfigError
from blimp.rotation import euler, rotate_back
from blimp.sim.flight_log import read
from blimp.sim.physics import Physics
from blimp.sim.replay import inputs, replay, sagged, slopes
from tests.sim.ships import gtmab

FLIGHT = Path(__file__).parent / "data" / "rgblimp_127.csv"
GTMAB_COLUMNS = (
    "time", "vx", "vy", "vz", "wx", "wy", "wz", "x", "y", "z", "phi", "theta", "psi",
    "vxdot", "vydot", "vzdot", "wxdot", "wydot", "wzdot", "fx", "fy", "fz", "tauz",
)  # fmt: skip


def test_rgblimp_accelerates_as_the_published_model_says() -> None:
    """The log has what the authors' own code predicts for each sample: `*_dot_sim`."""
    with FLIGHT.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [f"{kind}_dot_sim_{axis}" for kind in ("vb", "wb") for axis in (1, 2, 3)]
    theirs = np.array([[float(row[name]) for row in rows] for name in names])
    ship, flight = airframe.load("rgblimp"), read(FLIGHT)
    ours = slopes(flight, ship, *inputs(flight, ship))
    # Left: g of 9.80 against 9.80665 m/s^2, and products of inertia below 1e-5 kg m^2.
    assert np.abs(ours - theirs).max() < 2e-3
    assert np.abs(theirs).max() > 0.1


@pytest.mark.parametrize("name", ["rgblimp", "rgblimp-fit"])
def test_the_model_beats_who_knows_no_physics(name: str) -> None:
    """On a flight that nothing was fitted to. The table of docs/physics.md has all twelve."""
    found = replay(airframe.load(name), FLIGHT)
    steady = found.baselines["constant_velocity"].position_rmse_m
    assert found.windows == 2
    for axis, share in (("north", 0.5), ("east", 0.6), ("down", 0.8)):
        assert found.position_rmse_m[axis] < share * steady[axis]
    assert found.attitude_rmse_deg["yaw"] < 10.0
    still = found.baselines["hold_last"]
    assert still.position_rmse_m["north"] > steady["north"]


def test_thrust_falls_as_the_battery_sags() -> None:
    ship, flight = airframe.load("rgblimp-fit"), read(FLIGHT)
    logged, _ = inputs(flight, ship)
    left = sagged(flight, ship, logged)
    assert left[:, 0] == pytest.approx(logged[:, 0])
    battery, seconds = ship.battery, float(flight.t_s[-1])
    share = float(logged[0, 0]) / ship.thruster[0].max_thrust_n
    motors_a = 2.0 * ship.thruster[0].max_current_a * share**1.5
    drop_v = (
        battery.polarisation_ohm * motors_a * (1.0 - math.exp(-seconds / battery.polarisation_s))
    )
    began_v = 4.2 - battery.settled_ohm * battery.idle_current_a - battery.resistance_ohm * motors_a
    found = float(left[0, -1] / logged[0, -1])
    # Left: the charge that is used up, 2 mAh of 500.
    assert found == pytest.approx((1.0 - drop_v / began_v) ** 2, abs=0.005)
    assert found < 0.97


def gtmab_log(path: Path, *, edit: Callable[[list[list[str]]], object] = lambda _: None) -> Path:
    """Fly gtmab with two thrusts of the log's kind and write what a motion capture would."""
    ship, hz, steps = gtmab(), 40.0, 5
    physics = Physics(airframe=ship, seed=1)
    physics.place(position_ned_m=(0.0, 0.0, -1.5), rates_body_radps=(0.0, 0.0, 0.2))
    physics._ground.wrench = lambda *_: None  # type: ignore[method-assign]
    rows = [list(GTMAB_COLUMNS)]
    now: list[float] = []
    share = 1.0 - math.exp(-1.0 / hz / ship.thruster[0].lag_s)
    for sample in range(round(8.0 * hz)):
        force = (0.02, 0.01, -0.005, 0.0004) if sample < 160 else (-0.01, 0.0, 0.01, -0.0002)
        state = physics.state
        velocity = rotate_back(state.attitude, state.velocity_ned_mps)
        change = physics._accelerations
        numbers = (
            sample / hz, *velocity, *state.rates_body_radps, *state.position_ned_m,
            *euler(state.attitude), *change, *force,
        )  # fmt: skip
        rows.append([repr(float(x)) for x in numbers])
        fx, fy, fz, tau = force
        yaw = tau / (4.0 * 0.0142857)
        asked = (0.5 * fx + yaw, 0.5 * fx - yaw, 0.5 * fy + yaw, 0.5 * fy - yaw, -fz)
        now = [a + share * (b - a) for a, b in zip(now or asked, asked, strict=True)]
        for _ in range(steps):
            physics._fly(1.0 / hz / steps, now, ())
    edit(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def test_a_flight_of_its_own_is_flown_again_to_the_millimetre(tmp_path: Path) -> None:
    """A log of GT-MAB's kind, made by the model itself: nothing but the steps differ."""
    found = replay(gtmab(), gtmab_log(tmp_path / "own.log"), window_s=2.0)
    assert found.windows == 3
    assert max(found.position_rmse_m.values()) < 2e-3
    assert max(found.attitude_rmse_deg.values()) < 0.2
    assert found.baselines["constant_velocity"].position_rmse_m["north"] > 0.05
    assert found.acceleration_skill["linear"][0] > 0.95
    assert found.acceleration_skill["angular"][2] > 0.95


def test_a_log_of_another_ship_is_refused(tmp_path: Path) -> None:
    log = gtmab_log(tmp_path / "own.log")
    with pytest.raises(ConfigError, match="has thrusts of left, right, the ship has front, yaw"):
        replay(airframe.load("blimp2b"), FLIGHT)
    with pytest.raises(ConfigError, match="front, yaw, lift cannot make all of them"):
        replay(airframe.load("blimp2b"), log)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda rows: rows.clear(), "is empty"),
        (lambda rows: rows.__delitem__(slice(1, None)), "0 samples, at least 2"),
        (lambda rows: rows[0].__setitem__(7, "north"), "of GT-MAB's columns it lacks x"),
        (lambda rows: rows[0].__setitem__(slice(0, 23), ["a"] * 23), "is no log of RGBlimp or"),
        (lambda rows: rows[50].__setitem__(8, "nan"), "line 51: y is nan, must be finite"),
        (lambda rows: rows[50].__setitem__(8, "1e300"), "line 51: y is 1e+300, must be finite and"),
        (lambda rows: rows[50].__setitem__(8, "1,5"), "line 51: could not convert"),
        (lambda rows: rows[50].__delitem__(slice(9, None)), "line 51 has 9 of 23 columns"),
        (lambda rows: rows[50].__setitem__(0, "0.1"), "line 51: time 0.1 s does not come after"),
        (lambda rows: rows[50].__setitem__(0, rows[49][0]), "does not come after"),
        (lambda rows: rows.__delitem__(slice(30, None)), "lasts 0.70 s, less than a window of 3"),
    ],
)
def test_a_bad_log_is_refused_by_line_and_column(
    tmp_path: Path, edit: Callable[[list[list[str]]], object], words: str
) -> None:
    log = gtmab_log(tmp_path / "bad.log", edit=edit)
    with pytest.raises(ConfigError, match=r"bad\.log") as caught:
        replay(gtmab(), log)
    assert words in str(caught.value)


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    huge, binary = tmp_path / "huge.csv", tmp_path / "binary.csv"
    with huge.open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(ConfigError, match=r"huge\.csv: 100 MB, at most 50 MB"):
        read(huge)
    binary.write_bytes(b"time,x\n\xff\xfe\x00")
    for path in (binary, tmp_path, tmp_path / "none.csv"):
        with pytest.raises(ConfigError, match=path.name):
            read(path)
    for window_s in (0.0, -1.0, 61.0, float("nan")):
        with pytest.raises(ConfigError, match=r"must be from 0\.05 to 60 s"):
            replay(gtmab(), FLIGHT, window_s=window_s)
