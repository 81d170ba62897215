"""What must never be, asked of the truth of a simulated flight: `blimp/recording/policies.py` has
what the log alone shows.

A `Witness` records a Lockstep flight in memory, and ten times a second where the ship really is.
A flight that nobody could have brought down (see `blimp/ship/oracle.py`) may be lost.
"""

from math import hypot
from typing import Any

import numpy as np

from blimp.recording.flight_data import Table
from blimp.recording.judged import FLIES
from blimp.recording.memory import Memory
from blimp.recording.policies import HEIGHT, POLICIES, STEERED, Policy
from blimp.recording.tape import Injected, Kind, Session
from blimp.recording.temporal import (
    Formula,
    Values,
    fell,
    flag,
    implies,
    lasted,
    near,
    never,
    once,
    rose,
    since,
)
from blimp.recording.trace import (
    ARMED,
    BOOTED,
    DRIVEN,
    HOLD,
    KILLED,
    ON_GROUND,
    Trace,
    accepted,
    action,
    column,
    computed,
    each,
    mode,
    said,
)
from blimp.ship.failures import BY_NAME, Failure
from blimp.ship.lockstep import Lockstep
from blimp.ship.matrix import (
    BALANCED_KG,
    DISARM_M,
    FLY_AWAY_M,
    FLY_UP_M,
    GROUND_M,
    ROSE_M,
    TOUCHDOWN_MPS,
    press_n,
    pushes_n,
)  # fmt: skip
from blimp.sim.atmosphere import GRAVITY_MPS2

FAULTY = "does nothing|stays at|runs by itself"
WORLD = (
    "above_m", "far_m", "high_m", "touchdown_mps", "heaviness_kg", "displaced_kg", "push_n",
    "press_n", "turning", "held",
)  # fmt: skip
PRESS_EVERY = 10  # of what a fault leaves, which takes the time of a cycle


class Witness:
    """Keeps a flight in memory, and the truth beside it. failure: what goes wrong, once it does.

    Give its `keep` to Lockstep as `log`, then the ship to `watch`.
    """

    def __init__(self) -> None:
        self.failure: Failure = BY_NAME["none"]
        self.hopeless = ""
        self._memory: Memory | None = None
        self._ship: Lockstep | None = None
        self._rows: list[tuple[float, ...]] = []
        self._press_n = 0.0

    def keep(self, session: Session) -> "Witness":
        self._memory = Memory(session)
        return self

    def watch(self, ship: Lockstep) -> None:
        self._ship = ship

    def take(self, kind: int, payload: bytes) -> bool:
        if kind == Kind.TRUTH and self._ship is not None:
            self._rows.append(self._truth(self._ship))
        return self._memory is not None and self._memory.take(kind, payload)

    def close(self) -> None:
        """Nothing is open."""

    def _truth(self, ship: Lockstep) -> tuple[float, ...]:
        physics, truth = ship.world.physics, ship.truth
        if len(self._rows) % PRESS_EVERY == 0:
            self._press_n = press_n(ship, self.failure)
        return (
            ship.now_s, physics.height_above_ground_m, hypot(*truth.position_ned_m[:2]),
            truth.altitude_m, physics.touchdown_speed_mps, physics.heaviness_kg,
            physics.displaced_kg, pushes_n(ship), self._press_n,
            float(any(ship.world.electronics.throttles())), float(physics.held),
        )  # fmt: skip

    def trace(self) -> "TrueTrace":
        """Return the flight up to now, as policies ask about it."""
        if self._memory is None:
            raise ValueError("no flight was kept: give `keep` to Lockstep as its log")
        flight = self._memory.flight()
        rows = np.array(self._rows, dtype=np.float64).reshape(-1, 1 + len(WORLD))
        # A log's time begins with its first message, the ship's own with its switch.
        began_s = self._memory.began_s
        columns: dict[str, Any] = {name: rows[:, n + 1] for n, name in enumerate(WORLD)}
        return TrueTrace(flight, Table(rows[:, 0] - began_s, columns), self.hopeless)


class TrueTrace(Trace):
    """A trace with its world. hopeless: why nobody could bring this ship down, "" if somebody."""

    def __init__(self, flight: Any, world: Table, hopeless: str) -> None:
        super().__init__(flight, world)
        self.hopeless = hopeless


def _disturbs(one: Injected) -> bool:
    held_later = one.what == "hold" and one.options["held"] and one.cycle > 0
    return held_later or one.what not in ("hold", "heartbeat")


def _healthy(trace: Trace) -> Values:
    """Whether nothing was done to the ship yet: no fault, cut link, crash or ballast.

    Somebody who holds it in its flight is in the way, too.
    """
    begun = [t_s for t_s, one in trace.flight.injected if _disturbs(one)]
    heavy = trace.held("world", "heaviness_kg") / trace.held("world", "displaced_kg")
    loaded = np.abs(np.nan_to_num(np.diff(heavy, prepend=heavy[:1]))) > 1e-3
    begun += [float(t_s) for t_s in trace.t_s[loaded]]
    return (trace.t_s < min(begun, default=np.inf)).astype(float)


def _stuck(trace: Trace) -> Values:
    """Whether a fault drives an output: what it does is none of the flight process's."""
    outputs = {row.name for row in trace.ship.device if row.outputs}
    begun = [
        t_s for t_s, one in trace.flight.injected if one.what == "fault" and one.device in outputs
    ]
    return (trace.t_s >= min(begun, default=np.inf)).astype(float)


def _off(of: str, *axes: str) -> Any:
    """Return the distance of estimate and truth along some columns."""

    def at(trace: Trace) -> Values:
        squares = [(trace.flight.cycles[axis] - trace.held("truth", axis)) ** 2 for axis in axes]
        found: Values = np.sqrt(np.sum(squares, axis=0))
        return found

    return computed(of, at)


def _place_off(trace: Trace) -> Values:
    off_m = _off("", "north", "east").values(trace)
    found: Values = off_m - 3.0 * np.nan_to_num(trace.held("status", "sigma_position"))
    return found


def _turn_off(trace: Trace) -> Values:
    off = trace.flight.cycles["yaw"] - trace.held("truth", "yaw")
    found: Values = np.abs((off + np.pi) % (2.0 * np.pi) - np.pi)
    return found


def _accused(trace: Trace) -> Any:
    """Yield each output that is said to be broken while nothing of it or its driver is."""
    drivers = {name: row.name for row in trace.ship.device for name in row.outputs.values()}
    for t_s, text in trace.flight.said:
        names, _, what = text.partition(": ")
        if not any(what.startswith(words) for words in FAULTY.split("|")):
            continue
        failing = {
            str(one.options.get("channel", drivers.get(one.device, "")))
            for at_s, one in trace.flight.injected if one.what == "fault" and at_s <= t_s
        } | {
            one.device for at_s, one in trace.flight.injected
            if one.what == "fault" and at_s <= t_s
            and (one.kind in ("no_answer", "frozen", "bus_stuck", "garbage"))
        }  # fmt: skip
        for name in names.split(" and "):
            if name not in failing and drivers.get(name, "") not in failing:
                yield t_s, -1.0


HEALTHY = flag("nothing has failed", _healthy)
HOPEFUL = flag(
    "somebody could bring it down",
    lambda trace: np.full(len(trace.t_s), not getattr(trace, "hopeless", "")),
)
ABOVE = column("above_m", of="world")
HEAVINESS = column("heaviness_kg", of="world", scale=0.01)
WEIGHS_OFF = computed(
    "weighed minus true heaviness, of the displaced mass",
    lambda trace: np.abs(
        trace.held("status", "heaviness_kg") - trace.held("world", "heaviness_kg")
    ) / trace.held("world", "displaced_kg"),
    scale=0.05,
)  # fmt: skip
LIGHT_SHARE = computed(
    "true heaviness of the displaced mass",
    lambda trace: trace.held("world", "heaviness_kg") / trace.held("world", "displaced_kg"),
    scale=0.05,
)
DOWN = ABOVE <= GROUND_M
HEAVY = HEAVINESS >= BALANCED_KG
TURNING = column("turning", of="world") >= 0.5
HELD = column("held", of="world") >= 0.5
STUCK = flag("a fault drives an output", _stuck)
STOPPED = near(KILLED, 0.3) | near(BOOTED, 2.0)
CAN_PRESS = computed(
    "thrust that could press, less lift",
    lambda trace: (
        trace.held("world", "press_n") + GRAVITY_MPS2 * trace.held("world", "heaviness_kg")
    ),
)
PRESSES = column("push_n", of="world") >= 0.0
LANDED = said("disarmed: landed|disarmed: down after")
AT_REST = lasted(DOWN & ~DRIVEN, 2.0)


def _in_flight(what: Formula, bad: Formula) -> Formula:
    """It is not so for 2 s in flight, of a ship with which nothing has failed."""
    return implies(
        HEALTHY & ~HELD & lasted(ARMED & ~ON_GROUND & (HEIGHT >= 0.3) & what, 5.0),
        ~lasted(bad, 2.0),
    )


TRUTH_POLICIES: tuple[Policy, ...] = (
    Policy(
        "never disarmed in the air",
        "Unless it is stopped, a ship disarms with its lowest point below 0.3 m",
        implies(fell(ARMED) & ~STOPPED, ABOVE <= DISARM_M),
        "a light ship is never simply disarmed; no single sensor disarms",
    ),
    Policy(
        "no light ship is let go",
        "No ship disarms by itself that is lighter than air",
        implies(fell(ARMED) & ~STOPPED & ~once(accepted("disarm"), 0.1), HEAVINESS >= -BALANCED_KG),
        "a light ship is never simply disarmed",
    ),
    Policy(
        "not flown away",
        f"A ship that could be brought down stays within {FLY_AWAY_M:g} m and below {FLY_UP_M:g} m",
        implies(
            HOPEFUL & ~lasted(~ARMED, 1.0),
            (column("far_m", of="world", scale=20.0) <= FLY_AWAY_M)
            & (column("high_m", of="world", scale=10.0) <= FLY_UP_M),
        ),
        "hold, then return, then come down",
    ),
    Policy(
        "gentle touchdown",
        f"A ship that could be brought down touches it at {TOUCHDOWN_MPS:g} m/s at most",
        implies(
            HOPEFUL & ~once(KILLED | BOOTED, 60.0) & ~mode("MANUAL"),
            column("touchdown_mps", of="world") <= TOUCHDOWN_MPS,
        ),
        "hold, then return, then come down",
    ),
    Policy(
        "what has landed lies there",
        f"A ship that disarmed as landed stays below {ROSE_M:g} m",
        implies(since(~ARMED, LANDED) & ~HELD, ABOVE <= ROSE_M),
        "what is said is so",
    ),
    Policy(
        "a ship on the ground is there",
        "An armed ship does not believe for 3 s that it is on the ground at 0.5 m or more",
        never(lasted(ARMED & ~HELD & ON_GROUND & (ABOVE >= 0.5), 3.0)),
        "no single sensor declares touchdown",
    ),
    Policy(
        "held down is so",
        "As a ship says that it is held down, it is below 0.5 m",
        implies(said(".*: held down by"), ABOVE <= 0.5),
        "what is said is so",
    ),
    Policy(
        "light is so",
        "A healthy ship that says it is light is not heavy by 0.6 % of what it displaces",
        implies(HEALTHY & said("light by about"), LIGHT_SHARE <= 0.006),
        "what is said is so",
    ),
    Policy(
        "it weighs itself rightly",
        "A healthy ship in flight for 30 s has weighed itself to 1 % of what it displaces",
        implies(
            HEALTHY & lasted(ARMED & ~ON_GROUND & (HEIGHT >= 0.5) & ~HELD, 30.0),
            WEIGHS_OFF <= 0.01,
        ),
        "every estimate has bounds",
    ),
    Policy(
        "a heavy ship does not run on the ground",
        "A truly heavy ship that landed idles its motors within 45 s",
        implies(
            HOPEFUL & ~STUCK & ~HELD,
            ~lasted(ARMED & mode("LAND") & DOWN & HEAVY & TURNING, 45.0),
        ),
        "a person may come near",
    ),
    Policy(
        "a light ship that rises is pressed",
        "A light ship that rises off its landing is pushed down within 8 s while thrust could",
        implies(
            lasted(
                ARMED & mode("LAND") & ~HEAVY & ~HELD & (ABOVE >= ROSE_M)
                & (column("v_down", of="truth") <= -0.05), 8.0,
            ) & once(AT_REST, 60.0) & (CAN_PRESS >= 0.0),
            once(PRESSES, 8.0),
        ),
        "a light ship is never left unpressed while it can be pressed",
    ),
    Policy(
        "a failsafe lifts no ship, in truth",
        "A heavy ship that lies idle as a failsafe comes stays below 0.3 m while it lasts",
        implies(
            since(
                action(HOLD) & ~accepted(*FLIES) & ~accepted("mode", "arm", "land"),
                rose(action(HOLD)) & AT_REST & HEAVY & ARMED,
            ) & ~HELD & ~STUCK,
            ABOVE <= ROSE_M,
        ),
        "a failsafe lifts no ship",
    ),
    Policy(
        "a stop stops the propellers",
        "Half a second after a stop no motor turns, but what a fault drives",
        implies(lasted(KILLED & ~ARMED, 0.5) & ~STUCK & ~near(BOOTED, 1.0), ~TURNING),
        "an emergency stop passes everything",
    ),
    Policy(
        "disarmed stands still",
        "Half a second after it disarmed no motor turns, but what a fault drives",
        implies(lasted(~ARMED, 0.5) & ~STUCK & ~near(BOOTED, 1.0), ~TURNING),
        "safety is checked twice",
    ),
    Policy(
        "a healthy ship is not accused",
        "Of a ship with which nothing has failed no output is said to be broken",
        implies(HEALTHY, ~said(f".*: ({FAULTY})")),
        "a detector states its false alarms first",
    ),
    Policy(
        "who is accused is broken",
        "An output that is said to be broken is one that fails, or its driver is",
        each("each accused output fails", _accused),
        "never accused by one sensor alone",
    ),
    Policy(
        "a healthy ship has healthy sensors",
        "Of a ship with which nothing has failed no device is said to be sick",
        implies(
            HEALTHY & ARMED,
            flag("no device is sick", lambda trace: trace.spans(
                (t_s, float(not names)) for t_s, names in trace.flight.sick
            )),
        ),
        "a detector states its false alarms first",
    ),
    Policy(
        "a healthy ship knows its height",
        "Height of estimate and truth differ by less than 0.5 m in flight",
        _in_flight(action(HOLD) | ~action(HOLD), _off("height error", "down") >= 0.5),
        "every estimate has bounds",
    ),
    Policy(
        "a healthy ship knows its place",
        "Position of estimate and truth differ by less than 1 m and 3 sigma in flight",
        _in_flight(
            column("agree_position", of="status") >= 0.5,
            computed("position error beyond 3 sigma", _place_off) >= 1.0,
        ),
        "every estimate has bounds",
    ),
    Policy(
        "a healthy ship knows its speed",
        "Velocity of estimate and truth differ by less than 0.4 m/s in flight",
        _in_flight(
            column("agree_position", of="status") >= 0.5,
            _off("velocity error", "v_north", "v_east", "v_down") >= 0.4,
        ),
        "every estimate has bounds",
    ),
    Policy(
        "a healthy ship knows its heading",
        "Heading of estimate and truth differ by less than 0.5 rad in flight",
        _in_flight(action(HOLD) | ~action(HOLD), computed("heading error", _turn_off) >= 0.5),
        "every estimate has bounds",
    ),
    Policy(
        "a healthy ship comes down",
        "120 s after a land that nothing replaces, a healthy ship that could be brought down is",
        implies(
            HEALTHY & HOPEFUL & ~HELD & lasted(ARMED & mode("LAND"), 120.0), once(DOWN, 30.0)
        ),
        "hold, then return, then come down",
    ),
    Policy(
        "a takeoff that is done is up, in truth",
        "As a healthy ship's takeoff is done it is truly above half a metre",
        implies(
            HEALTHY & flag("a takeoff is done", lambda trace: _done(trace, "takeoff")),
            ABOVE >= 0.3,
        ),
        "what is said is so",
    ),
    Policy(
        "a healthy ship keeps its place",
        "In HOLD or LOITER without a command for 30 s a healthy ship is within 3 m of its setpoint",
        implies(
            HEALTHY & ~HELD
            & lasted(ARMED & STEERED & ~ON_GROUND & ~accepted() & ~action(HOLD), 30.0),
            computed("way to the setpoint", lambda trace: np.hypot(
                trace.flight.cycles["set_north"] - trace.held("truth", "north"),
                trace.flight.cycles["set_east"] - trace.held("truth", "east"),
            ), scale=3.0) <= 3.0,
        ),
        "what is said is so",
    ),
)  # fmt: skip
ALL = POLICIES + TRUTH_POLICIES


def _done(trace: Trace, name: str) -> Values:
    times_s = [t_s for t_s, command, _ in trace.ends if command.name == name]
    found = np.zeros(len(trace.t_s))
    found[np.minimum(np.searchsorted(trace.t_s, times_s), len(found) - 1)] = 1.0
    return found
