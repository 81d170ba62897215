"""Ships that cannot fly are refused with the reason; published ships do what was published."""

import json
import re
from importlib import resources
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from blimp import airframe
from blimp.airframe import Airframe
from blimp.cli import app
from blimp.errors import AirframeError
from blimp.parameters import with_parameter
from blimp.service.airframes.check import check, demand_airworthy
from blimp.service.airframes.command import as_text
from blimp.service.airframes.figures import Figures, compute
from blimp.service.airframes.gains import CYCLE_S, is_stable
from blimp.service.compose import FlightOptions, fly
from blimp.service.stack.up import StackOptions, build_stack
from tests.contracts.rows import ship

TWIN = (resources.files("blimp.airframes") / "twin.toml").read_text("utf-8")
GTMAB = (resources.files("blimp.airframes") / "gtmab.toml").read_text("utf-8")
BALLAST = '[[mass.item]]\nname = "more-ballast"\nmass_kg = 20.0\nposition_m = [0.0, 0.0, 0.6]\n'
# The same ship with nothing but heaviness to say what it weighs.
NO_BUDGET = re.sub(r"\[\[mass\.item\]\]\n(?:.+\n)+", "", TWIN).replace(
    "helium_purity", "# helium_purity"
)
KEYS = (
    "ok", "errors", "warnings", "static_lift_n", "ballast_g", "swing_hz", "swing_damping",
    "time_constants_s", "terminal_speeds_mps", "added_mass_kg", "thrust_margin", "max_wind_mps",
    "holds_m", "cannot",
)  # fmt: skip


def but(key: str, value: str, *, text: str = TWIN, count: int = 1) -> str:
    """Return the file with other values of a key, from its first place on; 0 is all places."""
    changed, times = re.subn(rf"(?m)^{key} = [^#\n]+", f"{key} = {value} ", text, count=count)
    assert times >= max(1, count)
    return changed


def grams() -> str:
    return re.sub(r"(?m)^(max|reverse)_thrust_n = (\S+)", lambda m: f"{m[1]}_thrust_n = "
                  f"{float(m[2]) / 0.0098:.1f}", TWIN)  # fmt: skip


def times_1000() -> str:
    return but("inertia_kg_m2", "[369.0, 1070.0, 922.0]")


def without(device: str) -> str:
    return re.sub(rf'\[\[device\]\]\nname = "{device}"(?:.*\n)+?\n', "", TWIN)


BROKEN = {
    "0.3 kg heavy": (but("heaviness_kg", "0.3"), "cannot leave the ground"),
    "5 % heavy": (but("heaviness_kg", "0.096", text=NO_BUDGET), "to tear its feet off"),
    "6 % heavy": (but("heaviness_kg", "0.11", text=NO_BUDGET), "% of what climb_mps and descent"),
    "0.3 kg light": (but("heaviness_kg", "-0.3"), "it cannot come down"),
    "20 kg of ballast": (TWIN.replace("[aero]", BALLAST + "[aero]"), "20000 g off"),
    "thrust in grams": (grams(), "thrust is in newtons"),
    "current in milliamperes": (but("max_current_a", "0.0011"), "needs a propeller of"),
    "inertia x 1000": (times_1000(), "from the axis, where the hull allows"),
    "CG above CB": (but("center_of_gravity_m", "[0, 0, -0.31]"), "it turns over"),
    "CG ahead": (but("center_of_gravity_m", "[0.2, 0, 0.31]"), "tilted by 33 degrees, limit 15"),
    "no vertical thrust": (TWIN.replace('tilted_by = "tilt"', ""), "none lifts"),
    "warn below empty": (but("warn_v", "6.0"), "warn_v 6 is not above empty_v 6.4"),
    "never armed": (but("warn_v", "8.4"), "it would never arm"),
    "negative drag": (but("linear_drag", "[-0.03, 1, 1, 1, 1, 1]"), ">= 0.0 - at `$.aero.linear"),
    "no drag": (but("linear_drag", "[0.0, 1, 1, 1, 1, 1]", text=GTMAB), "no drag in surge"),
    "lengths in centimetres": (
        but("length_m", "300.0", text=but("diameter_m", "100.0")),
        "lengths are in metres",
    ),
    "motors on one side": (
        TWIN.replace("[0.0, 0.50, 0.65]", "[0.0, -0.50, 0.65]"),
        "put motors on both sides",
    ),
    "no side's thrust turns": (
        GTMAB.replace("0.0142857", "0.0"),
        "its nose cannot be held",
    ),
    "purity beside the budget": (but("helium_purity", "0.80"), "item 'helium' weighs 0.2991 kg"),
    "purity for nothing": (
        GTMAB.replace("[mass]", "helium_purity = 0.9\n[mass]"),
        "helium_purity says nothing",
    ),
    "fins ahead": (but("fin_position_m", "1.25"), "must be astern"),
    "a servo in degrees": (but("max_rad", "100.0"), "angles are in radians"),
    "a battery like a fuse": (but("resistance_ohm", "6.0"), "a full battery is below empty_v"),
    "a battery that tires": (
        but("resistance_ohm", "0.1\npolarisation_ohm = 6.0"), "a full battery is below empty_v",
    ),
    "added mass in grams": (but("added_mass_kg", "[234.7, 1546.9, 1546.9]"), "three times the air"),
    "no power monitor": (without("power"), "no power monitor, and battery.flight_time_s is not"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_ship_that_cannot_fly_is_refused_with_the_reason(name: str) -> None:
    text, reason = BROKEN[name]
    with pytest.raises(AirframeError) as refused:
        demand_airworthy(airframe.parse(text, where="bad.toml"))
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (but("heaviness_kg", "-0.010"), "9.4 g light: with its motors off it rises"),
        (but("heaviness_kg", "0.070", text=NO_BUDGET), "only 1.31 times what climb_mps"),
        (but("heaviness_kg", "0.050", text=NO_BUDGET), "only 1.09 times what tears its feet off"),
        (but("empty_v", "5.0"), "is below 3 V a cell"),
        (but("capacity_ah", "0.02"), "min of flight"),
        (but("speed_mps", "3.0"), "speed_mps 3 is above what full thrust reaches, 2.3"),
        (but("center_of_gravity_m", "[0.03, 0, 0.3106]"), "hangs tilted by 6 degrees"),
        (but("reverse_thrust_n", "0.0", text=GTMAB, count=0), "none pushes down"),
    ],
)
def test_thin_margins_are_warned_of(text: str, reason: str) -> None:
    report = check(airframe.parse(text, where="thin.toml"))
    assert any(reason in text for text in report.warnings)


GLIDERS = ("rgblimp", "rgblimp-fit")  # wings lift them: here to be replayed, not flown
REPLAYED = (*GLIDERS, "gtmab-fit")  # which has no sensors


@pytest.mark.parametrize("name", GLIDERS)
def test_a_ship_that_only_wings_lift_is_refused(name: str) -> None:
    report = check(airframe.load(name))
    assert report.errors == (
        "thrusters: none lifts: its height cannot be held; wings lift it only while it moves, so "
        "it cannot take off, hold or land by this control: it is here to be simulated and replayed",
    )
    assert not any("added mass" in text for text in report.warnings)  # the polar's mass holds it
    assert "inf" not in as_text(report)


@pytest.mark.parametrize("name", ["blimp2b", "gtmab", "hobby", "twin"])
def test_the_ships_that_come_with_the_package_pass(name: str) -> None:
    report = check(airframe.load(name))
    assert report.ok
    assert report.warnings == ()


def figures(name: str) -> tuple[Airframe, Figures]:
    ship = airframe.load(name)
    return ship, compute(ship)


def test_gtmab_is_the_published_ship() -> None:
    _, found = figures("gtmab")
    assert found.swing_hz == pytest.approx(0.700, abs=5e-4)
    assert found.swing_damping == pytest.approx(0.0193, abs=5e-5)
    expected = {"surge": 13.7, "sway": 13.7, "heave": 3.74, "yaw": 5.94}
    assert found.time_constants_s == pytest.approx(expected, rel=0.002)


def test_it_prints_exactly_the_stated_object(tmp_path: Path) -> None:
    runner, broken = CliRunner(), tmp_path / "broken.toml"
    good = runner.invoke(app, ["airframe", "check", "gtmab", "--json"])
    data = json.loads(good.stdout)
    assert good.exit_code == 0
    assert tuple(data) == KEYS
    assert data["ok"]
    assert data["ballast_g"] == pytest.approx(-0.5, abs=0.01)
    assert len(data["added_mass_kg"]) == 6
    for text, code in ((but("warn_v", "6.0"), 1), ("hull = 3", 1)):
        broken.write_text(text)
        bad = runner.invoke(app, ["airframe", "check", str(broken), "--json"])
        data = json.loads(bad.stdout)
        assert (bad.exit_code, data["ok"], len(data["errors"])) == (code, False, 1)
        assert tuple(data) == KEYS
    assert "can fly\n" in runner.invoke(app, ["airframe", "check", "twin"]).stdout


def test_flying_is_refused_with_the_same_words(tmp_path: Path) -> None:
    text, _ = BROKEN["5 % heavy"]
    file = tmp_path / "heavy.toml"
    file.write_text(text)
    (reason,) = check(airframe.load(str(file))).errors
    options = FlightOptions(
        airframe=str(file), vehicle=None, runtime_dir=tmp_path, simulated=True, bench=False,
        rate_hz=100.0, pad_east_m=0.0, log_format="text",
    )  # fmt: skip
    with pytest.raises(AirframeError, match=re.escape(reason)):
        fly(options, on_stop=lambda stop: stop())  # ends at once if it is not refused
    stack = StackOptions(
        airframe=str(file), vehicle=None, seed=1, wind_mps=0.0, runtime_dir=tmp_path
    )
    with pytest.raises(AirframeError, match=re.escape(reason)):
        build_stack(stack, on_event=lambda *_: None)


def test_blimp2b_is_the_published_ship() -> None:
    _, found = figures("blimp2b")
    assert 1.0 / found.swing_hz == pytest.approx(1.84, abs=0.01)
    assert 1.0 / found.roll_hz == pytest.approx(1.29, abs=0.01)
    assert found.terminal_speeds_mps["forward"] == pytest.approx(0.756, abs=5e-4)
    assert found.terminal_speeds_mps["back"] == pytest.approx(0.802, abs=5e-4)
    stronger = 0.484 * 0.030 / 0.0079  # the published rate is to the right, where it is stronger
    assert stronger == pytest.approx(1.84, abs=0.005)
    assert found.yaw_rate_radps == pytest.approx(stronger * 0.025 / 0.030, rel=0.002)


@pytest.mark.parametrize(
    ("gain", "value", "loop"),
    [
        ("position_p", 20.0, "position"),
        ("velocity_p", 200.0, "position"),
        ("climb_i", 4.0, "height"),
        ("yaw_rate_p", 1e5, "yaw"),
    ],
)
def test_gains_with_which_a_loop_cannot_be_stable_are_refused_with_the_most(
    gain: str, value: float, loop: str
) -> None:
    twin = airframe.load("twin")
    report = check(with_parameter(twin, f"gains.{gain}", value))
    (text,) = report.errors
    assert text.startswith(f"gains: the control of {loop} swings up by itself: set ")
    found = re.search(rf"{gain} to at most about (\S+)", text)
    assert found is not None
    assert check(with_parameter(twin, f"gains.{gain}", 0.9 * float(found[1]))).ok


def test_the_limit_of_a_gain_is_that_of_the_routh_criterion() -> None:
    """Without an integral: 1 / lag, of which the age of a command is a part."""
    for lag_s in (0.05, 0.1, 0.4):
        assert is_stable(0.9 / (lag_s + 1.5 * CYCLE_S), 0.8, 0.0, lag_s=lag_s)
        assert not is_stable(1.0 / lag_s, 0.8, 0.0, lag_s=lag_s)


def test_a_ship_whose_gains_all_are_too_high_is_refused_without_a_number() -> None:
    twin = airframe.load("twin")
    for gain in ("yaw_p", "yaw_rate_p", "yaw_rate_i"):
        twin = with_parameter(twin, f"gains.{gain}", 9e5)
    assert check(twin).errors == (
        "gains: the control of yaw swings up by itself: several of its gains are too high",
    )


def test_a_reversible_esc_wants_the_oscillator_of_its_pca9685() -> None:
    """Off by 8 %, its middle is 1.62 ms for 1.5, and standstill turns a propeller."""
    (said,) = [w for w in check(ship("pca9685 with ESCs")).warnings if "oscillator" in w]
    assert "'servos'" in said
    measured = ship("pca9685 with ESCs")
    rows = tuple(
        msgspec.structs.replace(row, options=row.options | {"oscillator_hz": 26.1e6})
        if row.chip == "pca9685"
        else row
        for row in measured.device
    )
    measured = msgspec.structs.replace(measured, device=rows)
    assert not [w for w in check(measured).warnings if "oscillator" in w]
    assert not [w for w in check(ship("esc-pwm")).warnings if "oscillator" in w]
