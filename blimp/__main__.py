"""`python -m blimp` is the console script `blimp`."""

import os
import signal
import sys


def main() -> None:
    """Run the command line; a Ctrl-C before it can answer for itself ends it quietly with 130."""
    if sys.argv[1:2] == ["safe-state"]:
        from blimp.service.safe_state import main as safe_state

        safe_state(sys.argv[2:])
        return
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # not of a shell that has it ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from blimp.cli import main as run

    try:
        signal.signal(signal.SIGINT, usual)
        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
