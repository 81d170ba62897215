"""One suite over every broker: what a worker may rely on, as its capabilities say."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from blimp.clock import SystemClock
from blimp.queue.brokers import BROKERS, broker_for
from blimp.queue.brokers.base import (
    MISSING,
    MOST_DELIVERIES,
    AtomicConsumer,
    Broker,
    Completion,
    Consumer,
    ConsumerOptions,
    Found,
    Written,
)
from blimp.queue.brokers.in_memory import InMemoryBroker
from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.protocol.message import EMERGENCY, LOW, TaskMessage, write_message
from blimp.queue.redis.urls import Brokers
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S, Silence
from tests.rabbitmq import find_rabbitmq
from tests.redis_cluster import Cluster, running_cluster


class Bench:
    """One broker, a queue of its own, and consumers that note what they get."""

    def __init__(self, name: str, url: str) -> None:
        self.url = url
        in_memory = name == "in memory"
        self.broker: Broker = (
            InMemoryBroker(SystemClock()) if in_memory else broker_for(url, name=name)
        )
        self.queue = f"q{uuid.uuid4().hex[:8]}"
        self.sender = self.broker.open_sender(url, timeout_s=5.0, on_lost=lambda _: None)
        self.arrived: list[Any] = []
        self.open: list[Consumer] = []

    def consumer(self, *queues: str, name: str = "one") -> Consumer:
        consumer = self.broker.open_consumer(
            ConsumerOptions(
                name=f"{self.queue}.{name}",
                brokers=Brokers(self.url),
                queues=queues or (self.queue,),
                room=lambda: 1,
                limit=lambda: 8,
                waiting=lambda: 0,
                is_stopping=lambda: False,
                on_message=self.arrived.append,
                on_unreadable=lambda *_: None,
                on_lost=lambda _: None,
                log=Silence(),
            )
        )
        self.open.append(consumer)
        consumer.connect(held=())
        return consumer

    def send(self, id: str, *, stamp: Any = None, **fields: Any) -> None:
        message = TaskMessage(id=id, task="t", **({"queue": self.queue} | fields))
        headers, body = write_message(message, signer=None)
        self.sender.send([Written(message, headers, body)], stamp or self.sender.stamp())

    def take(self, consumer: Consumer, count: int = 1) -> list[Any]:
        """Return the next messages. Fails if they do not come."""
        until_s = time.monotonic() + DEADLINE_S
        while len(self.arrived) < count and time.monotonic() < until_s:
            with contextlib.suppress(TimeoutError):
                consumer.drain(0.2)
        assert len(self.arrived) >= count, f"{len(self.arrived)} of {count} came"
        taken, self.arrived[:] = self.arrived[:count], self.arrived[count:]
        return taken

    def is_empty(self, consumer: Consumer) -> bool:
        with contextlib.suppress(TimeoutError):
            consumer.drain(0.1)
        return not self.arrived

    def dead_reasons(self) -> list[str]:
        if isinstance(self.broker, InMemoryBroker):
            return [reason for _, reason in self.broker.dead]
        with contextlib.closing(StreamsSession(url=self.url)) as session:
            letters = DeadLetters(store=session.store, queue=self.queue).list()
            return [letter.reason for letter in letters]

    def close(self) -> None:
        for consumer in self.open:
            consumer.close()
        self.sender.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(params=[*BROKERS, "cluster", "in memory"])
def bench(request: pytest.FixtureRequest, broker_server: EmbeddedBroker) -> Iterator[Bench]:
    url, name = "memory://", request.param
    if name == "streams":
        url = broker_server.url
    elif name == "cluster":
        url, name = request.getfixturevalue("cluster").url("weather"), "streams"
    elif name == "amqp":
        find_rabbitmq()  # skips without one
        url = request.getfixturevalue("rabbit").url
    bench = Bench(name, url)
    yield bench
    bench.close()


def ids(messages: list[Any]) -> list[str]:
    return [message.headers["id"] for message in messages]


def test_each_missing_capability_has_its_words(bench: Bench) -> None:
    missing = bench.broker.capabilities.missing(has_store=True)
    assert [name for name, words in MISSING.items() if words in missing] == [
        name for name in MISSING if not getattr(bench.broker.capabilities, name)
    ]


def test_messages_come_in_order_and_are_gone_once_acknowledged(bench: Bench) -> None:
    consumer = bench.consumer()
    for id in "abc":
        bench.send(id)
    taken = [(message, consumer.delivery(message)) for message in bench.take(consumer, 3)]
    assert ids([message for message, _ in taken]) == ["a", "b", "c"]
    assert len({delivery.tag for _, delivery in taken}) == 3
    assert {delivery.queue for _, delivery in taken} == {bench.queue}
    for _, delivery in taken:
        delivery.ack()
    consumer.disconnect()
    consumer.connect(held=())
    assert bench.is_empty(consumer)


def test_the_first_priority_comes_first(bench: Bench) -> None:
    if not bench.broker.capabilities.has_priorities:
        pytest.skip("no priorities")
    bench.consumer().disconnect()  # the queue is there
    bench.send("low", priority=LOW)
    bench.send("first", priority=EMERGENCY)
    consumer = bench.consumer(name="two")
    assert ids(bench.take(consumer, 2)) == ["first", "low"]


@pytest.mark.parametrize("end", ["requeue", "disconnect"])
def test_what_is_not_acknowledged_comes_again_and_says_so(bench: Bench, end: str) -> None:
    if end == "disconnect" and not bench.broker.capabilities.is_shared:
        pytest.skip("its messages end with their connection")
    consumer = bench.consumer()
    bench.send("a")
    (message,) = bench.take(consumer)
    delivery = consumer.delivery(message)
    if end == "requeue":
        delivery.requeue()
    else:
        consumer.disconnect()
        consumer.connect(held=())
    (again,) = bench.take(consumer)
    assert again.headers["id"] == "a"
    assert again.headers.get("redelivered") or again.headers.get("blimp_delivery") == 1
    consumer.delivery(again).ack()


def test_a_rejected_message_does_not_come_again(bench: Bench) -> None:
    consumer = bench.consumer()
    bench.send("a")
    (message,) = bench.take(consumer)
    consumer.delivery(message).reject("not for me")
    assert bench.is_empty(consumer)
    if bench.broker.capabilities.has_dead_letters:
        assert bench.dead_reasons() == ["not for me"]


def test_a_message_for_later_waits_where_the_broker_schedules(bench: Bench) -> None:
    consumer = bench.consumer()
    bench.send("later", eta_s=time.time() + 3600.0)
    bench.send("now")
    if bench.broker.capabilities.schedules:
        assert ids(bench.take(consumer)) == ["now"]
        assert bench.is_empty(consumer)
    else:
        assert ids(bench.take(consumer, 2)) == ["later", "now"]


def test_a_waiting_consumer_is_woken(bench: Bench) -> None:
    consumer = bench.consumer()
    with contextlib.suppress(TimeoutError):
        consumer.drain(0.01)
    threading.Timer(0.1, consumer.wake).start()
    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        consumer.drain(DEADLINE_S)
    assert time.monotonic() - began_s < DEADLINE_S / 2


def test_the_queues_can_be_changed(bench: Bench) -> None:
    consumer, other = bench.consumer(), f"{bench.queue}b"
    consumer.consume([other])
    bench.send("old")
    bench.send("new", queue=other)
    assert ids(bench.take(consumer)) == ["new"]
    assert bench.is_empty(consumer)


def test_a_repeated_publish_puts_one_message(bench: Bench) -> None:
    stamp = bench.sender.stamp()
    if stamp is None:
        pytest.skip("no stamps: a header has the worker look for the result")
    consumer = bench.consumer()
    for eta_s in (None, 1.0):
        for _ in range(3):
            bench.send("a", stamp=stamp, eta_s=eta_s)
        bench.sender.release(stamp)
        stamp = bench.sender.stamp()
    assert len(bench.take(consumer, 2)) == 2
    assert bench.is_empty(consumer)


def test_a_completion_is_one_step_or_refused(bench: Bench) -> None:
    consumer = bench.consumer()
    bench.send("a")
    (message,) = bench.take(consumer)
    delivery = consumer.delivery(message)
    done = TaskMessage(id="a", task="t", queue=bench.queue)
    follows = msgspec.structs.replace(done, id="b")
    completion = Completion(delivery=delivery, message=done, next=(follows,))
    assert isinstance(consumer, AtomicConsumer) == bench.broker.capabilities.atomic_completion
    if not isinstance(consumer, AtomicConsumer):
        delivery.ack()
        return
    assert consumer.complete([completion]) == [""]
    assert ids(bench.take(consumer)) == ["b"]
    assert consumer.complete([completion])[0] != "", "it was written before"
    assert bench.is_empty(consumer)


def test_probe_says_whether_the_broker_is_there(bench: Bench) -> None:
    consumer = bench.consumer()
    consumer.probe()
    consumer.close()
    consumer.close()


def test_a_message_that_waits_is_found_and_marked(bench: Bench) -> None:
    if not bench.broker.capabilities.finds_messages:
        pytest.skip("it finds no messages")
    consumer = bench.consumer()
    bench.send("a")
    bench.send("later", eta_s=time.time() + 3600.0)
    assert bench.sender.revoke(bench.queue, "other", b"mark") is Found.ABSENT
    assert bench.sender.revoke(bench.queue, "a", b"mark") is Found.MARKED
    assert bench.sender.revoke(bench.queue, "later", b"mark") is Found.MARKED
    (message,) = bench.take(consumer)
    assert message.revoked == b"mark"
    consumer.delivery(message).ack()
    assert bench.sender.revoke(bench.queue, "a", b"mark") is Found.ABSENT


def test_a_message_that_comes_again_and_again_is_over_the_limit(bench: Bench) -> None:
    if not bench.broker.capabilities.counts_deliveries:
        pytest.skip("it counts no deliveries")
    consumer = bench.consumer()
    bench.send("a")
    for _ in range(MOST_DELIVERIES):
        (message,) = bench.take(consumer)
        delivery = consumer.delivery(message)
        assert not delivery.over_delivery_limit
        delivery.requeue()
    (message,) = bench.take(consumer)
    assert f"delivered {MOST_DELIVERIES} times" in consumer.delivery(message).over_delivery_limit
