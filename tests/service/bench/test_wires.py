"""The wires on the bench: a ship on a string, a person, and what the file becomes."""

from functools import partial
from pathlib import Path

import pytest

from benchmarks.wires import backward, bare
from blimp import airframe
from blimp.service.computer.initialise import Question
from blimp.ship import Lockstep
from blimp.sim.grip import on_string
from tests.service.bench.bench import Script, With, run

pytestmark = pytest.mark.slow

TWIN = airframe.load("twin")


def bench(plant: airframe.Airframe, *, held: bool) -> Lockstep:
    ship = Lockstep(bare(TWIN), plant=bare(plant), bench=True, rate_hz=50.0)
    physics = ship.world.physics
    physics.held = held
    if not held:
        physics.place(position_ned_m=(0.0, 0.0, -1.5))
        physics.grip = on_string(plant, physics.state, seed=4)
    return ship


def unchecked(ship: Lockstep) -> With:
    """A refusal is an outcome, as through the mailbox."""
    return With(ship, complete=partial(ship.complete, check=False))


def test_the_bench_says_what_is_wired_otherwise_and_writes_nothing(path: Path) -> None:
    before = path.read_bytes()
    with bench(backward(TWIN, "tail"), held=False) as ship:
        script = Script("Wires")
        assert run(path, unchecked(ship), script)[0] is False
    assert script.was_asked("tail seems reversed: exchange the two wires")
    assert path.read_bytes() == before


def test_a_person_is_asked_where_the_sensor_cannot_tell(path: Path) -> None:
    """Held so that nothing moves: the motors in doubt turn one by one, and the file follows."""
    with bench(TWIN, held=True) as ship:
        script = Script("Wires", Did_it_push="no")
        answers = iter(["ready", "skip"])
        plain = script.answer

        def answer(question: Question) -> str:
            return next(answers) if question.text.startswith("Put the") else plain(question)

        script.answer = answer  # type: ignore[method-assign]
        run(path, unchecked(ship), script)
    assert script.was_asked("not sure")
    assert script.was_asked("Motor left: turn it")


def test_a_file_that_was_changed_in_this_session_is_flown_first(path: Path) -> None:
    with bench(TWIN, held=True) as ship:
        script = Script("Motors", "Wires", Did_it_push_right="no")
        run(path, ship, script)
    assert script.was_asked("restart the flight process, and try the wires then")
    assert not script.was_asked("Put the propellers on")
