"""Wires and propellers: short pushes that the inertial sensor feels, and what a person sees."""

from blimp.errors import BlimpError
from blimp.service.bench.airframe_file import AirframeFile
from blimp.service.bench.motors import look_at
from blimp.service.bench.person import Person
from blimp.service.bench.ship import BenchShip
from blimp.types import OutcomeState

CHECK_S = 200.0  # of ten outputs


def wires(file: AirframeFile, ship: BenchShip, person: Person) -> None:
    """What is wired otherwise than the file says; a person looks where the sensor cannot tell."""
    if file.difference():
        person.note(
            "the ship flies the file as it was before this session: write it, restart the flight "
            "process, and try the wires then"
        )
        return
    question = (
        "Put the propellers on, hang the ship on a string at its gondola, out of wind, or hold it "
        "loosely; every motor gives short pushes for a minute"
    )
    while person.choose(question, "ready", "skip") == "ready":
        found = ship.complete("wires", within_s=CHECK_S)
        if found.state is OutcomeState.DONE:
            person.note("outputs and inertial sensor are wired as the file says")
            return
        if "sure" not in found.result:  # refused before it had pushed, or stopped
            raise BlimpError(f"wires: {found.reason}")
        person.note(found.reason)
        if found.result["sure"]:
            return
        for thruster in file.airframe.thruster:
            if thruster.name in found.result["doubtful"]:
                look_at(thruster, file, ship, person)
