"""A sample of `blimp sim matrix`: the whole of it is flown by hand and kept as a page."""

import json

import msgspec
import pytest
from typer.testing import CliRunner

from blimp import airframe as airframes
from blimp.cli import app
from blimp.ship.failures import BY_NAME, FAILURES
from blimp.ship.lockstep import Lockstep
from blimp.ship.matrix import (
    AT_REST,
    BY_TRANSMITTER,
    LOADS,
    MODES,
    REST_S,
    WINDS_MPS,
    Rest,
    conditions,
    fly,
    with_receiver,
)

FIELDS = (
    "mode", "failure", "seed", "safe", "outcome", "max_distance_m", "max_altitude_m",
    "touchdown_mps", "disarmed_at_m", "motors_stopped",
)  # fmt: skip


@pytest.mark.long
def test_cells_come_as_json_lines_with_the_fields_promised() -> None:
    arguments = ["sim", "matrix", "--modes", "pad", "--failures", "none,ranger-dead", "--json"]
    answer = CliRunner().invoke(app, arguments)
    cells = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [tuple(cell) for cell in cells] == [FIELDS] * 2
    assert [cell["failure"] for cell in cells] == ["none", "ranger-dead"]
    assert all(cell["safe"] and cell["motors_stopped"] for cell in cells)
    assert answer.exit_code == 0


@pytest.mark.long
def test_two_processes_fly_the_same_cells_in_the_same_order() -> None:
    some = [BY_NAME[name] for name in ("none", "light-5")]
    gtmab = airframes.load("gtmab")
    alone, together = (
        list(fly(gtmab, modes=["pad"], failures=some, seeds=[1, 2], jobs=jobs, rest_s=1.0))
        for jobs in (1, 2)
    )
    assert together == alone
    assert [(cell.seed, cell.failure) for cell in alone] == [
        (seed, name) for seed in (1, 2) for name in ("light-5", "none")
    ]


# Each ended otherwise before its cure: flown away, motors running on the ground, a light ship let
# go, a hard touchdown; or it is the flight of a healthy ship.
SAMPLE = {
    "hold/1": "none,imu-dead,baro-rising,power-dead,mains-full,mains-reverse,tilt-up,left-full,"
    "tilt-ahead,ranges-stuck-0.5,accel-z-reversed,gyro-x-stuck,baro-sinking",
    "land/1": "light-5,i2c-stuck,ballast-lost",
    "land/4": "i2c-stuck",  # 0.4 m/s
    "pad/1": "baro-dead,baro-frozen,height-dead,i2c-stuck,ballast-lost",
    "takeoff/1": "heavy-5,tail-dead",
    "loiter/1": "mains-frozen,mains-reverse",
    "hold/2": "light-5,mains-reverse",  # 6 g light
    "takeoff/2": "imu-dead,height-dead,crash,mains-reverse",
    "rtl/2": "gyro-z-stuck,servos-frozen",
}
IDLE = ("mains-full", "i2c-stuck", "height-dead")  # motors must have stopped


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", SAMPLE)
def test_a_sample_of_the_cells_is_safe(row: str) -> None:
    mode, _, seed = row.partition("/")
    failures = [BY_NAME[name] for name in SAMPLE[row].split(",")]
    # For the tests' time; `blimp sim matrix` looks on for five minutes.
    twin, seeds, rest_s = airframes.load("twin"), [int(seed)], 20.0
    cells = list(fly(twin, modes=[mode], failures=failures, seeds=seeds, rest_s=rest_s))
    assert len(cells) == len(failures)
    assert [cell for cell in cells if not cell.safe] == []
    running = [cell for cell in cells if cell.failure in IDLE and not cell.motors_stopped]
    assert running == [] or seed != "1"  # a light ship is held down by what still works
    if row == "land/1":  # the same alone: forks that share serial lines read what another left
        alone = fly(twin, modes=[mode], failures=failures[-1:], seeds=seeds, rest_s=rest_s)
        assert list(alone) == cells[-1:]
    light = [cell for cell in cells if cell.failure in ("light-5", "ballast-lost")]
    assert [cell for cell in light if cell.disarmed_at_m is not None] == []


def rests(
    *, load: float, armed: bool = True, said: str = "stopped", rest_s: float = REST_S
) -> tuple[str, float]:
    """Return what became of a GT-MAB that lies on its pad as it is now, and for how long it was
    looked on."""
    with Lockstep("gtmab", seed=1) as ship:
        physics = ship.world.physics
        if armed:
            ship.command("arm", check=False)
        physics.load(load * physics.displaced_kg)
        began_s = ship.now_s
        return Rest(ship).until_its_end(said, rest_s), ship.now_s - began_s


def test_a_ship_that_leaves_the_ground_after_its_landing_is_not_safe() -> None:
    outcome, looked_s = rests(load=-0.05)  # more than its feet hold
    assert outcome.startswith("stopped; rose after")
    assert outcome not in AT_REST
    assert looked_s < 60.0


def test_a_ship_said_to_be_held_by_thrust_must_have_the_thrust() -> None:
    outcome, looked_s = rests(  # its feet hold it
        load=-0.01, said="held down, reported", rest_s=30.0
    )
    assert "by 0.000 N of thrust" in outcome
    assert outcome not in AT_REST
    assert looked_s == pytest.approx(30.0, abs=1.0)


def test_a_heavy_ship_that_is_disarmed_needs_no_looking_on() -> None:
    assert rests(load=0.005, armed=False) == ("stopped", 0.0)


@pytest.mark.parametrize("option", ["--modes", "--failures"])
def test_what_is_not_in_the_table_is_named(option: str) -> None:
    answer = CliRunner().invoke(app, ["sim", "matrix", option, "dreaming"])
    assert answer.exit_code == 2
    assert "dreaming" in answer.output


def test_every_failure_is_there_once_and_fits_the_twin() -> None:
    twin, gtmab = airframes.load("twin"), airframes.load("gtmab")
    assert len(BY_NAME) == len(FAILURES)
    equipped = with_receiver(twin, "hold")
    seeing = airframes.load("gtmab-eye")
    ships = [equipped, twin, seeing]
    assert [f.name for f in FAILURES if not any(f.fits(ship) for ship in ships)] == []
    assert set(BY_TRANSMITTER) == set(MODES)
    assert not BY_NAME["tilt-up"].fits(gtmab)


def test_a_receiver_takes_the_port_of_no_device() -> None:
    twin = airframes.load("twin")
    port = with_receiver(twin, "hold").device[-1].port
    *others, last = (device for device in twin.device if device.port)
    crowded = msgspec.structs.replace(
        twin, device=(*others, msgspec.structs.replace(last, port=port))
    )
    equipped = with_receiver(crowded, "hold").device
    assert [device.name for device in equipped] == [
        *(d.name for d in crowded.device),
        "transmitter",
    ]
    assert equipped[-1].port != port


def test_twelve_seeds_meet_every_wind_with_every_heaviness() -> None:
    assert conditions(1) == (0.3, 0.0)
    met = {conditions(seed) for seed in range(1, 13)}
    assert met == {(wind, load) for wind in WINDS_MPS for load in LOADS}
