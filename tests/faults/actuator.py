"""What the motor moves, as a process of its own that only counts.

`python -m tests.faults.actuator SOCKET FILE`: each packet is the id of a command; it becomes a
line of the file (O_APPEND) before the answer. It has no memory and refuses nothing, so that an
effect that is there twice stands in the file twice, whatever the motor's guard believes, and
whatever is killed.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

MAX_BYTES = 4096  # of a packet


def effects(path: Path) -> Counter[str]:
    """Return how often each command moved something."""
    return Counter(path.read_text().split())


def answer_packets(path: str, answer: Callable[[bytes], bytes]) -> None:
    """Answer what comes to the socket at `path`, for ever."""
    chosen = selectors.DefaultSelector()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        Path(path).unlink(missing_ok=True)  # of one that was killed
        listener.bind(path)
        listener.listen(128)
        chosen.register(listener, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in chosen.select():
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection is listener:
                    chosen.register(listener.accept()[0], selectors.EVENT_READ)
                    continue
                try:
                    if data := connection.recv(MAX_BYTES):
                        connection.send(answer(data))
                        continue
                except OSError:  # the other end was killed, before or after it was heard
                    pass
                chosen.unregister(connection)
                connection.close()


def serve(path: str, file: Path) -> None:
    lines = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def move(id: bytes) -> bytes:
        os.write(lines, id + b"\n")
        return b"moved"

    answer_packets(path, move)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
