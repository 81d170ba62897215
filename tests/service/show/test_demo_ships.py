"""A demo of several ships does not wait for ever for a ship that never comes."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from blimp.service.show.demo_ships import Pilot, wait_for_ships
from blimp.service.stack.supervisor import StackError

WITHIN_S = 60.0  # for a program that ends by itself


@contextmanager
def pilot(broker: str) -> Iterator[Pilot]:
    one = Pilot("alice", broker=broker, mission="hop", wait_s=None, say=lambda _: None)
    try:
        yield one
    finally:
        one.end()


@pytest.mark.process
def test_a_pilot_whose_broker_says_nothing_is_waited_for_no_longer_than_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        reason = r"alice has no ship after 0\.1 s"
        with pilot(f"redis://127.0.0.1:{port}") as one, pytest.raises(StackError, match=reason):
            wait_for_ships([one], within_s=0.1)


@pytest.mark.process
def test_a_pilot_that_has_ended_without_a_ship_is_named_with_its_last_words() -> None:
    reason = r"alice has ended without a ship; .*127\.0\.0\.1:1"
    with pilot("redis://127.0.0.1:1") as one, pytest.raises(StackError, match=reason):
        wait_for_ships([one], within_s=WITHIN_S)
