"""Each face of the ship is asked the same questions; beside each a stop is confirmed in 250 ms.

`python -m tests.contracts.faces` prints the table of both.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.contracts.faces.face import QUESTIONS
from tests.contracts.faces.rig import Rig
from tests.contracts.faces.table import FACES, STOP_S, ask

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("faces")]
UNITS = Path(__file__).parents[2] / "blimp" / "service" / "units"
NO_FACES = {  # what a process listens on that commands no ship, or that is asked elsewhere
    "broker broker.sock": "the queue: tests/queue/behaviour/test_attacks_signed.py",
    "worker worker.sock": "answers of the flight process",
    "relay relay.sock": "answers of the flight process",
    "world world.sock": "the simulated machine",
}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig() as rig:
        yield rig


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", FACES)
def test_a_stop_is_confirmed_beside_it_and_nothing_of_it_arms(
    rig: Rig, name: str, question: str
) -> None:
    with closing(FACES[name](rig)) as face:
        if question in face.without:
            return  # with its reason there
        _, undisturbed_s = ask(rig, face, question)
        assert undisturbed_s <= STOP_S


def test_whatever_a_process_of_a_ship_listens_on_is_a_face_that_is_asked(rig: Rig) -> None:
    """A new listener, or a new unit, has a row of its own here, or a reason why it has none."""
    asked = {one for made in FACES.values() for one in made.hears}
    assert rig.listeners() - asked == NO_FACES.keys()
    assert asked <= rig.listeners(), "a row for what does not listen"
    units = {unit.stem.removeprefix("blimp-") for unit in UNITS.glob("*.service")}
    # The recorder reads the flight process's ring alone, and this ship has no camera.
    assert units - set(rig.processes()) == {"recorder", "camera"}
