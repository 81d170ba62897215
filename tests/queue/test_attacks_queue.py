"""Hostile messages to a worker on a real broker: named and dropped, and the worker goes on."""

import json
import threading
import zlib
from typing import Any

import pytest
import redis

from blimp.errors import LinkError, NotAuthorised, TaskFailed
from blimp.queue import TaskApp
from blimp.queue.extensions import Broadcast
from blimp.queue.redis.client import open_redis
from blimp.tasks.client import VehicleClient
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.golden import envelope
from tests.queue.look import Look


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> str:
    """Kombu's own: these attacks reach into its lists, and into its fanout."""
    return "streams"


def call(**changes: Any) -> bytes:
    """A call of the task "add", with the id "bad" and these parts of its envelope changed."""
    message = json.loads(envelope(task="add", id="bad"))
    message["properties"] |= changes.pop("properties", {})
    return json.dumps(message | changes).encode()


def bomb() -> bytes:
    """A small body that would unpack to 300 MB."""
    packer = zlib.compressobj(level=9)
    packed = b"".join(packer.compress(bytes(1_000_000)) for _ in range(300)) + packer.flush()
    return envelope(task="add", id="bad", body=packed, compression="application/x-gzip")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (bomb(), "header 'compression' is set: only plain bodies are accepted"),
        (call(properties={"body_encoding": "rot13"}), "encoding 'rot13': only"),
        (call(properties={"body_encoding": ["x"]}), "encoding ['x']: only"),
        (call(body="x"), "cannot be opened"),
        (call(**{"content-encoding": 5}), "content encoding 5: only 'utf-8' is accepted"),
        (envelope(task="add", id="bad", blimp_delivery=1e300), "up to 1e+15"),
        (envelope(task="add", id="bad", blimp_ttl_s=10**400, blimp_issued_ms=1), "up to 1e+15"),
    ],
)
def test_whoever_sent_it_hears_what_is_wrong(
    app: TaskApp, server: redis.Redis, raw: bytes, reason: str
) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    server.lpush("tests", raw)
    with working(app) as worker:
        with pytest.raises(TaskFailed) as caught:
            app.result("bad").get(DEADLINE_S)
        assert reason in str(caught.value)
        assert caught.value.kind == "MessageError"
        assert add.delay(1, 2).get(DEADLINE_S) == 3
        assert worker.counts["reconnects"] == 0
    assert Look(server=server).left_behind() == []


def broadcast(**changes: Any) -> bytes:
    message = json.loads(envelope(task="any", id="any", body=b"{}"))
    return json.dumps(message | changes).encode()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"null", "message is NoneType, must be an object"),
        (b"[]", "message is list, must be an object"),
        (b"7", "message is int, must be an object"),
        (b"{}", "'headers' is missing or not an object"),
        (b"[" * 100_000, "message cannot be opened: RecursionError"),
        (broadcast(body=5), "'body' is missing or not a string"),
        (broadcast(body="x"), "message cannot be opened"),
        (broadcast(properties=None), "'properties' is missing"),
        (broadcast(headers={"compression": "application/x-gzip"}), "'compression' is set"),
    ],
)
def test_no_broadcast_closes_the_emergency_lane(
    app: TaskApp, server: redis.Redis, raw: bytes, reason: str
) -> None:
    app.on_broadcast("stop")(lambda broadcast: {})
    log = Silence()
    with working(app, log=log):
        server.publish("/0.tests.emergency", raw)
        assert app.broadcast("stop").get(DEADLINE_S) == {}  # heard the first time it is sent
        wait_until(lambda: bool(log.events("broadcast unreadable")), "it was not named")
    assert log.events("emergency broadcasts lost") == []
    assert reason in log.events("broadcast unreadable")[0]["reason"]


def test_what_comes_with_spoilt_broadcasts_is_heard_at_once(
    app: TaskApp, server: redis.Redis
) -> None:
    heard = threading.Event()

    @app.on_broadcast("stop")
    def stop(_: Broadcast) -> dict[str, object]:
        heard.set()
        return {}

    good = broadcast(
        body='{"id": "i", "name": "stop"}',
        properties={"delivery_info": {}, "delivery_tag": "t"},
    )
    with working(app):
        together = server.pipeline(transaction=True)  # one packet: one read of the socket
        for raw in (*[broadcast(body=5)] * 3, good):
            together.publish("/0.tests.emergency", raw)
        together.execute()
        assert heard.wait(4.0)  # or it would lie there until the next one


def test_a_queue_that_cannot_be_read_is_asked_again_ever_more_rarely(
    app: TaskApp, server: redis.Redis
) -> None:
    log = Silence()
    failures: list[tuple[BaseException, float]] = []
    app.on_connection_error = lambda error, wait_s: failures.append((error, wait_s))
    with working(app, log=log):
        server.set("tests", "not a list")
        wait_until(lambda: len(failures) >= 6, "the worker did not notice")
        assert failures[5][1] > failures[0][1]
        (told,) = log.events("broker lost")  # once, not each time
        assert "WRONGTYPE" in told["reason"]
        server.delete("tests")


def test_a_broker_that_says_no_is_told_from_one_that_is_away(
    own_broker: EmbeddedBroker,
) -> None:
    with open_redis(own_broker.url, timeout_s=DEADLINE_S) as server:
        server.config_set("maxmemory", 1)
        with VehicleClient(own_broker.url, "twin") as ground:
            with pytest.raises(LinkError, match=r"^broker at .*maxmemory"):
                ground.ping(timeout_s=DEADLINE_S)
            reply = ground.estop(timeout_s=0.5)
            assert (reply.state, reply.reason) == (
                "TIMEOUT",
                "no word from the vehicle within 0.5 s: outcome unknown",
            )
        server.config_set("maxmemory", 0)
        server.config_set("requirepass", "secret")
        with VehicleClient(own_broker.url, "twin") as ground, pytest.raises(NotAuthorised):
            ground.ping(timeout_s=DEADLINE_S)
    own_broker.stop()
    with (
        VehicleClient(own_broker.url, "twin", timeout_s=0.5) as ground,
        pytest.raises(LinkError, match=r"^no broker at"),
    ):
        ground.ping(timeout_s=0.5)
