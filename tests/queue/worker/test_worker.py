"""The worker and its app: names, options, idling, the heartbeat."""

import gc
import threading
import time

import pytest
import redis

from blimp.errors import (
    ConfigError,
)
from blimp.queue import TaskApp, Worker
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working


def test_an_option_that_there_is_not_is_named(app: TaskApp) -> None:
    with pytest.raises(ConfigError, match=r"\['acks_early'\]"):
        app.task(acks_early=True)(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="priority 10: must be from 0"):
        app.task(priority=10)(lambda: None)


def test_a_worker_idles_quietly(app: TaskApp, server: redis.Redis) -> None:
    """At most five commands a second reach the broker from a worker without work."""
    app.on_broadcast("stop")(lambda broadcast: {})
    with working(app), server.monitor() as monitor:
        heard, began_s = 0, time.monotonic()
        for command in monitor.listen():  # the pulse alone says something each second
            now_s = time.monotonic() - began_s
            if now_s > 4.0:
                break
            if now_s > 1.0 and command["client_type"] != "lua":
                heard += 1
    assert heard / 3.0 <= 5.0


def test_a_link_watcher_that_fails_does_not_stop_the_pulse(app: TaskApp) -> None:
    heard: list[bool] = []

    @app.on_link
    def broken(alive: bool) -> None:
        raise OSError("no mailbox")

    app.on_link(heard.append)
    log = Silence()
    with working(app, log=log):
        wait_until(lambda: len(heard) >= 2, "the pulse stopped")
    assert log.events("link watcher")


def test_a_worker_that_ends_leaves_the_collector_as_it_was(app: TaskApp) -> None:
    """A program may go on after `run`: what it drops then must be collected."""
    gc.unfreeze()  # the runner of the tests freezes what it loads
    before = gc.get_threshold(), gc.get_freeze_count()
    worker = Worker(app=app, log=Silence())
    during: list[int] = []

    def stop_when_ready() -> None:
        worker.ready.wait(DEADLINE_S)
        during.append(gc.get_freeze_count())
        worker.stop()

    stopping = threading.Thread(target=stop_when_ready)
    stopping.start()
    assert worker.run() == 0
    stopping.join()
    assert during[0] > before[1]
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
