"""Published ships, each flown in lockstep: `python -m benchmarks.builds`.

Writes docs/builds.md and a picture of each flight in docs/pictures/builds. With names it flies
those alone, prints what came of it, and writes nothing.
"""

import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import msgspec

from blimp import airframe as airframes
from blimp.ability import lacking
from blimp.actions import Need
from blimp.service.airframes.check import check
from blimp.ship import Lockstep
from blimp.types import OutcomeState, Vec3

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURES = DOCS / "builds.md", DOCS / "pictures" / "builds"
OURS = (
    "gtmab-eye",
    "gtmab-fit",
    "hobby",
    "rgblimp-fit",
    "twin",
)  # written by this project, or a second fit or fitting out of the same ship
BUILDS = tuple(name for name in airframes.names() if name not in OURS)
SEED = 20
_HOP_M, _ASIDE_M = 1.5, 2.0
_SAMPLE_S = 0.2
_PATIENCE_S = 240.0  # for a landing
_CLIMB_S = 60.0  # by then sticks have lifted a ship to `_HOP_M`
_PUSHED_S = 8.0  # of the forward stick


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """track: time, and the true place north, east, down, five times a second."""

    name: str
    flown: str  # how
    track: tuple[tuple[float, Vec3], ...]
    highest_m: float
    farthest_m: float
    touchdown_mps: float | None
    end: str  # "landed", or what it said at the end

    @property
    def landed(self) -> bool:
        return self.end == "landed"


class _Camera:
    """Steps a ship, and notes where it is."""

    def __init__(self, ship: Lockstep) -> None:
        self.ship = ship
        self.track: list[tuple[float, Vec3]] = []

    def step(self, seconds: float) -> None:
        for _ in range(round(seconds / _SAMPLE_S)):
            self.ship.step(_SAMPLE_S)
            self.track.append((self.ship.now_s, self.ship.truth.position_ned_m))

    def until_done(self, name: str, within_s: float, **arguments: object) -> dict[str, object]:
        """Send a command and step until it is done; return its result, {} if it is not."""
        outcome = self.ship.command(name, check=False, **arguments)
        id, begun_s = outcome.id, self.ship.now_s
        while outcome.state is OutcomeState.IN_PROGRESS and self.ship.now_s - begun_s < within_s:
            self.step(_SAMPLE_S)
            outcome = self.ship.outcome(id)
        return outcome.result if outcome.state is OutcomeState.DONE else {}


def fly(name: str, *, seed: int = SEED) -> Flight:
    """Fly one ship as far as its sensors allow: a hop to a place, or by sticks in ALTHOLD."""
    airframe = airframes.load(name)
    by_hand = Need.POSITION in lacking(airframe)
    with Lockstep(name, seed=seed) as ship:
        camera = _Camera(ship)
        ship.complete("arm", within_s=10.0)
        if by_hand:
            _by_hand(camera)
        else:
            camera.until_done("takeoff", 90.0, altitude_m=_HOP_M)
            camera.until_done("goto", 120.0, north_m=_ASIDE_M, east_m=0.0, altitude_m=_HOP_M)
        result = camera.until_done("land", _PATIENCE_S)
        snapshot = ship.snapshot()
        end = "landed"
        if snapshot.armed or ship.truth.altitude_m > 0.3:
            end = snapshot.failsafe or (snapshot.messages or ("does not land",))[-1]
    touchdown = result.get("touchdown_mps")
    return Flight(
        name=name,
        flown="sticks in ALTHOLD" if by_hand else "takeoff, goto, land",
        track=tuple(camera.track),
        highest_m=max(-place[2] for _, place in camera.track),
        farthest_m=max((place[0] ** 2 + place[1] ** 2) ** 0.5 for _, place in camera.track),
        touchdown_mps=touchdown if isinstance(touchdown, float) else None,
        end=end,
    )


def _by_hand(camera: _Camera) -> None:
    ship = camera.ship
    ship.complete("mode", within_s=5.0, name="ALTHOLD")
    begun_s = ship.now_s
    while ship.snapshot().altitude_m < _HOP_M and ship.now_s - begun_s < _CLIMB_S:
        ship.complete("stick", within_s=5.0, up_percent=100.0, seconds=1.0)
        camera.step(1.0)
    for forward, turn in ((30.0, 0.0), (0.0, 40.0)):
        ship.complete(
            "stick", within_s=5.0, forward_percent=forward, turn_percent=turn, seconds=_PUSHED_S
        )
        camera.step(_PUSHED_S)


# --- the page -------------------------------------------------------------------------------------

_HEAD = """# Twenty published ships

Made by `python -m benchmarks.builds`. Each is an airframe of the package: `blimp demo --airframe
NAME` flies it. Its file says of each number whether its source published it, or how it was
derived, or that it is assumed; a ship with many assumed numbers is a ship of that layout, not a
model of that ship. Each is flown once, simulated, seed 20, in still air, as far as its sensors
allow: `takeoff` to 1.5 m, `goto` 2 m to the north and `land`, or by sticks in ALTHOLD where it
has no position. `make long` flies them with other seeds (`tests/sim/test_builds.py`). The
pictures show height over time and the way over ground.
"""
_WIDE, _HIGH, _GAP = 300, 110, 14  # pixels of a picture
_INK = 'fill="none" stroke="#1f5fa8" stroke-width="1.5"'


def page(flights: dict[str, Flight]) -> str:
    """Return the whole page; a build without a flight is one that cannot hover."""
    return "\n".join(_lines(flights)) + "\n"


def _lines(flights: dict[str, Flight]) -> Iterator[str]:
    yield _HEAD
    yield (
        "| ship | source | published / assumed | position | flown | highest, m | touchdown, m/s |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name in BUILDS:
        airframe, text = airframes.load(name), _text(name)
        said = f"{text.count('ublished')} / {text.count('ssumed')}"
        position = "no" if Need.POSITION in lacking(airframe) else "yes"
        flight = flights.get(name)
        flown = ("cannot hover: replayed only", "-", "-")
        if flight is not None:
            touchdown = "-" if flight.touchdown_mps is None else f"{flight.touchdown_mps:.2f}"
            flown = (f"{flight.flown}: {flight.end}", f"{flight.highest_m:.1f}", touchdown)
        row = (f"`{name}`", airframe.source.replace("|", "/"), said, position, *flown)
        yield f"| {' | '.join(row)} |"
    yield ""
    yield "Published and assumed count words in a file's comments: one may stand for many numbers."
    for name, flight in flights.items():
        yield ""
        yield f"## {name}"
        yield ""
        yield f"{airframes.load(name).description}."
        yield ""
        yield f"![Height and way of {name}: {flight.flown}](pictures/builds/{name}.svg)"


def picture(flight: Flight) -> str:
    """Return a flight as SVG: its height over time, and its way seen from above."""
    begin_s, end_s = flight.track[0][0], flight.track[-1][0]
    top_m, out_m = max(2.0, flight.highest_m), max(2.5, flight.farthest_m)
    middle_x, middle_y, share = _WIDE + _GAP + _HIGH / 2, _HIGH / 2, (_HIGH / 2 - 6) / out_m
    heights = [
        (_WIDE * (t_s - begin_s) / (end_s - begin_s), _HIGH - 6 - (_HIGH - 12) * -place[2] / top_m)
        for t_s, place in flight.track
    ]
    ways = [(middle_x + share * p[1], middle_y - share * p[0]) for _, p in flight.track]
    words = 'font-family="sans-serif" font-size="10" fill="#444"'
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE + _GAP + _HIGH}" height="{_HIGH}">',
        f'<rect width="{_WIDE}" height="{_HIGH}" fill="#f4f6f9"/>',
        f'<rect x="{_WIDE + _GAP}" width="{_HIGH}" height="{_HIGH}" fill="#f4f6f9"/>',
        f'<polyline {_INK} points="{_points(heights)}"/>',
        f'<polyline {_INK} points="{_points(ways)}"/>',
        f'<circle cx="{middle_x:g}" cy="{middle_y:g}" r="2.5" fill="#c33"/>',
        f'<text x="4" y="12" {words}>{top_m:.1f} m, {end_s - begin_s:.0f} s</text>',
        f'<text x="{_WIDE + _GAP + 4}" y="12" {words}>{2 * out_m:.1f} m wide, north up</text>',
        "</svg>",
    )) + "\n"  # fmt: skip


def _points(places: list[tuple[float, float]]) -> str:
    """Return the places that are a pixel or more apart: the files stay small."""
    kept: list[tuple[float, float]] = []
    for place in places:
        if not kept or abs(place[0] - kept[-1][0]) + abs(place[1] - kept[-1][1]) >= 1.0:
            kept.append(place)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in kept)


def _text(name: str) -> str:
    return (resources.files("blimp.airframes") / f"{name}.toml").read_text("utf-8")


def main(names: list[str]) -> None:
    flights = {}
    for name in names or BUILDS:
        if check(airframes.load(name)).ok:
            flight = flights[name] = fly(name)
            print(f"{name:16} {flight.flown}: {flight.end}", flush=True)
    if not names:
        PICTURES.mkdir(parents=True, exist_ok=True)
        for name, flight in flights.items():
            (PICTURES / f"{name}.svg").write_text(picture(flight), "utf-8")
        PAGE.write_text(page(flights), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
