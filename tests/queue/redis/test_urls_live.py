"""Every kind of broker URL, to a real server: TCP, TLS, and a sentinel that names the master."""

from pathlib import Path

import pytest

from blimp.errors import LinkError
from blimp.queue import TaskApp
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S, working
from tests.redis_cluster import running_sentinels
from tests.redis_server import RedisServer, free_port, server_with_tls


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
def test_tcp(tmp_path: Path, scheme: str) -> None:
    with RedisServer(tmp_path) as server:
        use(f"{scheme}://127.0.0.1:{server.port}/1")


def test_sentinels_in_a_list_are_asked_one_after_the_other(tmp_path: Path) -> None:
    with running_sentinels(tmp_path, sentinels=1, replicas=0) as watched:
        nobody = f"sentinel://127.0.0.1:{free_port()}/{watched.SERVICE}/0"
        use([nobody, watched.url])


def test_tls(tmp_path: Path) -> None:
    with server_with_tls(tmp_path) as (server, certificate):
        at = f"127.0.0.1:{server.port}/0"
        use(f"rediss://{at}?ssl_ca_certs={certificate}")
        use(f"valkeys://{at}?ssl_ca_certs={certificate}")
        stranger = TaskApp("tests", broker=f"rediss://{at}", timeout_s=0.5)
        with stranger, pytest.raises(LinkError, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.send_task("add")
