"""Hostile commands and failing devices in flight: the loop goes on, and nothing absurd moves."""

import contextlib
import math
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from blimp import airframe
from blimp.errors import ConfigError
from blimp.link.mailbox import MAX_COMMAND_BYTES, MAX_DATAGRAM_BYTES
from blimp.ship import Lockstep
from blimp.types import Command, OutcomeState
from tests.sim.branch import branch

pytestmark = pytest.mark.long  # in all, tens of seconds of computing

DEVICES = tuple(device.name for device in airframe.load("twin").device)
WORST_LETTER = "\U000e0001"  # four bytes in a command, eleven where it is quoted


def finite(ship: Lockstep) -> bool:
    snapshot = ship.snapshot()
    numbers = (
        *ship.world.outputs.values(),
        *snapshot.actuators.values(),
        *snapshot.position_ned_m,
        *snapshot.velocity_ned_mps,
        snapshot.attitude_rad.roll,
        snapshot.attitude_rad.pitch,
        snapshot.attitude_rad.yaw,
    )
    return all(math.isfinite(number) for number in numbers)


@pytest.fixture
def ship() -> Any:
    with Lockstep("twin", seed=1) as ship:
        yield ship


def test_no_arguments_crash_the_loop_or_move_a_disarmed_ship(ship: Lockstep) -> None:
    chance = random.Random(2)
    names = ["ping", "disarm", "mode", "takeoff", "goto", "velocity", "hold", "land", "return"]
    names += ["trajectory", "stick", "motor", "servo", "sensor", "fly", "", "\0", "__init__"]
    keys = [
        "name",
        "points",
        "last",
        "altitude_m",
        "north_m",
        "percent",
        "deg",
        "seconds",
        "force",
        "x",
        "",
        "self",
    ]
    values: list[Any] = [None, True, -1, 0, 3, 2**70, 1e308, math.nan, math.inf, "", "left", "tilt"]
    values += ["baro", "MANUAL", "AUTO", [], {}, [1.0] * 100, {"a": {"b": [None]}}, WORST_LETTER]
    before = dict(ship.world.outputs)
    for number in range(500):
        arguments = {key: chance.choice(values) for key in chance.sample(keys, chance.randrange(5))}
        command = Command(
            id=f"{number}",
            name=chance.choice(names),
            arguments=arguments,
            fence=chance.choice([1, -1, 2**62]),
            age_s=chance.choice([0.0, -1e300, 1e300, math.nan, math.inf, -math.inf]),
            ttl_s=chance.choice([None, 5.0, -1.0, 1e308, math.nan]),
            boot_id=chance.choice(["", "x"]),
        )
        outcome = ship.deliver(command)
        assert outcome.state is OutcomeState.DONE or outcome.reason
    assert ship.world.outputs == before
    assert ship.truth.altitude_m == pytest.approx(0.0, abs=0.01)
    assert finite(ship)


@pytest.mark.parametrize("name", ["sensor", "mode", "motor", "nothing"])
def test_an_answer_fits_its_datagram_however_the_command_is_quoted(
    ship: Lockstep, name: str
) -> None:
    quoted = WORST_LETTER * (MAX_COMMAND_BYTES // 4 - 60)
    arguments = {"name": quoted} | ({"percent": 1.0, "seconds": 1.0} if name == "motor" else {})
    command = Command(id="long", name=name, arguments=arguments)
    if name == "nothing":
        command = Command(id=WORST_LETTER * 480, name=WORST_LETTER * 480)
    assert len(msgspec.json.encode(command)) <= MAX_COMMAND_BYTES
    outcome = ship.deliver(command)
    assert outcome.state is OutcomeState.REFUSED
    assert len(msgspec.json.encode(outcome)) < MAX_DATAGRAM_BYTES


def test_a_snapshot_fits_its_datagram_with_any_name_of_who_stopped_the_ship(ship: Lockstep) -> None:
    for number in range(10):
        ship.command("arm")
        ship.deliver(Command(id=f"stop{number}", name="estop", source=f"{number}" + "s" * 4000))
    assert ship.snapshot().killed
    assert len(msgspec.json.encode(ship.snapshot())) < MAX_DATAGRAM_BYTES // 4


# --- devices that fail in the air ---------------------------------------------------------------

FAULTS: tuple[tuple[str, dict[str, float]], ...] = (
    ("no_answer", {}),
    ("frozen", {}),
    ("garbage", {}),
    ("wrong_identity", {}),
    ("bus_stuck", {}),
    ("stuck", {"value": 1e9}),
    ("stuck", {"value": -1e9}),
    ("drift", {"rate": 1e3}),
    ("noise", {"sigma": 1e6}),
)


@pytest.fixture(scope="module")
def possible() -> dict[str, list[tuple[str, dict[str, float]]]]:
    """Return the faults that each chip can suffer."""
    found: dict[str, list[tuple[str, dict[str, float]]]] = {device: [] for device in DEVICES}
    with Lockstep("twin", seed=2) as parked:
        for device in DEVICES:
            for kind, options in FAULTS:
                with contextlib.suppress(ConfigError):
                    parked.fault(device, kind, **options)
                    found[device].append((kind, options))
    return found


@pytest.fixture(scope="module")
def airborne() -> Iterator[Lockstep]:
    with Lockstep("twin", seed=2, wind_mps=0.2) as ship:
        ship.command("arm")
        assert ship.complete("takeoff", altitude_m=1.0, within_s=60).state is OutcomeState.DONE
        yield ship


@pytest.mark.parametrize("device", DEVICES)
def test_no_failing_device_stops_the_loop_or_sends_nonsense_to_an_actuator(
    airborne: Lockstep, possible: dict[str, list[tuple[str, dict[str, float]]]], device: str
) -> None:
    assert len(possible[device]) >= 4
    for kind, options in possible[device]:
        branch(airborne, partial(fails_and_is_stopped, airborne, device, kind, options))


def fails_and_is_stopped(ship: Lockstep, device: str, kind: str, options: dict[str, float]) -> None:
    ship.fault(device, kind, **options)
    cycles = ship.snapshot().loop.cycles
    for _ in range(20):  # 4 s: what is silent for 3 s is given up
        ship.step(0.2)
        assert finite(ship), (device, kind, options)
    assert ship.snapshot().loop.cycles == cycles + 400
    ship.fault(device, "clear")
    ship.step(0.5)
    assert finite(ship), (device, kind, options)
    assert ship.command("estop").state is OutcomeState.DONE
    ship.step(0.1)
    motors = [ship.world.outputs[n] for n in airframe.load("twin").thruster_names]
    assert motors == [0.0, 0.0, 0.0], (device, kind, options)


# Without a tag it flies by GPS.
