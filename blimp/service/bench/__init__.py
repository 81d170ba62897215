"""`blimp bench`: a person, a ship without propellers until the last step, and its airframe file.

The flight process turns what is asked for, and refuses it unless it was started with --bench.
What the person sees goes into the airframe file, which keeps its comments.
"""

from collections.abc import Callable
from pathlib import Path

from blimp.service.bench.airframe_file import AirframeFile
from blimp.service.bench.person import Person
from blimp.service.bench.ship import BenchShip, check_on_bench, stand_still
from blimp.service.bench.steps import STEPS


def adjust(path: Path, *, ship: BenchShip, person: Person, say: Callable[[str], None]) -> bool:
    """Go through the steps; show what changed, and write it if the person agrees.

    Returns whether the file was written. Raises BlimpError if the ship is not on the bench, or
    is not the one of the file; then nothing has moved. Whatever ends it, the motors stand and the
    file is the old one or the new one.
    """
    file = AirframeFile(path)
    check_on_bench(ship, file.airframe)
    try:
        for name, step in STEPS.items():
            if person.agrees(f"{name}: begin"):
                step(file, ship, person)
    finally:
        stand_still(ship, file.airframe)  # after Ctrl-C and a closed terminal, too
    difference = file.difference()
    if not difference:
        say("nothing to change")
        return False
    say(difference)
    if not person.agrees(f"Write this to {path}"):
        return False
    file.write()
    say(f"{path} written; next: restart the flight process, and go through the bench again")
    return True
