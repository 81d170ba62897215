"""Searches for a breach of a policy: `python -m benchmarks.fuzz --flights N --seed S --jobs N`.

A case is a ship (weight, drag, thrust, parameters), a wind, and what happens in it: commands,
with what a queue does to them, failures, gusts, a cut link. Each flight is asked every policy, of
its log and of the truth. A formula says by how much it holds: the case that came nearest to a
breach of a policy is changed a little and flown again, as PGFuzz does (Kim et al., NDSS 2021); one
in three is drawn afresh. The search depends on --seed alone, whatever --jobs is.

One JSON line a breach, with the line that flies it again; then how near each policy came.
Simulated, in Lockstep. Exit status: 1 if a policy was breached.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pool
from random import Random
from typing import Any

import msgspec

from benchmarks.campaign import (
    Draw,
    again,
    choose_ships,
    draw_plant,
    load_ship,
    make_parser,
    plant_of,
    together,
)
from benchmarks.policies import ALL, Witness
from blimp.airframe import Airframe
from blimp.recording.policies import margins
from blimp.service.airframes.check import check
from blimp.ship import oracle
from blimp.ship.failures import BY_NAME, FAILURES
from blimp.ship.lockstep import Lockstep
from blimp.ship.matrix import FLY_AWAY_M, TOUCHDOWN_MPS
from blimp.types import Command, Mode

GENERATION = 8  # cases that are flown before the next ones are chosen
FRESH = 0.34  # of them drawn afresh
SETTLED_S = 15.0  # a ship that is held passes its arming checks within it
LASTS_S = 40.0  # in which all of a case happens
AFTER_S = 20.0  # and in which its end is seen


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happens. what: "command", "failure", "link", "gusts", "hold" or "crash".

    name: of the command or failure. fields: of the command beside them: its age, fence, authority.
    """

    at_s: float
    what: str
    name: str = ""
    arguments: dict[str, Any] = {}
    fields: dict[str, Any] = {}


class Case(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One flight. parameters: factors of numbers of the airframe's limits."""

    draw: Draw
    events: tuple[Event, ...]
    parameters: dict[str, float] = {}


class Flown(msgspec.Struct, frozen=True, kw_only=True):
    """margins: how near each policy came, and when."""

    case: Case
    margins: dict[str, tuple[float, float]]
    hopeless: str = ""

    @property
    def breaches(self) -> dict[str, float]:
        return {name: at_s for name, (margin, at_s) in self.margins.items() if margin < 0.0}


def _share(chance: Random) -> float:
    return round(chance.choice((-100.0, -40.0, 0.0, 40.0, 100.0)) * chance.random(), 1)


def _place(chance: Random, ship: Airframe) -> dict[str, Any]:
    side_m = min(8.0, 0.3 * ship.limits.max_distance_m)
    place = {
        "north_m": round(chance.uniform(-side_m, side_m), 2),
        "east_m": round(chance.uniform(-side_m, side_m), 2),
        "altitude_m": round(chance.uniform(0.5, 4.0), 2),
    }
    if chance.random() < 0.3:
        place["yaw_deg"] = round(chance.uniform(-180.0, 180.0))
    return place


def _velocity(chance: Random, ship: Airframe) -> dict[str, Any]:
    most_mps = 0.7 * ship.limits.speed_mps
    return {
        "north_mps": round(chance.uniform(-most_mps, most_mps), 2),
        "east_mps": round(chance.uniform(-most_mps, most_mps) * 0.5, 2),
        "up_mps": round(chance.uniform(-1.0, 1.0) * 0.8 * ship.limits.descent_mps, 2),
        "seconds": round(chance.uniform(1.0, 15.0), 1),
    }


COMMANDS: Mapping[str, Callable[[Random, Airframe], dict[str, Any]]] = {
    "arm": lambda _c, _s: {},
    "disarm": lambda _c, _s: {},
    "takeoff": lambda chance, _: {"altitude_m": round(chance.uniform(0.5, 4.0), 2)},
    "goto": _place,
    "velocity": _velocity,
    "mode": lambda chance, _: {"name": chance.choice(list(Mode)).name},
    "hold": lambda _c, _s: {},
    "land": lambda _c, _s: {},
    "return": lambda _c, _s: {},
    "estop": lambda _c, _s: {},
    "stick": lambda chance, _: {
        "forward_percent": _share(chance), "up_percent": _share(chance),
        "turn_percent": _share(chance), "seconds": round(chance.uniform(0.2, 5.0), 1),
    },
    "motor": lambda chance, ship: {
        "name": chance.choice(ship.thruster_names), "percent": _share(chance),
        "seconds": round(chance.uniform(0.2, 5.0), 1),
    },
    "servo": lambda chance, ship: {
        "name": chance.choice(ship.servo_names or ("none",)), "deg": chance.randrange(-90, 90),
    },
    "geofence": lambda chance, _: {"ceiling_m": round(chance.uniform(2.0, 9.0), 1)},
}  # fmt: skip
# What a queue and its senders do to a command: one in three has something of this.
QUEUED: tuple[dict[str, Any], ...] = (
    {"age_s": 0.5, "ttl_s": 5.0},
    {"age_s": 9.0, "ttl_s": 5.0},
    {"age_s": -3.0, "ttl_s": 5.0},
    {"boot_id": "another"},
    {"authority": 7},
    {"authority": 3},
    {"id": "again", "fence": 1},
    {"id": "again", "fence": 2},
    {"id": "again", "fence": 3},
)
LIMITS = ("speed_mps", "climb_mps", "descent_mps", "acceleration_mps2", "yaw_rate_radps")


def draw_case(chance: Random, ships: Sequence[str]) -> Case:
    """Draw a ship that takes off, and what happens to it then."""
    draw = draw_plant(
        chance, chance.choice(ships), wind_mps=0.5,
        drag_scale=2.0 ** chance.uniform(-1.0, 1.0), thrust_scale=chance.uniform(0.85, 1.2),
    )  # fmt: skip
    ship = load_ship(draw.airframe)
    begin = (
        Event(at_s=0.0, what="command", name="arm"),
        Event(at_s=0.5, what="command", name="takeoff", arguments={"altitude_m": 2.0}),
    )
    more = tuple(draw_event(chance, ship) for _ in range(chance.randrange(1, 7)))
    return Case(draw=draw, events=_in_order((*begin, *more)))


def draw_event(chance: Random, ship: Airframe) -> Event:
    at_s = round(chance.uniform(0.2, LASTS_S), 2)
    kind = chance.random()
    if kind < 0.72:
        name = chance.choice(list(COMMANDS))
        fields = chance.choice(QUEUED) if chance.random() < 0.33 else {}
        return Event(
            at_s=at_s, what="command", name=name, arguments=COMMANDS[name](chance, ship),
            fields=fields,
        )  # fmt: skip
    if kind < 0.86:
        fitting = [one.name for one in FAILURES if one.fits(ship) and not one.transmitter]
        return Event(at_s=at_s, what="failure", name=chance.choice(fitting))
    what = chance.choice(("link", "link", "gusts", "hold"))
    return Event(at_s=at_s, what=what, arguments={"value": round(chance.uniform(0.0, 0.3), 2)})


def change(case: Case, chance: Random) -> Case:
    """Return a case with one thing changed."""
    ship, events = load_ship(case.draw.airframe), list(case.events)
    at = chance.randrange(len(events))
    kind = chance.randrange(7)
    if kind == 0:
        later_s = round(max(0.0, events[at].at_s + chance.gauss(0.0, 5.0)), 2)
        events[at] = msgspec.structs.replace(events[at], at_s=min(later_s, LASTS_S))
    elif kind == 1 and events[at].name in COMMANDS:
        arguments = COMMANDS[events[at].name](chance, ship)
        events[at] = msgspec.structs.replace(events[at], arguments=arguments)
    elif kind == 2 and len(events) > 2:
        del events[at]
    elif kind == 3:
        limit = chance.choice(LIMITS)
        factors = {**case.parameters, limit: round(2.0 ** chance.uniform(-1.0, 0.5), 2)}
        return msgspec.structs.replace(case, parameters=factors)
    elif kind == 4:
        draw = msgspec.structs.replace(case.draw, seed=chance.randrange(1_000, 1_000_000))
        return msgspec.structs.replace(case, draw=draw)
    elif kind == 5:
        load = case.draw.load + chance.gauss(0.0, 0.01)
        draw = msgspec.structs.replace(
            case.draw, load=load, wind_mps=case.draw.wind_mps * chance.uniform(0.5, 1.2)
        )
        if check(plant_of(ship, draw)).ok:
            return msgspec.structs.replace(case, draw=draw)
    else:
        events.append(draw_event(chance, ship))
    return msgspec.structs.replace(case, events=_in_order(events))


def _in_order(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda one: one.at_s))


def with_parameters(ship: Airframe, factors: Mapping[str, float]) -> Airframe:
    limits = ship.limits
    changed = {name: factor * getattr(limits, name) for name, factor in factors.items()}
    return msgspec.structs.replace(ship, limits=msgspec.structs.replace(limits, **changed))


def fly(case: Case) -> Flown:
    """Fly a case, and return how near it came to a breach of each policy."""
    draw, witness = case.draw, Witness()
    ship = with_parameters(load_ship(draw.airframe), case.parameters)
    plant = with_parameters(plant_of(load_ship(draw.airframe), draw), case.parameters)
    with Lockstep(
        ship, seed=draw.seed, wind_mps=draw.wind_mps, plant=plant, held=True, log=witness.keep
    ) as flight:
        witness.watch(flight)
        until_s = flight.now_s + SETTLED_S
        while flight.problems() and flight.now_s < until_s:
            flight.step(0.5)
        flight.hold(False)
        began_s = flight.now_s
        for number, event in enumerate(case.events):
            if event.at_s > flight.now_s - began_s + 0.005:
                flight.step(event.at_s - (flight.now_s - began_s))
            happen(flight, event, number, witness, draw)
        flight.step(AFTER_S)
        trace = witness.trace()
        found = {
            policy.name: (round(least.margin, 5), round(least.at_s, 2))
            for policy, least in margins(trace, ALL)
        }
    return Flown(case=case, margins=found, hopeless=witness.hopeless)


def happen(flight: Lockstep, event: Event, number: int, witness: Witness, draw: Draw) -> None:
    """Let an event happen now."""
    if event.what == "command":
        fields = {"id": f"{event.name}-{number}", **event.fields}
        flight.deliver(Command(name=event.name, arguments=event.arguments, **fields))
    elif event.what == "failure":
        failure = together((*witness.failure.name.split("+"), event.name))
        bounds = oracle.bounds(flight, failure, wind_mps=draw.wind_mps)
        witness.hopeless = witness.hopeless or bounds.hopeless(
            far_m=FLY_AWAY_M, hard_mps=TOUCHDOWN_MPS, seconds=300.0
        )
        witness.failure = failure
        BY_NAME[event.name].happen(flight)
    elif event.what == "link":
        flight.link_up = not flight.link_up
    elif event.what == "gusts":
        flight.begin_gusts(event.arguments["value"])
    else:
        flight.hold(not flight.world.physics.held)


def _at(
    at_s: float, command: str, fields: dict[str, Any] | None = None, /, **arguments: Any
) -> Event:
    return Event(at_s=at_s, what="command", name=command, arguments=arguments, fields=fields or {})


def _tour(airframe: str, *events: Event, load: float = 0.0) -> Case:
    up = (_at(0.0, "arm"), _at(0.5, "takeoff", altitude_m=1.5))
    draw = Draw(airframe=airframe, seed=77, load=load, wind_mps=0.1)
    return Case(draw=draw, events=_in_order((*up, *events)))


SLOW = {"north_mps": 0.1, "east_mps": 0.0, "up_mps": 0.0, "seconds": 2.0}
# What a search begins with: short flights that have every kind of event, and keep every policy.
TOURS: Mapping[str, Case] = {
    "what a queue does to commands": _tour(
        "twin",
        _at(8.0, "goto", {"id": "a", "fence": 2}, north_m=2.0, east_m=0.0, altitude_m=1.5),
        _at(8.5, "goto", {"id": "a", "fence": 2}, north_m=2.0, east_m=0.0, altitude_m=1.5),
        _at(9.0, "goto", {"id": "a", "fence": 1}, north_m=2.0, east_m=0.0, altitude_m=1.5),
        _at(9.5, "hold", {"age_s": 9.0, "ttl_s": 5.0}),
        _at(10.0, "hold", {"boot_id": "another"}),
        _at(10.5, "hold", {"age_s": -3.0, "ttl_s": 5.0}),
        _at(
            11.0, "velocity", {"authority": 7}, north_mps=0.1, east_mps=0.0, up_mps=0.0, seconds=2.0
        ),
        _at(
            12.0, "velocity", {"authority": 3}, north_mps=0.1, east_mps=0.0, up_mps=0.0, seconds=2.0
        ),
        _at(15.0, "goto", north_m=9000.0, east_m=0.0, altitude_m=1.5),
        _at(16.0, "disarm", {"authority": 8}),
        _at(18.0, "estop"),
        _at(18.2, "goto", north_m=1.0, east_m=0.0, altitude_m=1.5),
        _at(30.0, "arm", {"authority": 9}),
        _at(31.0, "disarm", {"authority": 9}),
    ),
    "a link that stays lost": _tour("gtmab", Event(at_s=8.0, what="link"), _at(75.0, "hold")),
    "a battery that ends": _tour(
        "twin",
        Event(at_s=6.0, what="failure", name="battery-low"),
        _at(14.0, "goto", north_m=2.0, east_m=0.0, altitude_m=1.5),
        Event(at_s=18.0, what="failure", name="battery-empty"),
    ),
    "a person at the sticks": _tour(
        "twin",
        _at(8.0, "mode", name="STABILIZE"),
        _at(8.5, "stick", forward_percent=40.0, turn_percent=30.0, seconds=2.0),
        _at(12.0, "mode", name="ALTHOLD"),
        _at(12.5, "stick", up_percent=60.0, seconds=1.5),
        _at(16.0, "mode", name="MANUAL"),
        _at(16.2, "motor", name="left", percent=40.0, seconds=1.0),
        _at(16.3, "motor", name="right", percent=40.0, seconds=1.0),
        _at(18.5, "mode", name="HOLD"),
        _at(22.0, "land"),
    ),
    "no position, then no height": _tour(
        "twin",
        Event(at_s=7.0, what="failure", name="position-dead"),
        Event(at_s=20.0, what="failure", name="height-dead"),
    ),
    "a servo chip that dies": _tour("twin", Event(at_s=8.0, what="failure", name="servos-dead")),
    "a light ship that lands": _tour("gtmab", _at(20.0, "land"), load=-0.008),
    "a failsafe on the pad": Case(
        draw=Draw(airframe="twin", seed=78, wind_mps=0.1),
        events=(
            Event(at_s=0.0, what="link"),
            _at(0.5, "arm"),
            _at(1.0, "takeoff", {"age_s": 9.0, "ttl_s": 5.0}, altitude_m=1.5),
            _at(6.0, "takeoff", altitude_m=1.5),
            Event(at_s=16.0, what="link"),
            Event(at_s=18.0, what="failure", name="battery-low"),
            _at(28.0, "disarm"),
            _at(30.0, "arm"),
        ),
    ),
}


class Search:
    """Chooses what is flown next; keeps the case that came nearest to a breach of each policy."""

    def __init__(self, *, seed: int, ships: Sequence[str], only: str = "") -> None:
        self._chance, self._ships, self._only = Random(f"fuzz:{seed}"), ships, only
        self.nearest: dict[str, tuple[float, Case]] = {}
        self._begun = False

    def cases(self) -> list[Case]:
        """Return the next generation; the first one are the tours of these ships."""
        if not self._begun:
            self._begun = True
            if tours := [one for one in TOURS.values() if one.draw.airframe in self._ships]:
                return tours
        aims = [
            case for name, (margin, case) in sorted(self.nearest.items())
            if 0.0 < margin < 1.0 and self._only in name
        ]  # fmt: skip
        chance, found = self._chance, []
        for _ in range(GENERATION):
            if aims and chance.random() > FRESH:
                found.append(change(chance.choice(aims), chance))
            else:
                found.append(draw_case(chance, self._ships))
        return found

    def take(self, flown: Flown) -> None:
        for name, (margin, _) in flown.margins.items():
            if margin < self.nearest.get(name, (2.0, flown.case))[0]:
                self.nearest[name] = margin, flown.case


def search(
    *, flights: int, seed: int, ships: Sequence[str], jobs: int = 1, only: str = ""
) -> Iterator[Flown]:
    """Fly that many cases, and yield each."""
    hunt = Search(seed=seed, ships=ships, only=only)
    with Pool(jobs) as pool:
        for _ in range(0, flights, GENERATION):
            for flown in pool.imap(fly, hunt.cases()):
                hunt.take(flown)
                yield flown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser("benchmarks.fuzz", __doc__, flights=64)
    parser.add_argument("--policy", default="", help="aim at those whose name has this")
    parser.add_argument("--again", metavar="JSON", help="fly this case alone")
    options = parser.parse_args(arguments)
    if options.again:
        flights: Iterator[Flown] = map(fly, [msgspec.json.decode(options.again, type=Case)])
    else:
        ships = choose_ships(options.airframes, options.random_ships, seed=options.seed)
        flights = search(
            flights=options.flights, seed=options.seed, ships=ships, jobs=options.jobs,
            only=options.policy,
        )  # fmt: skip
    least: dict[str, float] = {}
    count, known = 0, set()
    for flown in flights:
        count += 1
        for name, (margin, _) in flown.margins.items():
            least[name] = min(margin, least.get(name, 2.0))
        for name, at_s in flown.breaches.items():
            line = {"policy": name, "at_s": at_s, "hopeless": flown.hopeless, "simulated": True}
            print(json.dumps(line | {"case": msgspec.to_builtins(flown.case)}), flush=True)
            if name not in known:
                print(
                    f"{name}, {at_s} s\n  {again('python -m benchmarks.fuzz', flown.case)}",
                    file=sys.stderr,
                    flush=True,
                )
            known.add(name)
    for name, margin in sorted(least.items(), key=lambda one: one[1]):
        if margin < 1.0:
            print(f"{margin:8.3f}  {name}", file=sys.stderr)
    print(f"{count} flights, {len(known)} of {len(least)} policies breached", file=sys.stderr)
    return int(bool(known))


if __name__ == "__main__":
    sys.exit(main())
