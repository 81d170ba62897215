"""Runs in the box, on its own Python alone: the socket of the simulated world, which is outside.

What a driver sends goes to the host with the box's time before it, and comes back as it is. Ten
times a second the time goes alone, so that the world goes on if nobody asks.

    box-world.py SOCKET HOST [PORT]         # the port is on the kernel's command line, else
"""

import os
import select
import socket
import struct
import sys
import time

HEAD = struct.Struct("<dI")
TICK_S = 0.1


def port() -> int:
    with open("/proc/cmdline") as line:
        words = dict(word.partition("=")[::2] for word in line.read().split())
    return int(words["blimp.world"])


def connect(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def main(path: str, host: str, port: int) -> None:
    listener = socket.socket(socket.AF_UNIX)
    if os.path.exists(path):
        os.unlink(path)
    listener.bind(path)
    os.chmod(path, 0o660)
    listener.listen(32)
    ticks = connect(host, port)
    pairs: dict[socket.socket, socket.socket] = {}
    inside: set[socket.socket] = set()
    next_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        if now_s >= next_s:
            ticks.sendall(HEAD.pack(now_s, 0))
            next_s = now_s + TICK_S
        ready, _, _ = select.select([listener, *pairs], [], [], max(0.0, next_s - now_s))
        for one in ready:
            if one is listener:
                client, other = listener.accept()[0], connect(host, port)
                pairs[client], pairs[other] = other, client
                inside.add(client)
                continue
            if one not in pairs:
                continue  # it ended with its other half, a moment ago
            try:
                data = one.recv(65536)
                if data and one in inside:
                    data = HEAD.pack(time.monotonic(), len(data)) + data
                pairs[one].sendall(data)
            except OSError:
                data = b""
            if not data:
                other = pairs.pop(one)
                del pairs[other]
                inside -= {one, other}
                one.close()
                other.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else port())
