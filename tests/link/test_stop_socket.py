"""A stop straight into the flight process: what confirms it, and that it is repeated until then."""

import socket
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import msgspec
import pytest

from blimp.clock import SystemClock
from blimp.link.paths import emergency_socket
from blimp.link.sender import receive
from blimp.link.stop_socket import StopSocket
from blimp.types import Command, Outcome, OutcomeState

DEADLINE_S = 20.0


@pytest.fixture
def emergency(tmp_path: Path) -> Iterator[socket.socket]:
    """The flight process's end, which answers nothing by itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(emergency_socket(tmp_path / "flight.sock")))
        channel.settimeout(DEADLINE_S)
        yield channel


def test_a_stop_is_sent_again_until_its_own_end_is_heard(
    emergency: socket.socket, tmp_path: Path
) -> None:
    heard: SimpleQueue[Outcome] = SimpleQueue()
    with StopSocket(tmp_path / "flight.sock", clock=SystemClock()) as road:
        road.fire(id="ours", source="ground", on_outcome=heard.put)
        data, lost = receive(emergency, 65_536)
        lost.close()
        again, sender = receive(emergency, 65_536)
        command = msgspec.json.decode(data, type=Command)
        assert (command.id, command.name) == ("ours", "estop")
        assert again == data
        for id, state in (
            ("other", OutcomeState.DONE), ("ours", OutcomeState.IN_PROGRESS),
            ("ours", OutcomeState.REFUSED), ("ours", OutcomeState.DONE),
        ):  # fmt: skip
            sender.send(msgspec.json.encode(Outcome(id=id, state=state)))
        first = heard.get(timeout=DEADLINE_S)
        assert (first.id, first.state) == ("ours", OutcomeState.DONE)
        sender.close()
