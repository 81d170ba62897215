"""What must never be in a flight, as formulas over its log: `blimp log check` asks them all.

A row a policy. Those that need the truth of a simulation stand in `benchmarks/policies.py`; both
are drawn in docs/policies.md. Tolerances: a status comes every 0.1 s, so what it tells may be that
much late, and what is said of a change comes with the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from typing import NamedTuple

from blimp.distribution import needing
from blimp.recording import judged
from blimp.recording.judged import ANSWER_S, BY_HAND, FLIES, SHOWN_S
from blimp.recording.temporal import (
    Formula,
    Least,
    always,
    fell,
    flag,
    implies,
    lasted,
    near,
    never,
    once,
    rose,
    within,
    worst,
)
from blimp.recording.trace import (
    ARMED,
    BENCH,
    BOOTED,
    BY_TRANSMITTER,
    DESCEND,
    DONE,
    DRIVEN,
    HOLD,
    KILLED,
    LAND,
    MODE_CHANGED,
    ON_GROUND,
    RETURN,
    Trace,
    accepted,
    action,
    column,
    computed,
    each,
    limit,
    mode,
    refused,
    said,
    shown,
    state,
)
from blimp.types import LINK_HOLD_S, LINK_LAND_S, LINK_RETURN_S

with needing("plot", "policies need"):
    import numpy as np

# The promises of the ship that policies guard.
LOOP = "the loop never blocks"
STAGED = "hold, return, come down; a failsafe lifts no ship, a light one is never let go"
TWICE = "the motor gate is asked again just before the drivers"
LATCH = "a kill stays until an arm"
WATCHDOG = "a loop that comes back late stays safe until an arm"
STOP = "an emergency stop passes everything"
ALONE = "no single sensor decides, and estimates have bounds"
ROADS = "a stop has two roads, proved alive"
ASKED = "a ship that cannot be asked is flying"
SAID = "what is said is so"
FLOWS = "a command gets one outcome, with its reason"
ONCE = "a command acts once, in time, for who has control"

TILT_RAD = 0.27  # arming asks for 15 degrees
WAITS_S = 5.0  # a takeoff waits so long for the end of a failsafe: supervisor.py
LANDS = ("LAND",)


class Policy(NamedTuple):
    """What must hold at each moment of a flight.

    text: the same for a person. rule: the promise it guards, or the place that has the limit.
    """

    name: str
    text: str
    formula: Formula
    rule: str


class Breach(NamedTuple):
    """A policy that a flight does not keep, and when it was first so."""

    policy: Policy
    at_s: float

    @property
    def words(self) -> str:
        return f"{self.at_s:.1f} s: policy {self.policy.name}: {self.policy.text}"


# --- what several policies ask ---------------------------------------------------------------

HEIGHT = computed("height", lambda trace: -trace.flight.cycles["down"])
SPEED = computed(
    "speed", lambda trace: np.hypot(trace.flight.cycles["v_north"], trace.flight.cycles["v_east"])
)
TILT = computed(
    "tilt",
    lambda trace: np.maximum(
        np.abs(trace.flight.cycles["roll"]), np.abs(trace.flight.cycles["pitch"])
    ),
)
BATTERY = column("battery_v", of="status")
LINK_AGE = column("link_age_s", of="status", scale=10.0)
FLYING = ARMED & ~ON_GROUND
ARM_COMMANDED = once(accepted("arm"), ANSWER_S) | near(said("resumed after a crash"), SHOWN_S) | (
    BY_TRANSMITTER & near(said("the transmitter has control"), ANSWER_S)
)  # fmt: skip
KNOWS_PLACE = column("agree_position", of="status") >= 0.5
KNOWS_HEIGHT = column("agree_height", of="status") >= 0.5
BY_PERSON = BENCH | mode("MANUAL")
WEIGHED_LIGHT = flag("weighed light", lambda trace: trace.held("status", "heaviness_kg") <= 0.0)
STEERED = mode("HOLD", "LOITER", "RTL")


POLICIES: tuple[Policy, ...] = (
    # --- stop and arm
    Policy(
        "armed by a command",
        "A ship is armed by an accepted arm alone, or to land after a crash in the air",
        implies(rose(ARMED), ARM_COMMANDED),
        LATCH,
    ),
    Policy(
        "a refused arm arms nothing",
        "After a refused arm the ship is not armed by it",
        implies(
            refused("arm") & ~ARMED,
            always(~ARMED, 0.05) | near(accepted("arm") | said("the transmitter has control"), 0.2),
        ),
        LATCH,
    ),
    Policy(
        "a stop stops",
        "Two cycles after an emergency stop no motor is driven",
        implies(accepted("estop"), within(~DRIVEN, 0.05)),
        STOP,
    ),
    Policy(
        "a stop latches",
        "An emergency stop shows as killed with the next status",
        implies(accepted("estop"), within(KILLED | BOOTED, SHOWN_S)),
        LATCH,
    ),
    Policy(
        "a stop is never refused",
        "No emergency stop is refused",
        each("no estop is refused", judged.stops),
        STOP,
    ),
    Policy(
        "a stop is never undone",
        "Killed ends by an accepted arm alone",
        implies(fell(KILLED), ARM_COMMANDED),
        LATCH,
    ),
    Policy(
        "killed is not armed",
        "A ship is never killed and armed at once",
        never(lasted(KILLED & ARMED, SHOWN_S)),
        LATCH,
    ),
    Policy(
        "killed turns no motor",
        "While a ship is killed and not armed no motor is driven, on the bench neither",
        implies(KILLED & ~ARMED & ~once(accepted("arm"), SHOWN_S), ~DRIVEN),
        TWICE,
    ),
    Policy(
        "disarmed turns no motor",
        "While a ship is not armed no motor is driven, but by hand on the bench",
        implies(~ARMED & ~BENCH, ~DRIVEN),
        TWICE,
    ),
    Policy(
        "idle turns no motor",
        "While the setpoint is idle no motor is driven",
        implies(state("idle"), ~DRIVEN),
        TWICE,
    ),
    Policy(
        "disarmed on the ground",
        "By its own estimate a ship is on the ground as it disarms, unless it was stopped",
        implies(
            fell(ARMED), once(ON_GROUND | accepted("disarm"), 0.1) | near(KILLED | BOOTED, 2.0)
        ),
        ALONE,
    ),
    Policy(
        "a disarm has a reason",
        "Each disarm is said with its reason",
        implies(fell(ARMED), near(said("disarmed: .|killed: ."), SHOWN_S) | near(BOOTED, 2.0)),
        SAID,
    ),
    Policy(
        "an arm is said",
        "Each arm is said",
        implies(rose(ARMED), near(said("armed|resumed after"), SHOWN_S)),
        SAID,
    ),
    Policy(
        "a kill has a reason",
        "Each kill is said with its reason",
        implies(rose(KILLED), near(said("killed: ."), SHOWN_S)),
        SAID,
    ),
    Policy(
        "adrift is said",
        "What takes the power of a ship in the air is said for as long as it falls or rises",
        implies(
            accepted("estop") & once(FLYING & (HEIGHT >= 0.5), 0.05),
            within(shown("in the air") | BOOTED, ANSWER_S),
        ),
        ASKED,
    ),
    Policy(
        "armed level",
        "A ship is armed level, but on the bench or by an arm that takes over in the air",
        implies(rose(ARMED) & ON_GROUND & ~BENCH, TILT <= TILT_RAD),
        "blimp/control/arming.py",
    ),
    Policy(
        "armed with a charged battery",
        "A ship on the ground is armed above the battery's warning voltage",
        implies(
            rose(ARMED) & ON_GROUND & ~BENCH,
            limit("warn_v", lambda ship: ship.battery.warn_v - 0.01) <= BATTERY,
        ),
        "blimp/control/arming.py",
    ),
    Policy(
        "armed with a way to stop it",
        "A ship is armed if an emergency stop would come, or by a transmitter that stops it",
        implies(rose(ARMED) & ~BENCH, ~lasted(state("deaf", of="status"), 0.2) | BY_TRANSMITTER),
        ROADS,
    ),
    Policy(
        "armed with its devices",
        "A ship is armed with every device healthy that it requires",
        implies(
            rose(ARMED) & ON_GROUND & ~BENCH,
            flag("required devices healthy", lambda trace: 1.0 - judged.required_sick(trace)),
        ),
        "blimp/control/arming.py",
    ),
    # --- commands
    Policy(
        "every command is answered",
        "Each command has an outcome within 0.5 s",
        each("each command has an outcome", judged.answered),
        FLOWS,
    ),
    Policy(
        "no command acts late",
        "No command is carried out after its time to live",
        each("age <= ttl of what is carried out", judged.in_time),
        ONCE,
    ),
    Policy(
        "no command acts twice",
        "A command that comes again moves nothing",
        each("one time of acceptance an id", judged.acts_once),
        ONCE,
    ),
    Policy(
        "no older fence acts",
        "A delivery that is older than one seen before is refused",
        each("no older fence is accepted", judged.newest_fence),
        ONCE,
    ),
    Policy(
        "no older authority acts",
        "Who has lost control of the ship moves nothing",
        each("no older authority is accepted", judged.newest_authority),
        ONCE,
    ),
    Policy(
        "no other boot's command acts",
        "A command for another flight process is refused",
        each("no other boot is accepted", judged.own_boot),
        ONCE,
    ),
    Policy(
        "a command ends once",
        "What became of a command does not change once it is said",
        each("one end an id", judged.ends_once),
        ONCE,
    ),
    Policy(
        "progress is said",
        "A command under way is said of each second until its end",
        each("no silence of 1 s", judged.progress),
        FLOWS,
    ),
    Policy(
        "a share is one",
        "The fraction of a command is from 0 to 1",
        each("0 <= fraction <= 1", judged.fractions),
        FLOWS,
    ),
    Policy(
        "a refusal has a reason",
        "Each refusal says why",
        each("reason of what is refused", judged.reasons),
        FLOWS,
    ),
    Policy(
        "no outcome without a command",
        "Each outcome is of a command that the log has",
        each("its command came before", judged.sent_first),
        "docs/log.md",
    ),
    Policy(
        "flight commands need an armed ship",
        "What flies is accepted by an armed ship alone",
        implies(accepted(*FLIES), near(ARMED, 0.02)),
        "blimp/actions.py",
    ),
    Policy(
        "no command against a failsafe",
        "While a failsafe returns or lands, a command that flies is accepted if it ends it alone",
        implies(
            accepted(*FLIES) & lasted(action(RETURN), SHOWN_S), within(~action(RETURN), SHOWN_S)
        ),
        "blimp/control/supervisor.py",
    ),
    Policy(
        "a takeoff that is done is up",
        "As a takeoff is done the ship is within 0.7 m of the altitude",
        judged.arrived("takeoff", 0.7),
        SAID,
    ),
    Policy(
        "a goto that is done is there",
        "As a goto is done the ship is within 2 m of its place",
        judged.arrived("goto", 2.0),
        SAID,
    ),
    # --- modes
    Policy(
        "a mode changes for a reason",
        "The mode changes by a command, a failsafe, a transmitter, or with words",
        implies(
            MODE_CHANGED,
            once(accepted() | DONE, 1.0)
            | near(said("."), 1.0)
            | once(action(HOLD), 0.5)
            | near(rose(~action(HOLD)), 0.5)
            | BY_TRANSMITTER
            | near(BOOTED | fell(ARMED), 1.0)
            | near(fell(ON_GROUND) | fell(DRIVEN), 1.0),
        ),
        FLOWS,
    ),
    Policy(
        "a mode has a name",
        "Each mode is one of the table",
        each("the mode is known", judged.modes_known),
        "blimp/types.py",
    ),
    Policy(
        "a failsafe that lands lands",
        "1 s after a failsafe orders a landing or descent in the air, the mode is LAND",
        implies(lasted(FLYING & action(LAND), 1.0), mode(*LANDS)),
        STAGED,
    ),
    Policy(
        "a failsafe that returns returns",
        "1 s after a failsafe orders a return in the air, the mode is RTL or LAND",
        implies(lasted(FLYING & action(RETURN), 1.0), mode("RTL", *LANDS)),
        STAGED,
    ),
    Policy(
        "a failsafe that holds holds",
        "1 s after a failsafe orders a hold in the air, the mode is HOLD, RTL or LAND",
        implies(lasted(FLYING & action(HOLD), 1.0), mode("HOLD", "RTL", *LANDS)),
        STAGED,
    ),
    Policy(
        "MANUAL turns by orders",
        "In MANUAL a motor is driven while an order is in force, or by a transmitter",
        implies(
            mode("MANUAL") & lasted(mode("MANUAL") & DRIVEN, SHOWN_S) & ~BY_TRANSMITTER & ~BENCH,
            judged.ordered(BY_HAND, 10.0, 0.5),
        ),
        STAGED,
    ),
    Policy(
        "a velocity ages out",
        "In VELOCITY nothing but an order in force asks for a speed, 5 s to stop apart",
        implies(
            lasted(mode("VELOCITY"), SHOWN_S)
            & ~BY_TRANSMITTER
            & (computed("asked speed", judged.set_speed) >= 0.05),
            judged.ordered(("velocity", "stick"), 60.0, 5.0),
        ),
        STAGED,
    ),
    # --- failsafes
    Policy(
        "a lost link holds",
        f"In the air a failsafe is in force once the link is lost for {LINK_HOLD_S:g} s",
        implies(
            lasted(FLYING & (LINK_AGE >= LINK_HOLD_S), SHOWN_S), action(HOLD) | near(BOOTED, 2.0)
        ),
        STAGED,
    ),
    Policy(
        "a lost link returns",
        f"With a position, a link lost for {LINK_RETURN_S:g} s returns or lands the ship",
        implies(
            lasted(FLYING & KNOWS_PLACE & (LINK_AGE >= LINK_RETURN_S), 3.0),
            action(RETURN) | near(action(HOLD), 0.5) & ~KNOWS_PLACE,
        ),
        STAGED,
    ),
    Policy(
        "a lost link lands",
        f"A link lost for {LINK_LAND_S:g} s lands the ship, and never less while it is lost",
        implies(lasted(FLYING & (LINK_AGE >= LINK_LAND_S), SHOWN_S), action(LAND)),
        STAGED,
    ),
    Policy(
        "a low battery returns",
        "A battery below its warning for 6 s returns or lands the ship",
        implies(
            lasted(FLYING & (limit("warn_v", lambda ship: ship.battery.warn_v) >= BATTERY), 6.0),
            action(RETURN),
        ),
        STAGED,
    ),
    Policy(
        "an empty battery lands",
        "A battery below empty for 4 s lands the ship",
        implies(
            lasted(FLYING & (limit("empty_v", lambda ship: ship.battery.empty_v) >= BATTERY), 4.0),
            action(LAND),
        ),
        STAGED,
    ),
    Policy(
        "a lost output lands",
        "A device of outputs that does not answer for 3 s lands the ship",
        implies(
            lasted(FLYING & flag("an output's device is lost", judged.output_lost), 3.0),
            action(LAND),
        ),
        STAGED,
    ),
    Policy(
        "a lost place is said",
        "Where no sensor agrees on the position for 6 s in the air, a failsafe is in force",
        implies(lasted(FLYING & ~KNOWS_PLACE, 6.0), action(HOLD)),
        ALONE,
    ),
    Policy(
        "a lost height descends",
        "Where no sensor agrees on the height for 6 s in the air, the ship descends",
        implies(lasted(FLYING & ~KNOWS_HEIGHT, 6.0), action(LAND)),
        ALONE,
    ),
    Policy(
        "outside the fence it returns",
        "Outside the airframe's distance or ceiling by a tenth for 3 s, the ship returns",
        implies(
            lasted(FLYING & KNOWS_PLACE & (computed("metres outside", judged.outside) >= 0.0), 3.0),
            action(RETURN),
        ),
        STAGED,
    ),
    Policy(
        "a failsafe is said",
        "Each failsafe is said in words as it comes",
        each("a message names each failsafe", judged.failsafes_said),
        SAID,
    ),
    Policy(
        "a failsafe lifts no ship",
        "Under a failsafe no motor starts on the ground by itself, nor runs there for 7 s",
        implies(
            rose(DRIVEN) & ON_GROUND & once(action(HOLD), SHOWN_S) & ~mode(*LANDS),
            once(accepted(), ANSWER_S)
            | WEIGHED_LIGHT
            | BY_TRANSMITTER
            | once(said("down[?]|.*light"), 5.0)
            | once(lasted(~ON_GROUND, 0.05), 2.0),
        )
        & ~lasted(
            ARMED & ON_GROUND & action(HOLD) & ~mode(*LANDS) & DRIVEN & ~WEIGHED_LIGHT,
            WAITS_S + 2.0,
        ),
        STAGED,
    ),
    # --- outputs
    Policy(
        "no throttle above 1",
        "No motor is driven above its limit",
        computed("throttle", judged.throttle) <= 1.0005,
        TWICE,
    ),
    Policy(
        "no throttle backwards without reverse",
        "A propeller that gives nothing backwards is not driven so",
        computed("throttle backwards", judged.backwards) <= 0.001,
        TWICE,
    ),
    Policy(
        "no servo beyond its angles",
        "No servo is sent beyond its angles",
        computed("radians beyond", judged.beyond) <= 0.001,
        TWICE,
    ),
    Policy(
        "outputs are numbers",
        "Every output has a finite value",
        flag("outputs are finite", judged.outputs_finite),
        TWICE,
    ),
    # --- setpoints
    Policy(
        "no place outside is asked for",
        "No setpoint is farther from the pad than the airframe allows, by a tenth and 2 m",
        implies(
            ARMED,
            computed("asked distance", judged.set_far, scale=10.0)
            <= limit("max_distance_m + 2", lambda ship: 1.1 * ship.limits.max_distance_m + 2.0),
        ),
        STAGED,
    ),
    Policy(
        "no height above the ceiling is asked for",
        "No setpoint is higher than the airframe's ceiling by a tenth and 1 m",
        implies(
            ARMED,
            computed("asked height", lambda trace: -trace.flight.cycles["set_down"], scale=10.0)
            <= limit("max_altitude_m + 1", lambda ship: 1.1 * ship.limits.max_altitude_m + 1.0),
        ),
        STAGED,
    ),
    Policy(
        "no speed above the limit is asked for",
        "No setpoint asks for more than the airframe's speed",
        implies(
            ARMED & ~BY_PERSON,
            computed("asked speed", judged.set_speed)
            <= limit("speed_mps", lambda ship: 1.5 * ship.limits.speed_mps, 1.5),
        ),
        "blimp/airframe.py",
    ),
    Policy(
        "no climb above the limit is asked for",
        "No setpoint asks for more than the airframe's climb",
        implies(
            ARMED & ~BY_PERSON,
            computed("asked climb", lambda trace: -trace.flight.cycles["set_v_down"])
            <= limit(
                "climb", lambda ship: 1.2 * max(ship.limits.climb_mps, ship.limits.column_mps)
            ),
        ),
        "blimp/airframe.py",
    ),
    Policy(
        "no descent above the limit is asked for",
        "No setpoint asks for more than the airframe's descent",
        implies(
            ARMED & ~BY_PERSON,
            column("set_v_down")
            <= limit(
                "descent", lambda ship: 1.2 * max(ship.limits.descent_mps, ship.limits.column_mps)
            ),
        ),
        "blimp/airframe.py",
    ),
    Policy(
        "setpoints are numbers",
        "Every velocity that is asked for is finite",
        judged.is_finite("set_v_north", "set_v_east", "set_v_down"),
        TWICE,
    ),
    Policy(
        "it turns to its heading",
        "In HOLD, LOITER or RTL a healthy ship is within 0.6 rad of its heading once in each 30 s",
        implies(
            lasted(FLYING & STEERED & ~action(HOLD) & (HEIGHT >= 0.5), 10.0)
            & flag("a heading is asked for", judged.has_heading)
            & ~once(said(".*(does nothing|stays at|runs by itself)"), 1e6),
            within(
                (computed("heading error", judged.heading_off) <= 0.6) | ~(FLYING & STEERED), 30.0
            ),
        ),
        SAID,
    ),
    # --- estimates
    Policy(
        "estimates are numbers",
        "Position, velocity and attitude are finite in every cycle",
        judged.is_finite(
            "north", "east", "down", "v_north", "v_east", "v_down", "roll", "pitch", "yaw"
        ),
        ALONE,
    ),
    Policy(
        "a height that can be",
        "A height that a sensor agrees with is from 5 m below the pad to 60 m above the ceiling",
        implies(
            KNOWS_HEIGHT,
            (HEIGHT >= -5.0)
            & (limit("ceiling + 60", lambda ship: ship.limits.max_altitude_m + 60.0) >= HEIGHT),
        ),
        ALONE,
    ),
    Policy(
        "a speed that can be",
        "The speed over ground is below 10 m/s, the climb below 6 m/s",
        (SPEED <= 10.0) & (column("v_down") <= 6.0) & (column("v_down") >= -6.0),
        ALONE,
    ),
    Policy(
        "a tilt that can be",
        "An armed ship does not think for 1 s that it hangs more than 60 degrees off level",
        never(lasted(FLYING & (TILT >= 1.05), 1.0)) | action(DESCEND),
        ALONE,
    ),
    Policy(
        "a weight that can be",
        "The weighed heaviness is below a fifth of what the hull displaces",
        computed("heaviness share", judged.heaviness_share) <= 0.2,
        ALONE,
    ),
    Policy(
        "a wind that can be",
        "The estimated wind is below 10 m/s",
        (column("wind_north", of="status") <= 10.0)
        & (column("wind_east", of="status") <= 10.0)
        & (column("wind_north", of="status") >= -10.0)
        & (column("wind_east", of="status") >= -10.0),
        ALONE,
    ),
    *(
        Policy(
            f"no sensor is overruled by none: {quantity}",
            f"A sensor outvoted on {quantity} for 2 s has one against it, or doubt is said",
            judged.outvoted_alone(quantity),
            ALONE,
        )
        for quantity in ("height", "position", "heading")
    ),
    Policy(
        "landed without doubt",
        "A ship that disarms as landed has no doubt about its height",
        implies(said("disarmed: landed"), ~lasted(state("doubt_height", of="status"), 1.0)),
        ALONE,
    ),
    # --- what is said
    Policy(
        "armed as shown",
        "A status says armed as its cycle does",
        judged.as_shown("armed of a status is that of its cycle", lambda _: [("armed", "armed")]),
        SAID,
    ),
    Policy(
        "height as shown",
        "A status has the height of its cycle",
        judged.as_shown("down of a status is that of its cycle", lambda _: [("down", "down")]),
        SAID,
    ),
    Policy(
        "altitude is minus down",
        "The altitude that people read is minus the position's down",
        flag(
            "altitude is -down",
            lambda trace: np.where(
                np.isfinite(trace.held("status", "down")),
                np.abs(trace.held("status", "altitude_m") + trace.held("status", "down")) < 2e-3,
                nan,
            ),
        ),
        "frames and signs",
    ),
    Policy(
        "outputs as shown",
        "A status has the outputs of its cycle",
        judged.as_shown(
            "each output of a status is that of its cycle",
            lambda trace: [
                (f"shown_{name}", f"out_{name}") for name in trace.flight.session.actuators
            ],
        ),
        SAID,
    ),
    Policy(
        "a message can be read",
        "No message is empty or longer than 200 letters",
        each("1 to 200 letters", judged.messages),
        "blimp/control/supervisor.py",
    ),
    # --- the loop and its log
    Policy(
        "no cycle is missing",
        "The cycles of a log are numbered one after the other",
        each("number is 1 more", judged.consecutive),
        "docs/log.md",
    ),
    Policy(
        "time goes on",
        "Each cycle is later than the one before",
        flag(
            "time rises", lambda trace: (judged.step_s(trace) > 0.0) | (trace.t_s == trace.t_s[0])
        ),
        "docs/log.md",
    ),
    Policy(
        "a stall is said",
        "A cycle that comes 0.25 s late or more is said, but of another flight process",
        implies(
            computed("seconds since the last cycle", judged.step_s) >= 0.27,
            near(said("loop stalled|killed"), SHOWN_S) | near(BOOTED, 2.0),
        ),
        WATCHDOG,
    ),
    Policy(
        "a long stall needs an arm",
        "A ship that was armed and stood still for more than 1 s is killed",
        implies(
            (computed("seconds since the last cycle", judged.step_s) >= 1.02),
            ~once(ARMED, 0.0) | within(KILLED, SHOWN_S) | near(BOOTED, 2.0),
        ),
        WATCHDOG,
    ),
    Policy(
        "no cycle is longer than the watchdog waits",
        "No cycle computes for 0.25 s",
        column("step_ms", scale=250.0) <= 250.0,
        LOOP,
    ),
    Policy(
        "a status comes",
        "A flight process sends a status twice a second at least",
        (computed("seconds since a status", judged.since_status) <= 0.5) | near(BOOTED, 1.0),
        "docs/log.md",
    ),
    Policy(
        "overruns are counted up",
        "The count of overruns never falls",
        judged.falls("overruns"),
        LOOP,
    ),
    Policy(
        "cycles are counted up",
        "The count of cycles that is said never falls",
        judged.falls("cycles"),
        LOOP,
    ),
    Policy(
        "a log is whole",
        "The log was closed, and has its end",
        each("the log is complete", judged.whole),
        "docs/log.md",
    ),
)


def check(trace: Trace, policies: Sequence[Policy] = POLICIES) -> list[Breach]:
    """Return what a flight does not keep, in the order of the table."""
    found = []
    for policy, least in margins(trace, policies):
        if least.margin < 0.0:
            found.append(Breach(policy, least.at_s))
    return found


def margins(trace: Trace, policies: Sequence[Policy] = POLICIES) -> Iterator[tuple[Policy, Least]]:
    """Yield how near a flight came to a breach of each policy."""
    for policy in policies:
        yield policy, worst(policy.formula, trace)
