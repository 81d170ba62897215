"""`python -m ground_station` is what the console script `ground` runs: see blimp/ground.py."""

import os
import signal
import sys


def main() -> None:
    """Run the command line; a Ctrl-C before it can answer for itself ends it quietly with 130."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # not of a shell that has it ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from ground_station.cli import main as run

    try:
        signal.signal(signal.SIGINT, usual)
        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
