"""The console script `ground`: runs the ground station, if the one that Python finds is ours.

`ground_station` is a name that any distribution may take, and pip lets one write into the directory
of another: see docs/decisions/0050-releases.md. A stranger's must not answer for a ship.
"""

import importlib.util
import sys
from pathlib import Path

from blimp.distribution import NAME
from blimp.errors import ConfigError

PACKAGE = "ground_station"


def main() -> None:
    """Run the command line."""
    try:
        check_package()
    except ConfigError as error:
        print(f"ground: {error}", file=sys.stderr)
        sys.exit(2)
    from ground_station.__main__ import main as run

    run()


def check_package() -> None:
    """Raise ConfigError unless `ground_station` is this project's, and lies beside `blimp`."""
    ours = Path(__file__).resolve().parents[1] / PACKAGE
    spec = importlib.util.find_spec(PACKAGE)  # runs nothing of it
    found = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
    if found == ours:
        import ground_station

        if getattr(ground_station, "DISTRIBUTION", None) == NAME:
            return
    raise ConfigError(
        f"the package {PACKAGE} in {found or 'no place'} is not {NAME}'s{_owners()}: "
        f"install {NAME} in an environment of its own"
    )


def _owners() -> str:
    """Return who has installed a package of that name, for the message."""
    from importlib.metadata import packages_distributions

    names = sorted({*packages_distributions().get(PACKAGE, ())} - {NAME})
    return f" but of {', '.join(names)}" if names else ""
