"""What the running flight process has weighed, for `blimp trim`."""

from pathlib import Path

from blimp import airframe as airframes
from blimp.clock import SystemClock
from blimp.config import registry_dir
from blimp.errors import BlimpError
from blimp.link.mailbox import is_served
from blimp.link.paths import ON_BOARD_DIR, RuntimePaths
from blimp.service.airframes.trim import Trim, trim
from blimp.service.compose import flown_airframe
from blimp.service.computer.in_flight import running_snapshot
from blimp.service.truth import only_stack
from ground_station.discover import running_stacks


def trimmed(
    *,
    airframe: str | None,
    runtime_dir: Path | None,
    heaviness_g: float | None,
    target_g: float | None,
) -> Trim:
    """Return the trim of a ship: of what is given, and else of what its flight process says.

    Raises BlimpError if neither tells.
    """
    paths = RuntimePaths(runtime_dir or _where_it_runs())
    paths.check()
    if airframe is None:
        is_served(paths.flight)  # raises if this user may not know
    ship = airframes.load(airframe) if airframe is not None else flown_airframe(paths)
    if ship is None:
        raise BlimpError(f"no flight process runs in {paths.directory}: give --airframe")
    if heaviness_g is None:
        heaviness_g = _weighed_g(paths)
    target_kg = None if target_g is None else 1e-3 * target_g
    return trim(ship, heaviness_kg=1e-3 * heaviness_g, target_kg=target_kg)


def _where_it_runs() -> Path:
    """Return the directory of the units' ship, or of the stack that this user runs."""
    if ON_BOARD_DIR.exists() or not running_stacks(registry_dir()):
        return ON_BOARD_DIR
    return Path(only_stack().runtime_dir)


def _weighed_g(paths: RuntimePaths) -> float:
    snapshot = running_snapshot(paths, clock=SystemClock())
    if snapshot is None:
        raise BlimpError(f"no flight process runs in {paths.directory}: give its --heaviness-g")
    if snapshot.heaviness_kg is None:
        raise BlimpError(
            f"{snapshot.vehicle} has not been weighed yet: fly it level for a minute, as in HOLD"
        )
    return 1e3 * snapshot.heaviness_kg
