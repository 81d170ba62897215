"""Several brokers: what does not answer is left for the next, at the start and in mid-flight."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from blimp.errors import ConfigError, LinkError
from blimp.queue import TaskApp, Worker
from blimp.queue.redis.client import RedisServer
from blimp.queue.redis.urls import Brokers, split_urls
from blimp.tasks.client import VehicleClient
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.signals import stop_process

A, B, C = "redis://a:1/0", "redis://b:2/0", "redis://c:3/0"


@pytest.fixture
def brokers() -> Iterator[list[EmbeddedBroker]]:
    with (
        socket_directory() as directory,
        EmbeddedBroker(directory=directory / "1") as first,
        EmbeddedBroker(directory=directory / "2") as second,
    ):
        yield [first, second]


# A server that is only slow must not be left: the machine may be loaded.
PATIENT_S = 5.0


def build(brokers: list[EmbeddedBroker], **options: Any) -> TaskApp:
    urls = [broker.url for broker in brokers]
    options = {"timeout_s": PATIENT_S} | options
    app = TaskApp("tests", broker=urls, result_backend=urls, **options)
    app.task(name="add")(lambda a, b: a + b)
    return app


def peer(app: TaskApp, broker: EmbeddedBroker) -> TaskApp:
    """A program that knows one of the brokers alone."""
    return TaskApp("tests", broker=broker.url, result_backend=broker.url, timeout_s=PATIENT_S)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (A, (A,)),
        (f"{A};{B}", (A, B)),
        (f"{A}; {B};", (A, B)),
        ([A, B, A], (A, B)),
        ("redis://u:p;w@a/0;redis://b/0", ("redis://u:p;w@a/0", "redis://b/0")),
    ],
)
def test_urls_come_in_a_list_or_in_one_text(given: Any, found: tuple[str, ...]) -> None:
    assert split_urls(given) == found


def test_what_cannot_be_used_is_named() -> None:
    with pytest.raises(ConfigError, match="at least one URL"):
        Brokers([])
    with pytest.raises(ConfigError, match=r"must be one of \['round-robin', 'shuffle'\]"):
        Brokers(A, strategy="random")
    with pytest.raises(ConfigError, match="Port out of range"):
        TaskApp("tests", broker=[A, "redis://b:99999"])
    with pytest.raises(ConfigError, match="transport 'streams' takes"):
        TaskApp("tests", broker=[A, "amqp://b"])


def test_shuffle_visits_each_in_every_round_and_none_twice_in_a_row() -> None:
    brokers = Brokers([A, B, C], strategy="shuffle")
    last, seen = brokers.current, []
    for _ in range(30):
        brokers.failed(last)
        assert brokers.current != last
        last = brokers.current
        seen.append(last)
    assert all(set(seen[n : n + 3]) == {A, B, C} for n in range(0, 30, 3))


@pytest.mark.parametrize("strategy", ["round-robin", "shuffle"])
def test_everyone_starts_at_the_second_where_the_first_is_dead(
    brokers: list[EmbeddedBroker], strategy: str, transport: str
) -> None:
    brokers[0].stop()
    with build(brokers, failover_strategy=strategy) as app, working(app):
        assert app.tasks["add"].delay(1, 2).get(DEADLINE_S) == 3
        assert app.broker == brokers[1].url
        with VehicleClient(
            [broker.url for broker in brokers], "tests", timeout_s=PATIENT_S
        ) as ground:
            assert ground.result("none").state == "TIMEOUT"


def test_in_mid_flight_all_parts_change_over_and_back(
    brokers: list[EmbeddedBroker], transport: str
) -> None:
    heard: list[str] = []
    links: list[bool] = []
    app = build(brokers)
    app.on_link(links.append)

    @app.on_broadcast("stop")
    def stop(broadcast: Any) -> dict[str, Any]:
        heard.append(broadcast.id)
        return {}

    with app, working(app) as worker:
        assert app.tasks["add"].delay(1, 2).get(DEADLINE_S) == 3
        for dead, alive in ((0, 1), (1, 0)):
            brokers[dead].stop()
            assert app.tasks["add"].delay(dead, 1).get(DEADLINE_S) == dead + 1
            assert app.broker == brokers[alive].url
            wait_until(lambda: links[-1], "the connection is not reported as lost")
            repeat(app, heard, id=f"stop {alive}")
            brokers[dead].start()
        assert worker.counts["reconnects"] >= 2


def repeat(app: TaskApp, heard: list[str], *, id: str) -> None:
    """Broadcast as its sender does, until it is heard."""

    def is_heard() -> bool:
        app.broadcast("stop", id=id)
        return id in heard

    wait_until(is_heard, "the emergency level did not follow")


def test_messages_on_the_dead_broker_stay_there_and_are_taken_on_return(
    brokers: list[EmbeddedBroker],
) -> None:
    app = build(brokers, timeout_s=2.0)
    with app, working(app), peer(app, brokers[0]) as first:
        assert app.tasks["add"].delay(1, 2).get(DEADLINE_S) == 3
        stop_process(brokers[0].pid)
        assert app.tasks["add"].delay(3, 4).get(DEADLINE_S) == 7
        os.kill(brokers[0].pid, signal.SIGCONT)
        left = first.send_task("add", (5, 6))
        assert app.tasks["add"].delay(7, 8).get(DEADLINE_S) == 15
        assert not left.ready()
        brokers[1].stop()
        assert left.get(DEADLINE_S) == 11


def test_a_task_whose_broker_dies_under_it_ends_at_the_other_and_once_at_the_first(
    brokers: list[EmbeddedBroker],
) -> None:
    app = build(brokers)
    running, go = threading.Event(), threading.Event()
    runs: list[int] = []

    @app.task(name="long", bind=True)
    def long(context: Any) -> str:
        runs.append(context.fence)
        running.set()
        assert go.wait(DEADLINE_S)
        return "done"

    with app, working(app, prefetch=1), peer(app, brokers[0]) as first:
        handle = long.delay()
        assert running.wait(DEADLINE_S)
        brokers[0].stop()
        wait_until(lambda: app.broker == brokers[1].url, "it did not change over")
        go.set()
        assert app.tasks["add"].delay(1, 2).get(DEADLINE_S) == 3  # its place is free again
        assert app.result(handle.id).get(DEADLINE_S) == "done"
        brokers[0].start()
        assert first.result(handle.id).get(DEADLINE_S) == "done"  # what was deferred is reported
        brokers[1].stop()
        assert first.send_task("add", (5, 6)).get(DEADLINE_S) == 11
    assert runs == [1]


def test_results_follow_a_watch_that_is_open(brokers: list[EmbeddedBroker]) -> None:
    app = build(brokers)
    assert app.results is not None
    with app, working(app), app.results.watch("x") as watch:
        brokers[0].stop()
        app.tasks["add"].apply_async((1, 2), task_id="x")
        deadline_s = time.monotonic() + DEADLINE_S
        record = None
        while record is None or not record.final:
            assert time.monotonic() < deadline_s
            with contextlib.suppress(LinkError):
                record = watch.next(timeout_s=0.5)
        assert record.result == 3


def test_a_worker_gives_up_after_max_retries_and_tells_each(
    brokers: list[EmbeddedBroker],
) -> None:
    for broker in brokers:
        broker.stop()
    reported: list[tuple[str, float]] = []
    app = build(
        brokers,
        connection_retry_policy={"max_retries": 3, "interval_start": 0.01},
        on_connection_error=lambda error, wait_s: reported.append((str(error), wait_s)),
    )
    log = Silence()
    with app, pytest.raises(LinkError, match="given up after 3 retries"):
        Worker(app=app, name="worker", log=log).run()
    assert len(reported) == 4
    assert [wait_s > 0 for _, wait_s in reported] == [False, True, False, False]  # after a round
    assert len(log.events("no broker")) == 3  # each reason once, and the end


def test_a_server_that_says_no_is_not_left(brokers: list[EmbeddedBroker]) -> None:
    urls = [broker.url for broker in brokers]
    results = RedisServer(Brokers(urls), timeout_s=PATIENT_S)
    results.client.set("x", 1)
    with pytest.raises(LinkError, match="WRONGTYPE"):
        results.ask(lambda client: client.lpush("x", 1))
    assert results.brokers.current == urls[0]
    results.close()


@pytest.mark.parametrize("ships", [0, 1])
def test_a_stop_is_heard_at_whichever_broker_it_comes_by(
    brokers: list[EmbeddedBroker], ships: int, transport: str
) -> None:
    """Ground and ship use different brokers, and neither knows."""
    urls = [broker.url for broker in brokers]
    own = urls[ships:] + urls[:ships]
    app = TaskApp("blimp.twin", broker=own, result_backend=own, timeout_s=PATIENT_S)
    heard: list[str] = []

    @app.on_broadcast("estop")
    def estop(broadcast: Any) -> dict[str, Any]:
        heard.append(broadcast.id)
        return {"stopped": True}

    with app, working(app), VehicleClient(urls[:1], "twin") as ground:
        assert app.broker == urls[ships]
        assert ground.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
        assert app.broker == urls[ships]
    assert len(heard) == 1


def test_a_stop_goes_by_every_broker_until_it_is_confirmed(
    brokers: list[EmbeddedBroker], transport: str
) -> None:
    """The ship does not reach the first broker; the ground reaches both."""
    urls = [broker.url for broker in brokers]
    app = TaskApp("blimp.twin", broker=urls[1], result_backend=urls[1])
    app.on_broadcast("estop")(lambda _: {"stopped": True})
    with app, working(app), VehicleClient(urls, "twin") as ground:
        assert ground.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
        brokers[0].stop()
        assert ground.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
