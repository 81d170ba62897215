"""What a ship with few sensors may do: each row that needs one says so where it is missing."""

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from blimp import airframe as airframes
from blimp.ability import lacking, without
from blimp.actions import ACTIONS, MODE_NEEDS, Need
from blimp.airframe import Airframe
from blimp.control.failsafe import Times, rules
from blimp.service.airframes.check import check
from blimp.ship import Lockstep
from blimp.types import Mode

# What an action that needs a position is sent with; none of it is beyond a ship's limits.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "takeoff": {"altitude_m": 2.0},
    "goto": {"north_m": 0.0, "east_m": 0.0, "altitude_m": 2.0},
    "velocity": {"north_mps": 0.0, "east_mps": 0.0, "up_mps": 0.1, "seconds": 1.0},
    "follow": {"kind": "red"},
    "trajectory": {"name": "a", "points": [[0, 0, 0, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0, 0]]},
}


def stripped(name: str, *devices: str, flight_time_s: float = 0.0) -> str:
    """Return an airframe's text without these devices."""
    text = (resources.files("blimp.airframes") / f"{name}.toml").read_text("utf-8")
    parts = re.split(r"(?m)(?=^\[\[?[a-z.]+\]\]?\n)", text)
    gone = tuple(f'[[device]]\nname = "{device}"' for device in devices)
    kept = "".join(part for part in parts if not part.startswith(gone))
    return kept.replace("[battery]\n", f"[battery]\nflight_time_s = {flight_time_s}\n")


def ship(name: str, *devices: str, flight_time_s: float = 0.0) -> Airframe:
    return airframes.parse(stripped(name, *devices, flight_time_s=flight_time_s), where="bare")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lockstep]:
    """A gtmab that is armed: an IMU, a barometer and a ranger, a timer for its battery."""
    file: Path = tmp_path_factory.mktemp("bare") / "bare.toml"
    file.write_text(stripped("gtmab", "tag", "power", flight_time_s=60.0), "utf-8")
    with Lockstep(str(file), seed=41) as made:
        made.complete("arm", within_s=10.0)
        yield made


def refused(bare: Lockstep, name: str, arguments: dict[str, Any]) -> str:
    return bare.command(name, check=False, **arguments).reason


@pytest.mark.parametrize("name", [n for n, row in ACTIONS.items() if Need.POSITION in row.needs])
def test_an_action_without_its_sensor_is_refused_with_what_is_missing(
    bare: Lockstep, name: str
) -> None:
    reason = refused(bare, name, ARGUMENTS.get(name, {}))
    assert reason == f"{name} needs a position: gtmab has {without(Need.POSITION)}; fly ALTHOLD"


@pytest.mark.parametrize("mode", [m for m, needs in MODE_NEEDS.items() if Need.POSITION in needs])
def test_a_mode_without_its_sensor_is_refused_with_what_is_missing(
    bare: Lockstep, mode: Mode
) -> None:
    reason = refused(bare, "mode", {"name": mode.name})
    assert (
        reason == f"{mode.name} needs a position: gtmab has {without(Need.POSITION)}; fly ALTHOLD"
    )


def test_each_mode_says_what_it_needs() -> None:
    assert set(MODE_NEEDS) == set(Mode)


def test_no_failsafe_asks_for_what_no_sensor_measures() -> None:
    def names(airframe: Airframe) -> set[str]:
        return {rule.name for rule in rules(airframe, Times())}

    whole = names(airframes.load("gtmab"))
    assert whole - names(ship("gtmab", "tag")) == {
        "position", "position, last stage", "fence", "battery low", "battery unknown",
        "link, second stage", "transmitter, second stage", "flight time",
    }  # fmt: skip
    assert whole - names(ship("gtmab", "power")) == {
        "battery empty", "battery low", "battery low, no position", "battery unknown",
        "battery unknown, last stage",
    }  # fmt: skip


def test_what_a_ship_cannot_do_without() -> None:
    assert lacking(ship("gtmab", "imu", "tag")) == (
        Need.ATTITUDE, Need.POSITION, Need.CAMERA,
    )  # fmt: skip
    for devices, missing in (
        (("imu",), "devices: no IMU: an attitude would never be known: it would not arm"),
        (("baro", "ranger"), "devices: no barometer, ranger or sonar: a height"),
        (("power",), "devices: no power monitor, and battery.flight_time_s is not given"),
    ):
        assert any(error.startswith(missing) for error in check(ship("gtmab", *devices)).errors)
    assert check(ship("gtmab", "power", "tag", flight_time_s=60.0)).ok


@pytest.mark.long
def test_sticks_fly_a_ship_without_position_or_monitor_until_its_time_is_over(
    bare: Lockstep,
) -> None:
    bare.complete("mode", within_s=5.0, name="ALTHOLD")
    bare.complete("stick", within_s=5.0, up_percent=80.0, seconds=6.0)
    bare.step(6.0)
    assert bare.snapshot().failsafe == ""
    assert 1.0 < bare.truth.altitude_m < 2.5
    bare.complete("mode", within_s=5.0, name="STABILIZE")
    bare.step(2.0)
    bare.complete("mode", within_s=5.0, name="ALTHOLD")
    bare.step(40.0 - bare.snapshot().t_s)
    assert not [m for m in bare.snapshot().messages if "flight time" in m]
    bare.step(22.0)
    assert "flight time nearly over: land, and change the battery" in bare.snapshot().messages
    bare.step(12.0)
    assert bare.snapshot().failsafe.startswith("flight time over")
    bare.step(60.0)
    assert not bare.snapshot().armed
    assert bare.truth.altitude_m < 0.1
    assert "% of its flight time is used up, limit 80 %" in refused(bare, "arm", {})
