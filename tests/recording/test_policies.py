"""Each policy holds in a flight in which all goes well, and is breached where it should be."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.policies_page import PAGE, page
from blimp.airframe import load
from blimp.cli import app
from blimp.control.failsafe import Times, rules
from blimp.recording.flight_data import FlightData, Span
from blimp.recording.memory import Memory
from blimp.recording.policies import POLICIES, check
from blimp.recording.tape import Session
from blimp.recording.temporal import (
    Formula,
    Number,
    always,
    fell,
    flag,
    implies,
    lasted,
    near,
    never,
    once,
    rose,
    since,
    until,
    within,
    worst,
)
from blimp.recording.trace import SEVERITY, Trace
from blimp.ship import Lockstep
from blimp.types import Command, Outcome
from tests.recording.edits import (
    ARMS,
    AT,
    DONE,
    LOST,
    REFUSED,
    UNDER_WAY,
    Edit,
    asked,
    backwards,
    cut,
    mail,
    no_mail,
    no_reverse,
    numbered,
    put,
    says,
    several,
    silent,
    then,
    with_span,
)


@pytest.fixture(scope="module")
def flight() -> FlightData:
    """A flight of the twin: armed at UP_S, in the air at FLIES_S, stopped and disarmed after it."""
    kept: list[Memory] = []

    def keep(session: Session) -> Memory:
        kept.append(Memory(session))
        return kept[-1]

    with Lockstep("twin", seed=3, wind_mps=0.1, log=keep) as ship:
        ship.command("arm")
        ship.complete("takeoff", within_s=30.0, altitude_m=1.2)
        ship.complete("goto", within_s=20.0, north_m=1.0, east_m=0.0, altitude_m=1.2)
        ship.command("land")
        ship.step(35.0)
        ship.command("estop")
        ship.step(1.0)
    return kept[0].flight()


# An edit for each policy that breaches it.
BREACHES: dict[str, Edit] = {
    "armed by a command": no_mail("arm"),
    "a refused arm arms nothing": several(
        no_mail("arm"),
        then(ARMS, lambda s: mail(*asked("arm", REFUSED), at_s=s - 0.02)),
    ),
    "a stop stops": several(mail(*asked("estop")), silent("nothing")),
    "a stop latches": mail(*asked("estop")),
    "a stop is never refused": mail(*asked("estop", REFUSED)),
    "a stop is never undone": several(put("status", "killed", 1.0), silent("nothing")),
    "killed is not armed": put("status", "killed", 1.0, AT, 2.0),
    "killed turns no motor": several(
        put("status", "killed", 1.0, 40.0, 2.0),
        put("cycles", "armed", 0.0, 40.0, 2.0),
        put("cycles", "out_left", 0.5, 40.5, 1.0),
    ),
    "disarmed turns no motor": put("cycles", "out_left", 0.5, 0.5),
    "idle turns no motor": put("cycles", "idle", 1.0),
    "disarmed on the ground": several(
        put("cycles", "armed", 0.0, AT, 0.5), says("disarmed: why", AT)
    ),
    "a disarm has a reason": silent("disarmed"),
    "an arm is said": silent("armed"),
    "a kill has a reason": silent("killed"),
    "adrift is said": mail(*asked("estop")),
    "armed level": then(ARMS, lambda s: put("cycles", "roll", 0.5, s - 0.1, 1.0)),
    "armed with a charged battery": put("status", "battery_v", 5.0, 0.0, 4.0),
    "armed with a way to stop it": put("status", "deaf", 1.0, 0.0, 4.0),
    "armed with its devices": lambda flight: flight._replace(sick=((0.0, frozenset({"imu"})),)),
    "every command is answered": mail(asked("hold")[0]),
    "no command acts late": mail(*asked("hold", age_s=9.0, ttl_s=1.0)),
    "no command acts twice": mail(*asked("hold", accepted_s=3.0), *asked("hold", accepted_s=4.0)),
    "no older fence acts": mail(*asked("hold", fence=2), *asked("hold", fence=1)),
    "no older authority acts": mail(
        *asked("goto", REFUSED, id="first"),
        *asked("hold", id="second"),
        *asked("velocity", id="third", authority=5, arguments={"seconds": 1.0}),
        *asked("velocity", id="fourth", authority=4, arguments={"seconds": 1.0}),
    ),
    "no other boot's command acts": lambda flight: flight._replace(
        mail=(
            *flight.mail,
            (40.0, Command(id="added", name="hold", boot_id="before")),
            (40.0, Outcome(id="added", state=DONE, boot_id="now")),
        )
    ),
    "a command ends once": mail(*asked("hold"), asked("hold", REFUSED)[1], every_s=0.2),
    "progress is said": mail(*asked("land", UNDER_WAY)),
    "a share is one": mail(*asked("hold", fraction=1.5)),
    "a refusal has a reason": mail(*asked("hold", REFUSED, reason="")),
    "no outcome without a command": mail(asked("hold")[1]),
    "flight commands need an armed ship": mail(
        *asked("velocity", arguments={"seconds": 1.0}), at_s=1.0
    ),
    "no command against a failsafe": several(
        with_span("failsafes", "link lost: returning", AT - 2.0, 4.0),
        says("link lost: returning", AT - 2.0),
        mail(*asked("velocity", arguments={"seconds": 1.0})),
    ),
    "a takeoff that is done is up": mail(*asked("takeoff", arguments={"altitude_m": 30.0})),
    "a goto that is done is there": mail(
        *asked("goto", arguments={"north_m": 9.0, "east_m": 0.0, "altitude_m": 1.2})
    ),
    "a mode changes for a reason": with_span("modes", "VELOCITY", AT, 1.0),
    "a mode has a name": with_span("modes", "SLEEP", AT, 1.0),
    "a failsafe that lands lands": with_span("failsafes", "link lost: landing", AT, 3.0),
    "a failsafe that returns returns": with_span("failsafes", "link lost: returning", AT, 3.0),
    "a failsafe that holds holds": with_span("failsafes", LOST, AT, 3.0),
    "MANUAL turns by orders": with_span("modes", "MANUAL", AT, 2.0),
    "a velocity ages out": several(
        with_span("modes", "VELOCITY", AT, 2.0), put("cycles", "set_v_north", 0.3, AT, 2.0)
    ),
    "a lost link holds": put("status", "link_age_s", 5.0, AT, 2.0),
    "a lost link returns": put("status", "link_age_s", 40.0, AT, 5.0),
    "a lost link lands": put("status", "link_age_s", 90.0, AT, 2.0),
    "a low battery returns": put("status", "battery_v", 6.9, 7.0, 8.0),
    "an empty battery lands": put("status", "battery_v", 5.0, 7.0, 6.0),
    "a lost output lands": lambda flight: flight._replace(
        sick=((0.0, frozenset()), (AT, frozenset({"servos", "motors_main"})))
    ),
    "a lost place is said": put("status", "agree_position", 0.0, 7.0, 8.0),
    "a lost height descends": put("status", "agree_height", 0.0, 7.0, 8.0),
    "outside the fence it returns": put("cycles", "north", 9000.0, AT, 5.0),
    "a failsafe is said": with_span("failsafes", "link lost: holding", AT, 1.0),
    "a failsafe lifts no ship": several(
        with_span("failsafes", LOST, 1.0, 5.0),
        put("cycles", "on_ground", 1.0, 0.0, 5.0),
        *(put("cycles", f"out_{name}", 0.0, 0.0, 5.0) for name in ("left", "right", "tail")),
        put("cycles", "out_left", 0.5, 4.0, 0.5),
    ),
    "no throttle above 1": put("cycles", "out_left", 1.2),
    "no throttle backwards without reverse": several(
        put("cycles", "out_left", -0.5),
        no_reverse,
    ),
    "no servo beyond its angles": put("cycles", "out_tilt", 9.0),
    "outputs are numbers": put("cycles", "out_tail", np.nan),
    "no place outside is asked for": put("cycles", "set_north", 9000.0),
    "no height above the ceiling is asked for": put("cycles", "set_down", -9000.0),
    "no speed above the limit is asked for": put("cycles", "set_v_north", 9.0),
    "no climb above the limit is asked for": put("cycles", "set_v_down", -9.0),
    "no descent above the limit is asked for": put("cycles", "set_v_down", 9.0),
    "setpoints are numbers": put("cycles", "set_v_east", np.inf),
    "it turns to its heading": several(
        put("cycles", "set_yaw", 2.0, 0.0, 99.0),
        put("cycles", "yaw", 0.0, 0.0, 99.0),
        put("cycles", "on_ground", 0.0, 5.0, 99.0),
        put("cycles", "armed", 1.0, 5.0, 99.0),
        put("cycles", "down", -2.0, 5.0, 99.0),
        lambda flight: flight._replace(modes=[Span(0.0, 99.0, "HOLD")], said=()),
    ),
    "estimates are numbers": put("cycles", "yaw", np.nan),
    "a height that can be": put("cycles", "down", -1e4),
    "a speed that can be": put("cycles", "v_north", 20.0),
    "a tilt that can be": put("cycles", "roll", 2.0, AT, 2.0),
    "a weight that can be": put("status", "heaviness_kg", 9.0),
    "a wind that can be": put("status", "wind_north", 30.0),
    **{
        f"no sensor is overruled by none: {name}": several(
            put("status", f"outvoted_{name}", 1.0, AT, 3.0),
            put("status", f"agree_{name}", 0.0, AT, 3.0),
            put("status", f"doubt_{name}", 0.0, AT, 3.0),
        )
        for name in ("height", "position", "heading")
    },
    "landed without doubt": put("status", "doubt_height", 1.0, 0.0, 99.0),
    "armed as shown": put("status", "armed", 0.0),
    "height as shown": put("status", "down", -3.0),
    "altitude is minus down": put("status", "altitude_m", 7.0),
    "outputs as shown": put("status", "shown_left", 0.987),
    "a message can be read": says("x" * 201),
    "no cycle is missing": cut(AT, 0.05),
    "time goes on": backwards,
    "a stall is said": several(cut(AT, 0.5), numbered),
    "a long stall needs an arm": several(cut(AT, 1.5), numbered, says("loop stalled", AT)),
    "no cycle is longer than the watchdog waits": put("cycles", "step_ms", 300.0),
    "a status comes": cut(AT, 1.0, "status"),
    "overruns are counted up": put("status", "overruns", -1.0),
    "cycles are counted up": put("status", "cycles", 0.0),
    "a log is whole": lambda flight: flight._replace(complete=False),
}


def test_a_flight_in_which_all_goes_well_keeps_every_policy(flight: FlightData) -> None:
    assert [breach.words for breach in check(Trace(flight))] == []


def test_there_are_sixty_policies_and_each_has_a_breach() -> None:
    names = [policy.name for policy in POLICIES]
    assert len(names) == len(set(names)) >= 60
    assert set(BREACHES) == set(names)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_breach_is_found(policy: Any, flight: FlightData) -> None:
    broken = BREACHES[policy.name](flight)
    assert [one.policy.name for one in check(Trace(broken), (policy,))] == [policy.name]


# --- the operators ---------------------------------------------------------------------------


class Clock:
    def __init__(self, *times_s: float) -> None:
        self.t_s = np.array(times_s)


def of(*values: float) -> Formula:
    return Formula("given", lambda _: np.array(values))


@pytest.mark.parametrize(
    ("formula", "margins"),
    [
        (~of(1, -1, 0, 1), (-1, 1, 0, -1)),
        (of(1, 0, -1, 1) & of(1, 1, 1, -1), (1, 0, -1, -1)),
        (of(-1, -1, 0, 1) | of(1, -1, -1, 1), (1, -1, 0, 1)),
        (implies(of(1, 1, -1, 0), of(1, -1, -1, -1)), (1, -1, 1, 0)),
        (never(of(-1, 1, 0, -1)), (1, -1, 0, 1)),
        (rose(of(1, -1, 1, 1)), (-1, -1, 1, -1)),
        (fell(of(1, -1, 1, 0.5)), (-1, 1, -1, -0.5)),
        # Times are 0, 1, 2 and 4 s.
        (once(of(1, -1, -1, -1), 1.0), (1, 1, -1, -1)),
        (once(of(-1, 0.2, -1, -1), 2.0), (-1, 0.2, 0.2, -1)),
        (lasted(of(1, 1, 1, -1), 1.0), (-1, 1, 1, -1)),
        (lasted(of(1, 0.3, 1, 1), 2.0), (-1, -1, 0.3, 1)),
        (within(of(-1, -1, 1, -1), 1.0), (-1, 1, 1, 0)),
        (within(of(-1, -1, -1, -1), 2.0), (-1, -1, -1, 0)),
        (always(of(1, 1, -1, 1), 1.0), (1, -1, -1, 1)),
        (near(of(-1, 1, -1, -1), 1.0), (1, 1, 1, 0)),
        (since(of(-1, 1, 1, -1), of(1, -1, -1, -1)), (1, 1, 1, -1)),
        (until(of(1, 1, -1, 1), of(-1, -1, 1, -1)), (1, 1, 1, 1)),
        (until(of(1, -1, -1, 1), of(-1, -1, 1, -1)), (-1, -1, 1, 1)),
    ],
    ids=lambda value: value.text if isinstance(value, Formula) else "",
)
def test_an_operator(formula: Formula, margins: tuple[float, ...]) -> None:
    assert tuple(formula.margin(Clock(0.0, 1.0, 2.0, 4.0))) == margins


def test_what_is_not_known_breaches_nothing() -> None:
    speed = Number("speed", lambda _: np.array([1.0, np.nan, 3.0]), scale=4.0)
    limit = speed <= 2.0
    assert tuple(limit.margin(Clock(0.0, 1.0, 2.0))) == (0.25, 0.0, -0.25)
    assert (limit.text, worst(limit, Clock(0.0, 1.0, 2.0))) == ("speed <= 2", (-0.25, 2.0))
    assert tuple(flag("f", lambda _: [1.0, np.nan, 0.0]).margin(None)) == (1.0, 0.0, -1.0)


def test_each_failsafe_has_a_severity() -> None:
    """Policies know a failsafe's action by its words: those of the table are among them."""
    for rule in rules(load("twin"), Times()):
        found = [bad for words, bad in SEVERITY.items() if words in rule.text]
        assert max(found, default=0) == rule.action, rule.text


def test_the_page_of_policies_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m benchmarks.policies_page"


def test_a_log_is_checked(tmp_path: Path) -> None:
    """What a person asks of a flight: every policy kept, or each breach with its time."""
    path = tmp_path / "flight.mcap"
    with Lockstep("twin", seed=3, log=path) as ship:
        ship.command("arm")
        ship.step(1.0)
        ship.command("disarm")
        ship.step(0.5)
    kept = CliRunner().invoke(app, ["log", "check", str(path)])
    assert (kept.exit_code, kept.stdout) == (0, f"{len(POLICIES)} policies kept\n")
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(path.read_bytes()[:-300])  # as a power cut leaves it: without an index
    asked = CliRunner().invoke(app, ["log", "check", str(cut)])
    assert asked.exit_code == 1
    assert asked.stdout.endswith("s: policy a log is whole: The log was closed, and has its end\n")
    as_json = json.loads(CliRunner().invoke(app, ["log", "check", str(cut), "--json"]).stdout)
    assert [one["policy"] for one in as_json["breaches"]] == ["a log is whole"]


def test_an_output_may_be_called_as_a_quantity_is() -> None:
    """The column of blimp2b's motor "yaw" stood in place of the heading, in reports as well."""
    kept: list[Memory] = []

    def keep(session: Session) -> Memory:
        kept.append(Memory(session))
        return kept[-1]

    with Lockstep("blimp2b", seed=5, log=keep) as ship:
        ship.step(0.5)
        columns = list(kept[0].flight().cycles.columns)
    assert len(columns) == len(set(columns))
    assert {"yaw", "out_yaw"} <= set(columns)
