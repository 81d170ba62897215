"""The names that a command line can take: what a ship has, and what a shell completes.

Completion asks nobody: ships are those that run on this machine, sensors, motors and servos those
of the known airframes.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from blimp.config import ground_config
from blimp.errors import BlimpError, LinkError
from blimp.types import Mode
from ground_station.report import DONE, Outcome, value_words
from ground_station.session import Session

Complete = Callable[[str], list[str]]


def list_names(session: Session, kind: str) -> int:
    """Print the ship's sensors, motors or servos, with what each of them says or is sent."""
    with session.telemetry() as reader:
        found = reader.latest()
    if found is None:
        raise LinkError(f"no snapshot of {session.ship.vehicle!r} on its broker")
    snapshot = found[0]
    if kind == "sensor":
        rows = {
            name: [status.value, status.unit if status.healthy else status.error or "no answer"]
            for name, status in snapshot.sensors.items()
        }
    else:
        rows = {
            name: [value, "rad" if kind == "servo" else "of full"]
            for name, value in snapshot.actuators.items()
            if (name in snapshot.servos) == (kind == "servo")
        }
    if session.report.as_json:
        result = {f"{kind}s": {name: value for name, (value, _) in rows.items()}}
        session.report.json(Outcome(id=None, task=f"blimp.{kind}", state="SUCCESS", result=result))
    for name, (value, words) in () if session.report.as_json else rows.items():
        number = "-" if value is None else value_words(value)
        session.report.data(f"{name:14} {number} {words}")
    return DONE


def _parameters() -> Iterable[str]:
    from blimp import airframe as airframes
    from blimp.parameters import parameters

    return [one.path for one in parameters(airframes.load("twin"))]


def _starting(known: Callable[[], Iterable[str]]) -> Complete:
    def complete(incomplete: str) -> list[str]:
        try:
            return [name for name in known() if name.startswith(incomplete)]
        except (BlimpError, OSError):  # a shell shows no errors
            return []

    return complete


def _of_airframes(part: str) -> Callable[[], Iterable[str]]:
    def names() -> Iterable[str]:
        from blimp import airframe as airframes

        ships = [airframes.load(name) for name in airframes.names()]
        return sorted({row.name for ship in ships for row in getattr(ship, part)})

    return names


def _ships() -> Iterable[str]:
    from ground_station.discover import ships_here

    return sorted(ship.vehicle for ship in ships_here(ground_config().registry))


def _airframes() -> Iterable[str]:
    from blimp import airframe as airframes

    return airframes.names()


def _missions() -> Iterable[str]:
    from ground_station.mission_file import ENDINGS, builtin_missions

    files = (path.name for path in Path().iterdir() if path.suffix in ENDINGS)
    return [*builtin_missions(), *sorted(files)]


modes = _starting(lambda: [name.lower() for name in Mode.__members__])
ships = _starting(_ships)
missions = _starting(_missions)
airframe_names = _starting(_airframes)
sensors = _starting(_of_airframes("device"))
motors = _starting(_of_airframes("thruster"))
parameters = _starting(_parameters)
servos = _starting(_of_airframes("servo"))
