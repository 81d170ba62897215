"""How a consumer of streams gives up what its worker does not survive, and what it is refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from blimp.errors import LinkError
from blimp.queue.brokers.base import MOST_DELIVERIES, BrokerOptions, Completion
from blimp.queue.brokers.streams.consumer import (
    SPARE_DELIVERIES,
    CompletionArguments,
    StreamsConsumer,
    StreamsDelivery,
)
from blimp.queue.brokers.streams.envelope import Claim
from blimp.queue.brokers.streams.store import DONE, LOST
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.redis.keys import Keys
from blimp.queue.redis.urls import Brokers

KEYS = Keys()
MESSAGE = TaskMessage(id="a", task="t", queue="q")


def claim(fence: int = 1) -> Claim:
    return Claim(tag=f"q/2/1-1/{fence}", queue=KEYS.queue("q"), level=2, id="1-1", fence=fence)


def test_a_worker_ends_what_was_delivered_too_often_before_the_server_drops_it() -> None:
    acks: Any = None
    limits = [
        StreamsDelivery(claim=claim(fence), acks=acks).over_delivery_limit
        for fence in (MOST_DELIVERIES, MOST_DELIVERIES + 1)
    ]
    assert limits == ["", f"delivered {MOST_DELIVERIES} times without being completed"]
    options: Any = SimpleNamespace(
        brokers=Brokers("unix:///nowhere.sock"),
        name="w",
        on_lost=lambda _: None,
        broker=BrokerOptions(timeout_s=1.0, max_dead_letters=5, max_dead_letter_bytes=600),
    )
    consumer = StreamsConsumer(options)
    store = consumer._at("unix:///nowhere.sock").session.store
    assert store._max_deliveries == MOST_DELIVERIES + SPARE_DELIVERIES
    assert store._dead_limit == "5:600"
    consumer.close()


@pytest.mark.parametrize(
    ("answer", "reason", "rejected"),
    [
        (DONE, "", []),
        (LOST, "another worker has the message", []),
        ("WRONGTYPE no", "its end cannot be written: WRONGTYPE no", [1]),
    ],
)
def test_an_end_that_is_refused_for_good_makes_a_dead_letter(
    answer: int | str, reason: str, rejected: list[int]
) -> None:
    given_up: list[int] = []
    delivery: Any = SimpleNamespace(reject=lambda _: given_up.append(1))
    options: Any = None
    consumer, completion = StreamsConsumer(options), Completion(delivery=delivery, message=MESSAGE)
    assert consumer._refusal(completion, answer) == reason
    assert given_up == rejected


@pytest.mark.parametrize("answer", ["OOM no memory", "READONLY replica", "MISCONF no disk"])
def test_an_end_that_a_server_cannot_write_now_is_written_later(answer: str) -> None:
    options: Any = None
    delivery: Any = None
    with pytest.raises(LinkError):
        StreamsConsumer(options)._refusal(Completion(delivery=delivery, message=MESSAGE), answer)


# --- what the server is given of an end ----------------------------------------------------------


def arguments(
    completion: Completion, held: Claim | None, *, limit_bytes: int = 9999, **options: Any
) -> CompletionArguments:
    settings: Any = SimpleNamespace(
        broker=BrokerOptions(limit_bytes=limit_bytes),
        **{"completes_results": True, "signer": None, "result_keep_s": 7} | options,
    )
    found = CompletionArguments(options=settings, keys=KEYS)
    found.add(completion, held)
    return found


def completed(**fields: Any) -> Completion:
    delivery: Any = SimpleNamespace(tag="q/2/1-1/1")
    return Completion(delivery=delivery, message=MESSAGE, **fields)


def test_what_was_acknowledged_early_is_written_once() -> None:
    once = KEYS.once("q/2/1-1/1")
    assert arguments(completed(next=(MESSAGE,), acks=False), None).keys[0] == once
    assert arguments(completed(record=b"r", acks=False), None).keys[0] == ""  # no harm in it


def test_a_result_of_another_server_is_not_written_here() -> None:
    for here, expected in ((True, b"r"), (False, b"")):
        found = arguments(completed(record=b"r", next=(MESSAGE,)), claim(), completes_results=here)
        assert found.args[5:7] == [expected, 7]
    assert arguments(completed(record=b"r"), claim(), completes_results=False).args[0] == ""


def test_a_dead_letter_has_its_reason_and_what_follows_its_limit() -> None:
    assert "no pad" in arguments(completed(dead="no pad"), claim()).args
    tall = TaskMessage(id="b", task="t", queue="q", args=("x" * 500,))
    with pytest.raises(Exception, match="the limit is 400"):
        arguments(completed(next=(tall,)), claim(), limit_bytes=400)
