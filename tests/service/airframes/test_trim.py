"""Ballast from what a flight weighed."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from blimp import airframe
from blimp.airframe import Airframe
from blimp.cli import app
from blimp.errors import AirframeError, BlimpError
from blimp.service.airframes import weighing
from blimp.service.airframes.trim import as_text, trim
from blimp.service.airframes.weighing import trimmed
from blimp.ship.lockstep import Lockstep

TWIN = airframe.load("twin")


def hanging(x_m: float, *, items: bool = True) -> Airframe:
    mass = msgspec.structs.replace(
        TWIN.mass,
        center_of_gravity_m=(x_m, 0.0, 0.3106),
        item=TWIN.mass.item if items else (),
    )
    return msgspec.structs.replace(TWIN, mass=mass)


def test_a_light_ship_needs_ballast_at_a_place() -> None:
    found = trim(TWIN, heaviness_kg=-0.012)
    assert found.ballast_g == pytest.approx(12.0 + 5.6, abs=0.05)  # its file: 5 g heavy, at 3 m
    assert found.position_m == (0.0, 0.0, 0.62)
    assert as_text(found).startswith("12.0 g light: add 17.6 g of ballast at 0.00 m ahead of")
    assert trim(TWIN, heaviness_kg=-0.012, target_kg=0.0).ballast_g == pytest.approx(12.0)


def test_ballast_levels_a_ship_that_hangs_by_its_nose() -> None:
    nose_heavy = hanging(0.01, items=False)
    found = trim(nose_heavy, heaviness_kg=-0.02)
    assert found.position_m[0] == pytest.approx(-nose_heavy.mass_kg * 0.01 / 0.0256, abs=0.005)
    assert found.tilt_deg == pytest.approx(0.0, abs=0.01)
    assert "astern of the centre" in as_text(found)
    beyond = trim(nose_heavy, heaviness_kg=0.004)  # 1.6 g cannot level it from within the hull
    assert beyond.position_m[0] == -1.5
    assert 1.0 < beyond.tilt_deg < 2.0


def test_a_heavy_ship_takes_it_out_of_its_ballast_and_no_more_than_there_is() -> None:
    found = trim(TWIN, heaviness_kg=0.105)
    assert found.ballast_g == pytest.approx(-99.4, abs=0.1)
    assert found.position_m == (0.217, 0.0, 0.62)
    assert "take out 99.4 g" in as_text(found)
    with pytest.raises(AirframeError, match=r"its ballast is 222\.1 g"):
        trim(TWIN, heaviness_kg=0.3)
    with pytest.raises(AirframeError, match="more than half of the air"):
        trim(TWIN, heaviness_kg=float("nan"))


@pytest.fixture(scope="module")
def flown() -> Iterator[Lockstep]:
    mass = msgspec.structs.replace(TWIN.mass, heaviness_kg=-0.012)
    with Lockstep(airframe=msgspec.structs.replace(TWIN, mass=mass), seed=3) as ship:
        yield ship


@pytest.mark.slow
def test_a_flight_weighs_the_ship(
    flown: Lockstep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot of a real flight, in place of the socket that carries it."""
    monkeypatch.setattr(weighing, "running_snapshot", lambda *_, **__: flown.snapshot())
    ask = {"airframe": "twin", "runtime_dir": tmp_path, "heaviness_g": None, "target_g": 0.0}
    with pytest.raises(BlimpError, match="not been weighed yet"):
        trimmed(**ask)  # type: ignore[arg-type]
    flown.complete("arm", within_s=5.0)
    flown.complete("takeoff", within_s=40.0, altitude_m=2.0)
    flown.step(40.0)
    found = trimmed(**ask)  # type: ignore[arg-type]
    assert found.ballast_g == pytest.approx(11.4, abs=1.0)  # 12 g at sea level, 0.6 g less at 3 m


def test_the_command_line(tmp_path: Path) -> None:
    runner = CliRunner()
    said = runner.invoke(app, ["trim", "--airframe", "twin", "--heaviness-g", "-12", "--json"])
    data = json.loads(said.stdout)
    assert list(data) == ["heaviness_g", "target_g", "ballast_g", "position_m", "tilt_deg"]
    assert data["heaviness_g"] == pytest.approx(-12.0)
    for words in (
        ["--runtime-dir", str(tmp_path)],
        ["--airframe", "twin", "--runtime-dir", str(tmp_path)],
    ):
        assert isinstance(runner.invoke(app, ["trim", *words]).exception, BlimpError)
