"""`python -m blimp` is the console script `blimp`."""

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["safe-state"]:
        from blimp.service.safe_state import main as safe_state

        safe_state(sys.argv[2:])
    else:
        from blimp.cli import main

        main()
