"""`python -m blimp` is the console script `blimp`."""

from blimp.cli import main

if __name__ == "__main__":
    main()
