"""What one policy asks of one flight: of each command, of each output, of each word.

Functions that yield give the events that breach, with the time of each; the others a value at each
moment. The table is `policies.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import hypot, nan

from blimp.distribution import needing
from blimp.recording.temporal import Formula, Values, flag, implies, lasted
from blimp.recording.trace import Trace, column, each, state
from blimp.types import Command, Mode, OutcomeState

with needing("plot", "policies need"):
    import numpy as np

SHOWN_S = 0.3  # two statuses, and the cycle in which it changed
ANSWER_S = 0.5  # the mailbox of a flight process is read every cycle
REPORT_S = 1.0  # progress is said five times a second
FLIES = ("takeoff", "goto", "velocity", "trajectory", "return", "stick")
BY_HAND = ("motor", "servo")


def throttle(trace: Trace) -> Values:
    found: Values = np.abs(trace.motors).max(axis=1, initial=0.0)
    return found


def backwards(trace: Trace) -> Values:
    """Return the worst throttle backwards of the thrusters that give nothing so."""
    forward = [n for n, one in enumerate(trace.ship.thruster) if one.reverse_thrust_n <= 0.0]
    found: Values = (-trace.motors[:, forward]).max(axis=1, initial=0.0)
    return found


def beyond(trace: Trace) -> Values:
    """Return how far the worst servo is beyond its angles, rad."""
    low = np.array([one.min_rad for one in trace.ship.servo])
    high = np.array([one.max_rad for one in trace.ship.servo])
    off = np.maximum(low - trace.servos, trace.servos - high)
    found: Values = off.max(axis=1, initial=-1.0)
    return found


def is_finite(*names: str) -> Formula:
    def known(trace: Trace) -> Values:
        found = np.ones(len(trace.t_s), dtype=bool)
        for name in names:
            found &= np.isfinite(trace.flight.cycles[name])
        return found

    return flag(f"{', '.join(names)} are finite", known)


def outputs_finite(trace: Trace) -> Values:
    known = np.isfinite(trace.motors).all(axis=1) & np.isfinite(trace.servos).all(axis=1)
    return known.astype(float)


def set_far(trace: Trace) -> Values:
    found: Values = np.hypot(trace.flight.cycles["set_north"], trace.flight.cycles["set_east"])
    return found


def set_speed(trace: Trace) -> Values:
    cycles = trace.flight.cycles
    found: Values = np.hypot(cycles["set_v_north"], cycles["set_v_east"])
    return found


def has_heading(trace: Trace) -> Values:
    return np.isfinite(trace.flight.cycles["set_yaw"]).astype(float)


def heading_off(trace: Trace) -> Values:
    off = trace.flight.cycles["yaw"] - trace.flight.cycles["set_yaw"]
    found: Values = np.abs((off + np.pi) % (2.0 * np.pi) - np.pi)
    return found


def as_shown(text: str, pairs: Callable[[Trace], Iterable[tuple[str, str]]]) -> Formula:
    """A status tells what the cycle of its time has. pairs: their columns."""

    def judge(trace: Trace) -> Iterator[tuple[float, float]]:
        status, cycles = trace.flight.status, trace.flight.cycles
        places = np.searchsorted(cycles.t_s, status.t_s - 1e-6)
        places = np.minimum(places, len(cycles.t_s) - 1)
        same_time = np.abs(cycles.t_s[places] - status.t_s) < 1e-3
        for shown_name, name in pairs(trace):
            off = np.abs(status[shown_name] - cycles[name][places])
            for t_s in status.t_s[same_time & (off > 2e-3)]:
                yield float(t_s), -1.0

    return each(text, judge)


# --- commands --------------------------------------------------------------------------------


def answered(trace: Trace) -> Iterator[tuple[float, float]]:
    boots = [t_s for t_s, _ in trace.flight.boots[1:]]
    for t_s, _, _, outcome in trace.answers:
        died = any(t_s - ANSWER_S <= boot_s <= t_s + 10.0 for boot_s in boots)
        if outcome is None and not died and t_s + ANSWER_S < trace.t_s[-1]:
            yield t_s, -1.0


def in_time(trace: Trace) -> Iterator[tuple[float, float]]:
    """Yield how much of its time to live each command had left that was carried out first."""
    seen: set[str] = set()
    for t_s, command, _, outcome in trace.answers:
        if outcome is None or command.id in seen:
            continue
        seen.add(command.id)
        is_taken = outcome.state is not OutcomeState.REFUSED and command.name != "estop"
        if not is_taken or command.ttl_s is None:
            continue
        waited_s = 0.0
        if command.sent_s is not None and outcome.accepted_s is not None:
            waited_s = max(0.0, outcome.accepted_s - command.sent_s)
        left_s = command.ttl_s - command.age_s - waited_s
        yield t_s, float(np.clip(left_s / max(command.ttl_s, 1e-3) + 1e-6, -1.0, 1.0))


def acts_once(trace: Trace) -> Iterator[tuple[float, float]]:
    taken: dict[str, float] = {}
    for t_s, command, _, outcome in trace.answers:
        if outcome is None or outcome.accepted_s is None:
            continue
        first_s = taken.setdefault(command.id, outcome.accepted_s)
        if outcome.accepted_s != first_s:
            yield t_s, -1.0


def newest_fence(trace: Trace) -> Iterator[tuple[float, float]]:
    newest: dict[str, int] = {}
    for t_s, command, _, outcome in trace.answers:
        if outcome is None or command.name == "estop":
            continue
        if command.fence < newest.get(command.id, 0) and outcome.state is not OutcomeState.REFUSED:
            yield t_s, -1.0
        newest[command.id] = max(command.fence, newest.get(command.id, 0))


def newest_authority(trace: Trace) -> Iterator[tuple[float, float]]:
    """Yield what was carried out for somebody who has lost control; stops are for everybody."""
    newest, seen = 0, set()
    for t_s, command, _, outcome in trace.answers:
        is_new = command.id not in seen
        seen.add(command.id)
        if outcome is None or outcome.state is OutcomeState.REFUSED or not is_new:
            continue
        moves = command.name in (*FLIES, *BY_HAND, "arm", "disarm", "mode")
        if moves and command.authority < newest:
            yield t_s, -1.0
        if moves:
            newest = max(newest, command.authority)


def own_boot(trace: Trace) -> Iterator[tuple[float, float]]:
    for t_s, command, _, outcome in trace.answers:
        if outcome is None or not command.boot_id or command.name == "estop":
            continue
        is_other = outcome.boot_id and command.boot_id != outcome.boot_id
        if is_other and outcome.state is not OutcomeState.REFUSED:
            yield t_s, -1.0


def ends_once(trace: Trace) -> Iterator[tuple[float, float]]:
    """Yield outcomes that differ from the end that was sent of the same command before.

    What answers a delivery that comes again is none: it may refuse that delivery alone.
    """
    ended: dict[str, OutcomeState] = {}
    seen: set[str] = set()
    answers_again = set()
    for _, command, _, outcome in trace.answers:
        if command.id in seen:
            answers_again.add(id(outcome))
        seen.add(command.id)
    for t_s, message in trace.flight.mail:
        if isinstance(message, Command) or id(message) in answers_again:
            continue
        if message.state is not ended.setdefault(message.id, message.state):
            yield t_s, -1.0
        if message.state is OutcomeState.IN_PROGRESS:
            del ended[message.id]


def progress(trace: Trace) -> Iterator[tuple[float, float]]:
    """Yield commands under way of which nothing was heard for long."""
    last: dict[str, float] = {}
    boots = [t_s for t_s, _ in trace.flight.boots[1:]]
    for t_s, message in trace.flight.mail:
        if isinstance(message, Command):
            continue
        if message.id in last and t_s - last[message.id] > REPORT_S:
            yield t_s, -1.0
        last.pop(message.id, None)
        if message.state is OutcomeState.IN_PROGRESS:
            last[message.id] = t_s
    for t_s in last.values():
        is_old = trace.t_s[-1] - t_s > REPORT_S
        if is_old and not any(boot_s >= t_s - 0.1 for boot_s in boots):
            yield t_s, -1.0


def fractions(trace: Trace) -> Iterator[tuple[float, float]]:
    for t_s, message in trace.flight.mail:
        if not isinstance(message, Command) and not 0.0 <= message.fraction <= 1.0:
            yield t_s, -1.0


def reasons(trace: Trace) -> Iterator[tuple[float, float]]:
    for t_s, message in trace.flight.mail:
        if isinstance(message, Command) or message.state is not OutcomeState.REFUSED:
            continue
        if not message.reason:
            yield t_s, -1.0


def sent_first(trace: Trace) -> Iterator[tuple[float, float]]:
    known: set[str] = set()
    for t_s, message in trace.flight.mail:
        if isinstance(message, Command):
            known.add(message.id)
        elif message.id not in known:
            yield t_s, -1.0


def stops(trace: Trace) -> Iterator[tuple[float, float]]:
    for t_s, command, _, outcome in trace.answers:
        if command.name == "estop" and outcome is not None:
            used = outcome.reason.startswith("id ")  # another command had it
            if outcome.state is OutcomeState.REFUSED and not used:
                yield t_s, -1.0


def arrived(name: str, most_m: float) -> Formula:
    """What is done is so: the estimate is where the command sent the ship."""

    def judge(trace: Trace) -> Iterator[tuple[float, float]]:
        cycles = trace.flight.cycles
        for t_s, command, _ in trace.ends:
            if command.name != name:
                continue
            n = min(int(np.searchsorted(trace.t_s, t_s - 1e-6)), len(trace.t_s) - 1)
            wish = command.arguments
            off_m = abs(wish["altitude_m"] + float(cycles["down"][n]))
            if "north_m" in wish:
                off_m = hypot(
                    off_m,
                    wish["north_m"] - float(cycles["north"][n]),
                    wish["east_m"] - float(cycles["east"][n]),
                )
            yield t_s, float(np.clip(1.0 - off_m / most_m, -1.0, 1.0))

    return each(f"{name} is done within {most_m:g} m of its place", judge)


def ordered(names: Sequence[str], seconds: float, margin_s: float) -> Formula:
    """A command that acts for a time was accepted, and its time is not over."""

    def at(trace: Trace) -> Values:
        found = np.zeros(len(trace.t_s))
        for _, command, t_s, outcome in trace.answers:
            if command.name not in names or outcome is None:
                continue
            if outcome.state is not OutcomeState.REFUSED:
                lasts_s = command.arguments.get("seconds") or seconds
                begin, end = np.searchsorted(trace.t_s, [t_s - 0.05, t_s + lasts_s + margin_s])
                found[begin:end] = 1.0
        return found

    return flag(f"{' or '.join(names)} in force", at)


# --- sensors and the log itself ----------------------------------------------------------------


def sick(trace: Trace, name: str) -> Values:
    return trace.spans((t_s, float(name in names)) for t_s, names in trace.flight.sick)


def output_lost(trace: Trace) -> Values:
    """Whether a device that drives the ship is not healthy."""
    needed = [one.name for one in trace.ship.device if one.outputs and one.required]
    found = [sick(trace, name) for name in needed]
    return np.max(found, axis=0) if found else np.zeros(len(trace.t_s))


def required_sick(trace: Trace) -> Values:
    needed = [one.name for one in trace.ship.device if one.required]
    places = [
        one.name for one in trace.ship.device if one.chip and one.name in ("tag", "gps", "camera")
    ]
    found = [sick(trace, name) for name in needed if name not in places]
    return np.nan_to_num(np.max(found, axis=0)) if found else np.zeros(len(trace.t_s))


def outvoted_alone(quantity: str) -> Formula:
    outvoted = column(f"outvoted_{quantity}", of="status") >= 0.5
    agree = column(f"agree_{quantity}", of="status") >= 0.5
    doubt = state(f"doubt_{quantity}", of="status")
    return implies(lasted(outvoted & ~agree, 2.0), doubt)


def consecutive(trace: Trace) -> Iterator[tuple[float, float]]:
    number = trace.flight.cycles["number"]
    boots = np.array([t_s for t_s, _ in trace.flight.boots[1:]])
    for n in np.flatnonzero(np.diff(number) != 1.0) + 1:
        t_s = float(trace.t_s[n])
        if not len(boots) or np.abs(boots - t_s).min() > 1.0:
            yield t_s, -1.0


def step_s(trace: Trace) -> Values:
    return np.concatenate(([0.0], np.diff(trace.t_s)))


def since_status(trace: Trace) -> Values:
    status = trace.flight.status
    places = np.searchsorted(status.t_s, trace.t_s + 1e-6, side="right") - 1
    return np.where(places < 0, nan, trace.t_s - status.t_s[np.maximum(places, 0)])


def falls(name: str) -> Formula:
    def judge(trace: Trace) -> Iterator[tuple[float, float]]:
        status = trace.flight.status
        boots = {round(t_s, 6) for t_s, _ in trace.flight.boots}
        for n in np.flatnonzero(np.diff(status[name]) < 0.0) + 1:
            if round(float(status.t_s[n]), 6) not in boots:
                yield float(status.t_s[n]), -1.0

    return each(f"{name} never falls", judge)


def failsafes_said(trace: Trace) -> Iterator[tuple[float, float]]:
    """Yield failsafes that no message names. What a ship without power is said is none."""
    for span in trace.flight.failsafes:
        if "no motor turns" in span.name or span.name.startswith("the flight process died"):
            continue
        if span.from_s < 0.15:
            continue  # it was said before the log began
        is_said = any(
            text == span.name[: len(text)] and abs(t_s - span.from_s) <= SHOWN_S
            for t_s, text in trace.flight.said
        )
        if not is_said:
            yield span.from_s, -1.0


def modes_known(trace: Trace) -> Iterator[tuple[float, float]]:
    for span in trace.flight.modes:
        if span.name not in Mode.__members__:
            yield span.from_s, -1.0


def whole(trace: Trace) -> Iterator[tuple[float, float]]:
    if not trace.flight.complete:
        yield float(trace.t_s[-1]), -1.0


def messages(trace: Trace) -> Iterator[tuple[float, float]]:
    for t_s, text in trace.flight.said:
        if not text.strip() or len(text) > 200:
            yield t_s, -1.0


def outside(trace: Trace) -> Values:
    limits, cycles = trace.ship.limits, trace.flight.cycles
    far = np.hypot(cycles["north"], cycles["east"]) - 1.1 * limits.max_distance_m
    return np.maximum(far, -cycles["down"] - 1.1 * limits.max_altitude_m)


def heaviness_share(trace: Trace) -> Values:
    displaced_kg = 1.225 * trace.ship.hull.volume_m3
    found: Values = np.abs(trace.held("status", "heaviness_kg")) / displaced_kg
    return found
