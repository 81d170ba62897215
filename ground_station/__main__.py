"""`python -m ground_station` is the console script `ground`."""

from ground_station.cli import main

if __name__ == "__main__":
    main()
