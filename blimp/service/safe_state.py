"""`blimp safe-state`: the outputs of a ship whose flight process has ended.

`python -m blimp safe-state` comes here without the command line's library, which takes as long
to load as all the rest: motors may turn until this is done.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from blimp.clock import SystemClock
from blimp.errors import BlimpError
from blimp.link.paths import ON_BOARD_DIR, RuntimePaths
from blimp.service.compose import flown_airframe, make_safe
from blimp.service.computer.configuration import read_configuration

ABOUT = """Drive every output to its safe state, then end. For systemd's ExecStopPost.

It is refused while a flight process runs, or may run and cannot be asked. It is not refused when
systemd calls it, because systemd has ended that process.
It uses the airframe of the killed flight process; if there was none, that of --airframe or of the
configuration."""

_AFTER_THE_UNIT = "SERVICE_RESULT"  # systemd.exec(5): set for ExecStopPost, and for nothing else


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the outputs safe; what is not known to be safe is one line, and status 1."""
    parser = argparse.ArgumentParser(
        prog="blimp safe-state",
        description=ABOUT,
        epilog="Example: blimp safe-state --airframe twin",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, help="a configuration file")
    parser.add_argument("--airframe", help="a known airframe, or the path of a .toml file")
    parser.add_argument("--runtime-dir", type=Path, default=ON_BOARD_DIR)
    parser.add_argument("--sim", action="store_true", help="of the simulated world")
    parser.add_argument(
        "--force", action="store_true",
        help="also of a ship that cannot be asked; asks on a terminal",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options = parser.parse_args(arguments)
    try:
        if _AFTER_THE_UNIT not in os.environ:
            from blimp.service.computer.in_flight import demand_on_ground

            # Beside a flight process that runs, the drivers would sleep, and it would not know.
            demand_on_ground(
                RuntimePaths(options.runtime_dir), clock=SystemClock(),
                force=options.force, yes=options.yes, ended=True,
            )  # fmt: skip
        airframe = options.airframe
        # A configuration that somebody broke meanwhile must not keep the motors running.
        asked = options.config is not None and airframe is None
        if asked and flown_airframe(RuntimePaths(options.runtime_dir)) is None:
            airframe = read_configuration(options.config).airframe
        unreached = make_safe(
            airframe=airframe or "twin", runtime_dir=options.runtime_dir, simulated=options.sim
        )
    except BlimpError as error:
        sys.exit(f"blimp: {error}")
    if unreached:
        sys.exit(f"blimp: not known to be safe: {'; '.join(unreached)}")
