"""A stop is heard whatever became of the stream of its exchange: a real server and worker."""

import os
import signal
import time
from typing import Any

import pytest
import redis

from blimp.queue import TaskApp
from blimp.queue.broadcast.extension import ControlExtension
from blimp.queue.broadcast.listener import DEAF_S, PROBE_S, StreamsListener
from blimp.queue.extensions import Broadcast
from tests.broker import EmbeddedBroker
from tests.faults.harm import HARMS, REFUSING, harm
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.tcp_link import TcpLink

STREAM = "blimp:fanout:tests.emergency"


@pytest.mark.parametrize("what", HARMS)
@pytest.mark.parametrize("is_published", [True, False], ids=["published", "kept"])
def test_a_stop_is_heard_after_the_stream_was_harmed(
    app: TaskApp, server: redis.Redis, what: str, is_published: bool
) -> None:
    """kept: by the stream alone, as a sender of an older version sends it."""
    app.on_broadcast("stop")(lambda broadcast: {})
    with working(app):
        assert app.broadcast("stop").get(DEADLINE_S) == {}
        harm(server, what, STREAM)
        if is_published:
            for _ in range(2):
                assert app.broadcast("stop").get(DEADLINE_S) == {}
        elif what not in REFUSING:  # such a sender cannot write there
            body = b'{"id": "kept", "name": "stop"}'
            head = b'{"headers": {}, "properties": {"delivery_info": {}}}'
            server.xadd(STREAM, {"h": head, "b": body})
            assert app.result("kept").get(DEADLINE_S) == {}


def test_a_stop_is_heard_from_a_server_that_refuses_to_write(
    app: TaskApp, server: redis.Redis
) -> None:
    """As with a full disk: MISCONF. What confirms it is published, too."""
    done: list[str] = []

    @app.on_broadcast("stop")
    def stop(broadcast: Broadcast) -> dict[str, Any]:
        done.append(broadcast.id)
        return {}

    with working(app):
        server.config_set("min-replicas-to-write", 1)
        try:
            handle = app.broadcast("stop")
            wait_until(lambda: done == [handle.id], "not heard")
        finally:
            server.config_set("min-replicas-to-write", 0)


def test_a_user_who_may_not_subscribe_hears_a_little_later(
    app: TaskApp, server: redis.Redis, url: str
) -> None:
    """The broker's users of an older version have no right to the channel."""
    server.acl_setuser("old", enabled=True, nopass=True, categories=["+@all"], keys=["*"])
    try:
        old = url.replace("://", "://old:x@")
        with TaskApp("tests", broker=old, result_backend=url) as other:
            other.on_broadcast("stop")(lambda broadcast: {})
            log = Silence()
            with working(other, log=log) as worker:
                assert app.broadcast("stop").get(DEADLINE_S) == {}
                assert worker.extension(ControlExtension).broadcasts.deaf() == ""
            assert len(log.events("broadcasts are looked for, not heard")) == 1
    finally:
        server.acl_deluser("old")


def test_a_worker_that_hears_no_probe_says_that_it_is_deaf(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It publishes where nobody listens, as if the server passed nothing on."""
    app.on_broadcast("stop")(lambda broadcast: {})
    with working(app) as worker:
        broadcasts = worker.extension(ControlExtension).broadcasts
        assert app.broadcast("stop").get(DEADLINE_S) == {}
        assert broadcasts.deaf() == ""
        listener = broadcasts._parts[app.broker]
        monkeypatch.setattr(listener, "_channels", {"elsewhere": lambda _: None})
        wait_until(lambda: broadcasts.deaf() != "", "it does not notice")
        assert "hears no broadcast: none of its own came back for" in broadcasts.deaf()
        monkeypatch.undo()
        wait_until(lambda: broadcasts.deaf() == "", "it is deaf for good")
        assert DEAF_S < DEADLINE_S


def test_a_link_slower_than_the_timeout_is_not_taken_for_deafness(
    app: TaskApp, server: redis.Redis
) -> None:
    """A round trip of 3 s; the app's timeout is 2 s."""
    path = str(server.connection_pool.connection_kwargs["path"])
    heard: list[Any] = []
    with (
        TcpLink(server=path, delay_s=1.5) as radio,
        TaskApp("tests", broker=f"redis://127.0.0.1:{radio.port}/0") as far,
    ):
        far.on_broadcast("stop")(lambda broadcast: {})
        log = Silence()
        listener: Any = StreamsListener(
            app=far, url=far.broker, routes={far.emergency_exchange: heard.append},
            unreadable=heard.append, on_time=lambda *_: None, log=log,
        )  # fmt: skip
        listener.start()
        try:
            assert listener.listening.wait(DEADLINE_S)
            app.broadcast("stop", id="far")
            wait_until(lambda: len(heard) == 1, "not heard")
            proved_s = listener._proved_s
            wait_until(
                lambda: listener.deaf_s() > 0.0 or listener._proved_s > proved_s + PROBE_S,
                "no probe comes back",
            )
            assert listener.deaf_s() == 0.0
            assert log.lines == []
        finally:
            listener.close()
            listener.wait_closed()


def test_large_entries_make_no_worker_deaf(app: TaskApp, server: redis.Redis) -> None:
    """All of them in one answer are more than the server lets a subscriber have."""
    app.on_broadcast("stop")(lambda broadcast: {})
    log = Silence()
    with working(app, log=log) as worker:
        listener: Any = worker.extension(ControlExtension).broadcasts._parts[app.broker]
        assert app.broadcast("stop").get(DEADLINE_S) == {}
        for _ in range(40):
            server.xadd(STREAM, {"h": "x", "b": b"y" * 1_000_000})
        proved_s = listener._proved_s
        wait_until(lambda: listener._proved_s > proved_s + PROBE_S, "no probe comes back")
        assert app.broadcast("stop").get(DEADLINE_S) == {}
    assert log.events("emergency broadcasts lost") == []


def test_a_worker_hears_again_as_soon_as_its_server_is_back(own_broker: EmbeddedBroker) -> None:
    """Killed, and back with nothing: its stream is empty."""
    url = own_broker.url
    with TaskApp("tests", broker=url, result_backend=url) as app:
        app.on_broadcast("stop")(lambda broadcast: {})
        with working(app):
            assert app.broadcast("stop").get(DEADLINE_S) == {}
            os.kill(own_broker.pid, signal.SIGKILL)
            wait_until(lambda: own_broker.poll() is not None, "it lives on")
            own_broker.start()
            handle = app.broadcast("stop", id="after")
            until_s = time.monotonic() + DEADLINE_S
            while not handle.ready():
                assert time.monotonic() < until_s
                app.broadcast("stop", id="after")
