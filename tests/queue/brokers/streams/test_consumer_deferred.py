"""Acknowledgements deferred while their broker is unreachable: done in order, none replaced."""

import threading
from collections.abc import Callable, Iterator

import pytest

from blimp.errors import LinkError
from blimp.queue.brokers.streams.store import StreamsOptions
from blimp.queue.brokers.streams.visibility import DeferredAcks, StreamsSession
from blimp.queue.redis.urls import Brokers, redis_url
from tests.broker import EmbeddedBroker
from tests.queue.conftest import wait_until


@pytest.fixture
def held(broker_server: EmbeddedBroker) -> Iterator[DeferredAcks]:
    """The session at the first of two brokers; the second need not be there."""
    url = broker_server.url
    holder = StreamsSession(url=redis_url(url), options=StreamsOptions(consumer="w"))
    held = DeferredAcks(url=url, session=holder, brokers=Brokers([url, "redis://127.0.0.1:1/0"]))
    yield held
    held.close()


class Unreachable:
    """Steps that fail until the broker is back; what was reported then, in order."""

    def __init__(self) -> None:
        self.is_back = threading.Event()
        self.reported: list[str] = []

    def step(self, name: str) -> Callable[[], int]:
        def step() -> int:
            if not self.is_back.is_set():
                raise ConnectionError("unreachable")
            self.reported.append(name)
            return 1

        return step


def test_a_later_end_does_not_replace_an_earlier_one(held: DeferredAcks) -> None:
    steps = Unreachable()
    for name in ("first", "second", "third"):
        assert held.do(["tag"], steps.step(name), otherwise=0) == 0
    assert held.tags() == {"tag"}
    steps.is_back.set()
    wait_until(lambda: len(steps.reported) == 3, "not all that is deferred is reported")
    assert steps.reported == ["first", "second", "third"]
    wait_until(lambda: not held.tags(), "it is deferred for ever")


def test_what_must_be_done_first_is_never_deferred(held: DeferredAcks) -> None:
    steps = Unreachable()
    with pytest.raises(LinkError):
        held.do_now(steps.step("early"))
    assert held.tags() == set()
    steps.is_back.set()
    assert held.do_now(steps.step("early")) == 1


def test_one_that_can_never_be_reported_keeps_no_other_back(
    held: DeferredAcks, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Unreachable()

    def spoilt() -> int:
        if not steps.is_back.is_set():
            raise ConnectionError("unreachable")
        raise ValueError("spoilt")

    held.do(["spoilt"], spoilt, otherwise=0)
    held.do(["tag"], steps.step("second"), otherwise=0)
    steps.is_back.set()
    wait_until(lambda: not held.tags(), "it is deferred for ever")
    assert steps.reported == ["second"]
    assert "spoilt" in caplog.text
