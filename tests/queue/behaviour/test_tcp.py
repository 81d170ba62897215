"""Over TCP and with a password, as to a broker on another machine; and a broker that is full."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from blimp.errors import LinkError
from blimp.queue import TaskApp
from blimp.queue.redis.client import open_redis
from blimp.service.stack.broker import find_server_binary
from blimp.tasks.client import VehicleClient, vehicle_queue
from tests.queue.conftest import DEADLINE_S, wait_until, working

PASSWORD = "let-me-in"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def tcp_url(transport: str) -> Iterator[str]:
    """A server that asks for a password on a TCP port of this machine."""
    directory = Path(tempfile.mkdtemp(prefix="blimp-"))
    port = free_port()
    server = subprocess.Popen(
        [
            *(find_server_binary(), "--bind", "127.0.0.1", "--port", str(port)),
            *("--requirepass", PASSWORD, "--dir", str(directory)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"redis://:{PASSWORD}@127.0.0.1:{port}/1"

    def up() -> bool:
        try:
            with open_redis(url, timeout_s=1.0) as client:
                return bool(client.ping())
        except redis.RedisError:
            assert server.poll() is None, "the server ended"
            return False

    try:
        wait_until(up, "the server does not answer")
        yield url
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(directory)


def test_tasks_and_broadcasts_over_tcp(tcp_url: str) -> None:
    with (
        TaskApp(vehicle_queue("twin"), broker=tcp_url, result_backend=tcp_url) as app,
        VehicleClient(tcp_url, "twin") as client,
    ):
        app.task(name="blimp.ping")(lambda: {"here": True})
        app.on_broadcast("estop")(lambda broadcast: {"killed": True})
        with working(app):
            assert client.ping(timeout_s=DEADLINE_S).result == {"here": True}
            assert client.estop(timeout_s=DEADLINE_S).result == {"killed": True}
            assert app.broker_link.client.keys("celery-task-meta-*")
    with open_redis(tcp_url.replace("/1", "/0"), timeout_s=5.0) as other:
        assert other.dbsize() == 0  # all of it in database 1


def test_a_wrong_password_is_no_link_and_is_not_printed(tcp_url: str) -> None:
    wrong = tcp_url.replace(PASSWORD, "secret-but-wrong")
    with VehicleClient(wrong, "twin", timeout_s=1.0) as client, pytest.raises(LinkError) as caught:
        client.send("arm")
    assert "secret-but-wrong" not in str(caught.value)
    assert "redis://:***@127.0.0.1" in str(caught.value)


def test_a_full_broker_says_so_to_the_sender(url: str, server: redis.Redis) -> None:
    with TaskApp("tests", broker=url, result_backend=url) as app:
        app.task(name="add")(lambda: 1)
        try:
            server.config_set("maxmemory", "1")
            with pytest.raises(LinkError, match="maxmemory"):
                app.send_task("add")
        finally:
            server.config_set("maxmemory", "0")
        with working(app):
            assert app.send_task("add").get(DEADLINE_S) == 1
