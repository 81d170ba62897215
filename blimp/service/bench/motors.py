"""Motors on the bench: their direction, where they begin to turn, and the range of their ESCs."""

from typing import Any

from blimp.airframe import MAX_DEAD_BAND, Device, Thruster
from blimp.hardware.esc import LIMITS_S, MIN_SPAN_S, EscOptions
from blimp.service.bench.airframe_file import AirframeFile
from blimp.service.bench.person import Person
from blimp.service.bench.ship import BenchShip, do
from blimp.types import Vec3

MOTOR_PERCENT, MOTOR_S = 25.0, 1.0
RESOLUTION_PERCENT = 1.0  # nobody needs a dead band more exactly
TEACH_S = 30.0  # full pulses, while somebody connects the battery
LEARN_S = 5.0  # an ESC wants each end for 3 s
TURNS_PERCENT = 15.0  # with its range right an ESC's motor turns here
_DIRECTIONS = (("forward", "backward"), ("right", "left"), ("down", "up"))


def motors(file: AirframeFile, ship: BenchShip, person: Person) -> None:
    """Each motor's direction."""
    for thruster in file.airframe.thruster:
        look_at(thruster, file, ship, person)


def look_at(thruster: Thruster, file: AirframeFile, ship: BenchShip, person: Person) -> None:
    """Turn a motor, ask which way it pushed, and reverse it in the file if that was wrong."""
    name = thruster.name
    if person.choose(f"Motor {name}: turn it for {MOTOR_S:g} s", "yes", "skip") == "skip":
        return
    _turn(ship, name, MOTOR_PERCENT)
    seen = person.choose(f"Did it push {direction(thruster.axis)}", "yes", "no", "nothing")
    if seen == "nothing":
        person.note(f"{name}: check its wires and its supply")
    elif seen == "no" and not file.reverse_motor(name):
        person.note(f"{name}: swap two of the three wires of its motor")


def direction(axis: Vec3) -> str:
    """Return where a force along `axis` of the body pushes, as a person sees it."""
    largest = max(range(3), key=lambda i: abs(axis[i]))
    return _DIRECTIONS[largest][axis[largest] < 0.0]


def dead_bands(file: AirframeFile, ship: BenchShip, person: Person) -> None:
    """The least throttle at which each motor turns, in both directions."""
    for thruster in file.airframe.thruster:
        question = f"Motor {thruster.name}: find where it begins to turn"
        if person.choose(question, "yes", "skip") == "skip":
            continue
        found = [_begins(ship, person, thruster, 1.0), 0.0]
        if thruster.reverse_thrust_n > 0.0:
            found[1] = _begins(ship, person, thruster, -1.0)
        forward, reverse = found
        if forward is not None and reverse is not None:
            file.set_dead_bands(thruster, forward=forward, reverse=reverse)


def _begins(ship: BenchShip, person: Person, thruster: Thruster, sign: float) -> float | None:
    """Return the least throttle at which it turned from standstill; None if there is none.

    By halving: a yes or no about a motor that stands or turns is what a person is sure of.
    """
    name = thruster.name

    def turns(percent: float) -> bool:
        _turn(ship, name, sign * percent)
        return person.choose(f"{name} at {sign * percent:.1f} %: did it turn", "yes", "no") == "yes"

    stood, turned = 0.0, 100.0 * MAX_DEAD_BAND
    if not turns(turned):
        person.note(
            f"{name} stands at {sign * turned:.0f} %, which is no dead band but a fault of its "
            "supply, wires or bearing: nothing changed"
        )
        return None
    while turned - stood > RESOLUTION_PERCENT:
        middle = 0.5 * (stood + turned)
        if turns(middle):
            turned = middle
        else:
            stood = middle
    if stood == 0.0:
        return 0.0
    if not turns(turned):
        person.note(
            f"{name} turned at {sign * turned:.1f} % before and does not now: its supply or its "
            "bearing is not steady: nothing changed"
        )
        return None
    return round(turned / 100.0, 3)


def esc_range(file: AirframeFile, ship: BenchShip, person: Person) -> None:
    """The pulses at both ends of an ESC's range, in the file and in the ESC alike."""
    for row in file.airframe.device:
        options = _esc_options(row, [thruster.name for thruster in file.airframe.thruster])
        if options is None:
            continue
        low, high = (round(1e6 * s) for s in (options.min_pulse_s, options.max_pulse_s))
        how = person.choose(
            f"ESCs of {row.name}: the file has {low} to {high} µs", "keep", "teach", "enter"
        )
        if how == "enter":
            _enter(row, options, file, person)
        elif how == "teach" and options.reversible:
            person.note("a reversible ESC learns its range from its maker's tool: then enter it")
        elif how == "teach":
            for thruster in file.airframe.thruster:
                if thruster.name in row.outputs.values():
                    _teach(thruster.name, ship, person)


def _esc_options(row: Device, thrusters: list[str]) -> EscOptions | None:
    """Return how a row's ESCs were programmed; None if it has none."""
    if row.chip not in ("esc-pwm", "pca9685") or not set(thrusters) & set(row.outputs.values()):
        return None
    given: dict[str, Any] = row.options if row.chip == "esc-pwm" else row.options.get("esc", {})
    return EscOptions(**{key: given[key] for key in EscOptions.__struct_fields__ if key in given})


def _enter(row: Device, options: EscOptions, file: AirframeFile, person: Person) -> None:
    ends = {}
    for key, what in (("min_pulse_s", "lower"), ("max_pulse_s", "upper")):
        default = round(1e6 * getattr(options, key))
        value = person.number(
            f"The {what} end of its range in µs, as its maker's tool shows it",
            default=default, low=1e6 * LIMITS_S[0], high=1e6 * LIMITS_S[1],
        )  # fmt: skip
        ends[key] = round(1e-6 * value, 7)
    span_s = ends["max_pulse_s"] - ends["min_pulse_s"]
    if span_s < MIN_SPAN_S:
        person.note(
            f"{1e6 * span_s:.0f} µs from end to end, {1e6 * MIN_SPAN_S:.0f} are the least: "
            "nothing changed"
        )
    elif row.chip == "esc-pwm":
        file.set_options(row.name, **ends)
    else:
        file.set_options(row.name, esc={**file.options(row.name).get("esc", {}), **ends})


def _teach(name: str, ship: BenchShip, person: Person) -> None:
    """Have an ESC learn the file's pulses: full ones while it is switched on, then standstill."""
    question = f"{name}: take the battery off its ESC, and leave the computer on"
    if person.choose(question, "done", "stop") == "stop":
        return
    _turn(ship, name, MOTOR_PERCENT)
    if person.choose("Did it turn", "no", "yes") == "yes":
        person.note(f"{name}: its ESC has power at {MOTOR_PERCENT:g} %: nothing was taught")
        return
    ship.command("motor", name=name, percent=100.0, seconds=TEACH_S)
    question = f"Connect it within {TEACH_S - 10.0:g} s, and wait for its beeps: a few seconds"
    heard = person.choose(question, "beeps", "stop")
    do(ship, "motor", name=name, percent=0.0, seconds=0.0)
    if heard == "stop":
        return
    ship.step(LEARN_S)
    _turn(ship, name, TURNS_PERCENT)
    if person.choose(f"{name} at {TURNS_PERCENT:g} %: did it turn", "yes", "no") == "no":
        person.note(
            f"{name} stands at {TURNS_PERCENT:g} %: its ESC has not learnt the range; try again, "
            "or enter what its maker's tool shows"
        )


def _turn(ship: BenchShip, name: str, percent: float) -> None:
    do(ship, "motor", within_s=MOTOR_S + 2.0, name=name, percent=percent, seconds=MOTOR_S)
