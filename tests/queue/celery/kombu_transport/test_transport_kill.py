"""Consumers that are killed, or stopped and woken."""

import random
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import kombu
import redis

from blimp.queue.brokers.streams.store import DONE, LOST
from blimp.queue.brokers.streams.visibility import StreamsSession
from tests.queue.celery.kombu_transport.conftest import (
    Basket,
    Connect,
    Process,
    queue,
)
from tests.repeating import until
from tests.stopwatch import Stopwatch

Start = Callable[..., Process]
MOST_AHEAD = 300  # messages that wait while workers are killed
KILLS = 6


def send(connection: kombu.Connection, *bodies: Any) -> None:
    producer = connection.Producer(serializer="raw")
    for body in bodies:
        producer.publish(body, routing_key="q", content_type="text/plain", content_encoding="utf-8")


def taken(line: str) -> tuple[str, int, float]:
    _, body, fence, at_s = line.split()
    return body, int(fence), float(at_s)


def test_the_same_name_takes_its_messages_back_at_once(
    connect: Connect, start_consumer: Start
) -> None:
    send(connect(), "1", "2")
    first = start_consumer(name="w", queue="q", mode="keep")
    first.wait_for("took 2")
    first.kill()
    second = start_consumer(name="w", queue="q", mode="keep")
    second.wait_for("ready")
    watch = Stopwatch()
    body, fence, at_s = taken(second.wait_for("took"))
    assert (body, fence) == ("1", 2)
    assert watch.undisturbed_s(at_s) < 1.0
    assert taken(second.wait_for("took 2"))[1] == 2


def test_another_name_takes_them_within_three_seconds(
    connect: Connect, start_consumer: Start
) -> None:
    first = start_consumer(name="a", queue="q", mode="keep")
    first.wait_for("ready")
    send(connect(), "1", "2")
    first.wait_for("took 2")
    second = start_consumer(name="b", queue="q", mode="keep")
    second.wait_for("ready")
    first.kill()
    watch = Stopwatch()
    body, fence, at_s = taken(second.wait_for("took"))
    assert (body, fence) == ("1", 2)
    assert watch.undisturbed_s(at_s) < 3.0


def test_a_zombie_is_refused_and_learns_of_it(connect: Connect, start_consumer: Start) -> None:
    """Stopped for longer than its lease, and woken when another has its message."""
    zombie = start_consumer(name="zombie", queue="q", mode="one")
    zombie.wait_for("ready")
    send(connect(), "1")
    zombie.wait_for("took 1 1")
    zombie.signal(signal.SIGSTOP)
    basket = Basket(connect(), queue("q"))
    (message,) = basket.take(1)
    assert message.properties["delivery_count"] == 2
    zombie.signal(signal.SIGCONT)
    zombie.wait_for("lost q/")
    zombie.say("ack")
    answer = int(zombie.wait_for("ack").split()[1])
    assert answer != DONE
    assert basket.connection.transport.leases.ack(message.delivery_tag) == DONE


def test_a_second_consumer_of_one_name_fences_off_the_first(connect: Connect) -> None:
    lost: list[str] = []
    first = Basket(connect(consumer="w", on_lease_lost=lost.append), queue("q"))
    send(connect(), "1")
    (old,) = first.take(1)
    second = Basket(connect(consumer="w"), queue("q"))
    (new,) = second.take(1)
    assert first.connection.transport.leases.ack(old.delivery_tag) == LOST
    assert lost == [old.delivery_tag]
    assert second.connection.transport.leases.ack(new.delivery_tag) == DONE


def test_killed_at_random_points_nothing_is_lost(
    connect: Connect, start_consumer: Start, server: redis.Redis, session: StreamsSession
) -> None:
    chance = random.Random(1)
    stop = threading.Event()
    sent: list[str] = []

    def done(least: int) -> bool:
        count: Any = server.hlen("done")
        return bool(count >= least)

    def feed() -> None:
        connection = connect()
        while not stop.is_set():
            if not done(len(sent) - MOST_AHEAD):  # what waits must end within the deadline
                stop.wait(0.005)
                continue
            send(connection, str(len(sent)))
            sent.append(str(len(sent)))

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        for _ in range(KILLS):
            worker = start_consumer(name="w", queue="q", mode="work")
            worker.wait_for("ready")
            before: Any = server.hlen("done")
            enough = before + chance.randrange(1, 200)
            until(partial(done, enough), "it does not work")
            worker.kill()
    finally:
        stop.set()
        feeder.join()
    last = start_consumer(name="w", queue="q", mode="work")
    keys = session.keys.queue("q")

    def all_done() -> bool:
        counts = session.store.counts(keys)
        return counts.ready + counts.in_flight == 0

    until(all_done, "messages are left")
    last.kill()
    names: Any = server.hkeys("done")
    assert {name.decode() for name in names} == set(sent)
    twice: Any = server.hvals("done")
    assert sum(int(count) - 1 for count in twice) <= KILLS * 8  # no more than it had in flight
