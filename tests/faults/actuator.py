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
from pathlib import Path

MAX_ID_BYTES = 4096


def effects(path: Path) -> Counter[str]:
    """Return how often each command moved something."""
    return Counter(path.read_text().split())


def serve(path: str, file: Path) -> None:
    lines = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    chosen = selectors.DefaultSelector()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
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
                    id = connection.recv(MAX_ID_BYTES)
                    if id:
                        os.write(lines, id + b"\n")
                        connection.send(b"moved")
                        continue
                except OSError:  # the motor was killed meanwhile
                    pass
                chosen.unregister(connection)
                connection.close()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
