"""Write a flight's place, speed and battery to a CSV file, five times a second, until Ctrl-C."""

import csv
import sys
from contextlib import suppress
from typing import TextIO

from ground_station.plain import Ship

COLUMNS = ("t_s", "mode", "north_m", "east_m", "altitude_m", "speed_mps", "battery_v")


def log(ship: Ship, out: TextIO, seconds: float) -> None:
    rows = csv.writer(out)
    rows.writerow(COLUMNS)
    began_s = ship.now_s
    for state in ship.telemetry(hz=5):
        if ship.now_s - began_s > seconds:
            return
        north_m, east_m, _ = state.position_ned_m
        speed_mps = sum(v * v for v in state.velocity_ned_mps) ** 0.5
        numbers = (north_m, east_m, state.altitude_m, speed_mps)
        row = [f"{state.t_s:.2f}", state.mode, *(f"{number:.3f}" for number in numbers)]
        rows.writerow([*row, state.battery_v])
        out.flush()


def main() -> None:
    with (
        Ship.connect() as ship,
        open(sys.argv[1], "w", newline="") as out,
        suppress(KeyboardInterrupt),
    ):
        log(ship, out, seconds=float("inf"))


if __name__ == "__main__":
    main()
