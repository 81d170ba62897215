"""The faces × questions: what each question was answered with beside it, a stop's time."""

from time import monotonic

from tests.contracts.faces.face import QUESTIONS, Face
from tests.contracts.faces.mavlink import Serial, Tcp, Udp
from tests.contracts.faces.page import Http, Page
from tests.contracts.faces.rig import Rig
from tests.contracts.faces.sockets import Sockets
from tests.contracts.faces.transmitter import Transmitter
from tests.stopwatch import Stopwatch

FACES = {one.name: one for one in (Page, Http, Udp, Tcp, Serial, Transmitter, Sockets)}
STOP_S = 0.25  # in which each face confirms a stop, whatever is asked beside it


def ask(rig: Rig, face: Face, question: str) -> tuple[float, float]:
    """Arm the ship; stop it while the question is asked; return how long the stop took.

    That is in seconds, and in those in which nothing on this machine waited.

    Raises AssertionError if the ship is armed by what is asked, TimeoutError without a stop.
    """
    rig.arm()
    with getattr(face, question)():
        watch, began_s = Stopwatch(), monotonic()
        face.stop()
        took_s = monotonic() - began_s, watch.undisturbed_s()
    rig.demand_stopped()
    return took_s


def printed(cells: dict[tuple[str, str], str]) -> str:
    """Return the table of what `ask` found, by face and question."""
    width = max(map(len, FACES)) + 2
    lines = ["".ljust(width) + "".join(name.rjust(12) for name in QUESTIONS)]
    for face in FACES:
        row = (cells.get((face, question), "").rjust(12) for question in QUESTIONS)
        lines.append(face.ljust(width) + "".join(row))
    return "\n".join(lines)
