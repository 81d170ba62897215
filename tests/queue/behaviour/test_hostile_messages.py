"""Hostile messages to a worker on a real broker: named and dropped, and the worker goes on."""

import json
import zlib
from typing import Any

import pytest
import redis

from blimp.errors import LinkError, NotAuthorised, TaskFailed
from blimp.queue import TaskApp
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.keys import Keys
from blimp.tasks.client import VehicleClient
from tests.broker import EmbeddedBroker
from tests.queue.celery_messages import envelope
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.server_view import Look


def call(**changes: Any) -> bytes:
    """A call of the task "add", with the id "bad" and these parts of its envelope changed."""
    message = json.loads(envelope(task="add", id="bad"))
    message["properties"] |= changes.pop("properties", {})
    return json.dumps(message | changes).encode()


def bomb() -> bytes:
    """A small body that would unpack to 5 MB; tests/queue/protocol measures what is unpacked."""
    packed = zlib.compress(bytes(5_000_000))
    return envelope(task="add", id="bad", body=packed, compression="application/x-gzip")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (bomb(), "is longer than 1000000"),
        (call(**{"content-encoding": 5}), "content encoding 5: only 'utf-8' is accepted"),
        (envelope(task="add", id="bad", blimp_delivery=1e300), "<= 1000000000000000"),
        (
            envelope(task="add", id="bad", blimp_ttl_s=10**400, blimp_issued_ms=1),
            "limit is 1e+15",
        ),
    ],
)
def test_the_sender_hears_what_is_wrong(
    app: TaskApp, server: redis.Redis, raw: bytes, reason: str
) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    Look(server=server).push("tests", raw)
    with working(app) as worker:
        with pytest.raises(TaskFailed) as caught:
            app.result("bad").get(DEADLINE_S)
        assert reason in str(caught.value)
        assert caught.value.kind == "MessageError"
        assert add.delay(1, 2).get(DEADLINE_S) == 3
        assert worker.counts["reconnects"] == 0
    assert Look(server=server).left_behind() == []


@pytest.mark.parametrize("head", [b"null", b"[]", b"7", b"{}", b"[" * 100_000, b"\xff"])
def test_no_broadcast_closes_the_emergency_channel(
    app: TaskApp, server: redis.Redis, head: bytes
) -> None:
    app.on_broadcast("stop")(lambda broadcast: {})
    with working(app):
        server.xadd(Keys().fanout("tests.emergency"), {"h": head, "b": b"{}"})
        assert app.broadcast("stop").get(DEADLINE_S) == {}  # received the first time it is sent


def test_a_queue_that_cannot_be_read_is_asked_again_ever_more_rarely(
    app: TaskApp, server: redis.Redis
) -> None:
    log, stream = Silence(), Keys().queue("tests").levels[0]
    failures: list[tuple[BaseException, float]] = []
    app.on_connection_error = lambda error, wait_s: failures.append((error, wait_s))
    with working(app, log=log):
        server.delete(stream)
        server.set(stream, "not a stream")
        wait_until(lambda: len(failures) >= 6, "the worker did not notice")
        assert failures[5][1] > failures[0][1]
        reported, *more = log.events("broker lost")
        assert len(more) <= 1  # not each time
        assert "WRONGTYPE" in reported["reason"]
        server.delete(stream)


def test_a_broker_that_says_no_is_distinguished_from_one_that_is_unreachable(
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


@pytest.mark.parametrize(
    "head",
    [
        b'{"headers": {"a": {"__type__": "decimal", "__value__": "x"}}}',
        b'{"headers": {"a": {"__type__": "uuid", "__value__": {"hex": 5}}}}',
        b'{"headers": {"a": {"__type__": "bytes", "__value__": 5}}}',
        b'{"headers": {"id": "\xdf"}}',
    ],
)
def test_a_head_that_no_reader_understands_stops_no_worker(
    app: TaskApp, server: redis.Redis, head: bytes
) -> None:
    """Decoders raise what they like: it came again and again, and nothing else did."""

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with working(app) as worker:
        Look(server=server).push_raw("tests", head)
        assert add.delay(1, 2).get(DEADLINE_S) == 3
        wait_until(lambda: Look(server=server).dead() == 1, "it is no dead letter")
        assert worker.counts["reconnects"] == 0
    (reason,) = Look(server=server).dead_reasons()
    assert reason.startswith("undecodable: head is not JSON")
