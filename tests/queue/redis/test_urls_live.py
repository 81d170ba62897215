"""Every kind of broker URL, to a real server: TCP, TLS, and a sentinel that changes the master."""

import contextlib
import select
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from blimp.errors import LinkError
from blimp.queue import TaskApp
from blimp.service.stack.broker import find_server_binary
from blimp.tasks.client import VehicleClient
from tests.queue.behaviour.test_tcp import free_port
from tests.queue.conftest import DEADLINE_S, wait_until, working

MASTER = "flight"


class Servers:
    """Server processes on TCP ports, that end with the test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, *options: str) -> int:
        port = free_port()
        own = self._directory / str(port)
        own.mkdir()
        command = [str(find_server_binary()), "--bind", "127.0.0.1", "--dir", str(own)]
        return self._run([*command, "--port", str(port), *options], port)

    def start_sentinel(self, master: int) -> int:
        port = free_port()
        file = self._directory / "sentinel.conf"
        file.write_text(
            f"bind 127.0.0.1\nport {port}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {master} 1\n"
            f"sentinel down-after-milliseconds {MASTER} 300\n"
            f"sentinel failover-timeout {MASTER} 1000\n"
        )
        return self._run([str(find_server_binary()), str(file), "--sentinel"], port)

    def kill(self, port: int) -> None:
        self._processes[port].kill()
        self._processes.pop(port).wait()

    def close(self) -> None:
        for port in list(self._processes):
            self.kill(port)

    def _run(self, command: list[str], port: int) -> int:
        self._processes[port] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def up() -> bool:
            with contextlib.suppress(redis.RedisError), redis.Redis(port=port) as client:
                return bool(client.ping())
            assert self._processes[port].poll() is None, "the server ended"
            return False

        wait_until(up, "the server does not answer")
        return port


@pytest.fixture
def servers() -> Iterator[Servers]:
    directory = Path(tempfile.mkdtemp(prefix="blimp-"))
    servers = Servers(directory)
    try:
        yield servers
    finally:
        servers.close()
        shutil.rmtree(directory)


def use(url: str | list[str]) -> None:
    """Have a task run, a broadcast heard and a result read."""
    with TaskApp("blimp.twin", broker=url, result_backend=url) as app:
        app.task(name="blimp.ping")(lambda: "pong")
        app.on_broadcast("estop")(lambda _: {})
        assert app.transport == "streams"
        assert app.completes_at_once
        with working(app), VehicleClient(url, "twin") as ground:
            assert ground.ping(timeout_s=DEADLINE_S).state == "SUCCESS"
            assert ground.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
            assert app.send_task("blimp.ping", countdown=0.1).get(DEADLINE_S) == "pong"


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_tcp(servers: Servers, scheme: str) -> None:
    use(f"{scheme}://127.0.0.1:{servers.start()}/1")


def test_a_sentinel_names_the_master_and_the_next_one(servers: Servers) -> None:
    master = servers.start()
    servers.start("--replicaof", "127.0.0.1", str(master))
    sentinel = servers.start_sentinel(master)
    url = f"sentinel://127.0.0.1:{sentinel}/0?master_name={MASTER}"
    use(url)
    with redis.Redis(port=sentinel) as asked:
        wait_until(lambda: asked.sentinel_slaves(MASTER), "the replica is not known")

        with TaskApp("tests", broker=url, result_backend=url, timeout_s=0.5) as app:
            app.task(name="add")(lambda a, b: a + b)
            with working(app):
                assert app.send_task("add", (1, 2)).get(DEADLINE_S) == 3
                servers.kill(master)

                def goes_on() -> bool:
                    with contextlib.suppress(LinkError, TimeoutError):
                        return bool(app.send_task("add", (3, 4)).get(1.0) == 7)
                    return False

                wait_until(goes_on, "it did not follow to the new master")


def test_sentinels_in_a_list_are_asked_one_after_the_other(servers: Servers) -> None:
    sentinel = servers.start_sentinel(servers.start())
    urls = [
        f"sentinel://127.0.0.1:{port}/0?master_name={MASTER}" for port in (free_port(), sentinel)
    ]
    use(urls)


def test_tls(servers: Servers, tmp_path: Path) -> None:
    port = servers.start()
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-newkey", "ec"),
            *("-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with encrypting(context, port) as outside:
        use(f"rediss://localhost:{outside}/0?ssl_ca_certs={certificate}")
        use(f"valkeys://localhost:{outside}/0?ssl_ca_certs={certificate}")
        stranger = TaskApp("tests", broker=f"rediss://localhost:{outside}/0", timeout_s=0.5)
        with stranger, pytest.raises(LinkError, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.send_task("add")


@contextlib.contextmanager
def encrypting(context: ssl.SSLContext, port: int) -> Iterator[int]:
    """Put TLS in front of the server on `port`: the one that tests have is built without."""
    listener = socket.create_server(("127.0.0.1", 0))
    sockets: list[socket.socket] = [listener]

    def pump(outer: ssl.SSLSocket, inner: socket.socket) -> None:
        """Carry both directions in one thread: two may not use one connection of OpenSSL."""
        with contextlib.suppress(OSError):
            while True:
                ready = [outer] if outer.pending() else select.select([outer, inner], [], [])[0]
                for one in ready:
                    data = one.recv(65536)
                    if not data:
                        raise ConnectionAbortedError
                    (inner if one is outer else outer).sendall(data)
        for one in (outer, inner):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = listener.accept()
                threading.Thread(target=greet, args=(raw,), daemon=True).start()

    def greet(raw: socket.socket) -> None:
        try:
            outer = context.wrap_socket(raw, server_side=True)
        except OSError:
            raw.close()
            return
        inner = socket.create_connection(("127.0.0.1", port))
        sockets.extend((outer, inner))
        pump(outer, inner)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
