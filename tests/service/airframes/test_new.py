"""A ship described from what its builder measures passes the check, and flies."""

from math import hypot
from pathlib import Path

import msgspec
import pytest

from blimp import airframe
from blimp.errors import AirframeError, BlimpError
from blimp.service.airframes.check import check
from blimp.service.airframes.layouts import LAYOUTS
from blimp.service.airframes.new import CHOICES, Plan, asked, describe, write
from blimp.service.computer.initialise import Question
from blimp.ship.lockstep import Lockstep

FOIL = Plan(name="foil")


@pytest.mark.slow
def test_a_90_cm_foil_balloon_flies_the_first_time(tmp_path: Path) -> None:
    file = tmp_path / "foil.toml"
    report = write(FOIL, file)
    assert report.ok
    assert report.warnings == ()
    with Lockstep(airframe=str(file), seed=1) as ship:
        ship.complete("arm", within_s=5.0)
        ship.complete("takeoff", within_s=60.0, altitude_m=1.5)
        ship.command("hold")
        ship.step(20.0)
        assert ship.truth.altitude_m == pytest.approx(1.5, abs=0.3)
        assert hypot(*ship.truth.position_ned_m[:2]) < 1.0
        ship.complete("land", within_s=60.0)
        assert ship.truth.on_ground
    with pytest.raises(BlimpError, match="exists already"):
        write(FOIL, file)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(name="gps", imu="icm20948", baro="bmp390", position="gps-ubx", gondola_g=60.0),
        Plan(
            name="cigar", shape="spheroid", length_m=3.0, diameter_m=1.0, envelope_g=480.0,
            gondola_g=700.0, forward_gf=60.0, lift_gf=60.0, motor_a=2.0, arm_m=0.5,
        ),
    ],
)  # fmt: skip
def test_other_plans_pass_the_check(plan: Plan) -> None:
    assert check(airframe.parse(describe(plan), where="new.toml")).errors == ()


@pytest.mark.parametrize(("key", "chip"), [(k, c) for k, names in CHOICES.items() for c in names])
def test_every_chip_that_it_offers_can_be_wired(key: str, chip: str) -> None:
    plan = asked("mine", {key: chip}, ask=None)
    assert check(airframe.parse(describe(plan), where="new.toml")).errors == ()
    with pytest.raises(AirframeError, match=f"--{key} must be .*{CHOICES[key][-1]}, not toaster"):
        asked("mine", {key: "toaster"}, ask=None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_passes_the_check_and_says_what_it_is(layout: str) -> None:
    ship = airframe.parse(describe(Plan(name="mine", layout=layout)), where="mine.toml")
    assert check(ship).errors == ()
    assert LAYOUTS[layout].text in ship.description
    servos = {t.tilted_by for t in ship.thruster if t.tilted_by} | {s.servo for s in ship.surface}
    assert servos == {*ship.servo_names}


def test_a_layout_without_a_lift_motor_is_not_asked_for_its_thrust() -> None:
    def answers(layout: str) -> list[str]:
        texts = []

        def ask(question: Question) -> str:
            texts.append(question.text)
            return layout if "Layout" in question.text else question.default

        assert asked("mine", {}, ask=ask).layout == layout
        return [text for text in texts if "lift motor" in text]

    assert (answers("bicopter"), len(answers("quad"))) == ([], 1)


def test_hobby_is_what_the_defaults_describe() -> None:
    described, shipped = (
        msgspec.structs.replace(one, name="", description="", source="")
        for one in (airframe.parse(describe(FOIL), where="foil.toml"), airframe.load("hobby"))
    )
    assert described == shipped


def test_a_plan_that_cannot_be_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    for given, reason in (
        ({"gondola_g": 90.0}, r"14 g too heavy: 0\.111 m3 of this gas carry 114 g"),
        ({"lift_gf": 0.3}, "cannot fly: .*thrusters"),
        ({"arm_m": "nan"}, "--arm must be 0.01 to 5 m, not nan"),
        ({"purity": "air"}, "--purity must be 0.8 to 1, not air"),
        ({"motor_a": 1e9}, r"--motor-a must be 0\.01 to 100 A, not 1000000000\.0"),
        ({"layout": "ufo"}, "--layout must be twin or quad or .* or finned, not ufo"),
        ({"shape": "cube"}, "--shape must be foil or spheroid, not cube"),
        ({"shape": "spheroid", "length_m": 0.3}, "is below diameter_m"),
    ):
        with pytest.raises(AirframeError, match=reason):
            write(asked("bad", given, ask=None), file)
    with pytest.raises(AirframeError, match="name"):
        asked("My Ship", {}, ask=None)
    with pytest.raises(BlimpError, match=r"ends in \.toml"):
        write(FOIL, tmp_path / "bad.txt")
    assert list(tmp_path.iterdir()) == []


def test_it_asks_for_what_is_not_given() -> None:
    texts = []

    def ask(question: Question) -> str:
        texts.append(question.text)
        question.check(question.default)
        return "0.98" if "Purity" in question.text else question.default

    plan = asked("mine", {"length_m": 1.0, "gondola_g": None}, ask=ask)
    assert (plan.length_m, plan.purity, plan.gondola_g) == (1.0, 0.98, 70.0)
    assert not any("Length" in text for text in texts)
    assert len(texts) == 13
