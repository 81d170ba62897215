"""What the sender puts into a stream is what a kombu producer would have put there."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import msgspec
import pytest

from blimp.errors import LinkError
from blimp.queue.brokers.streams import envelope as wire
from blimp.queue.brokers.streams.envelope import Stamp
from blimp.queue.brokers.streams.streams_sender import StreamsSender
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.protocol.message import TaskMessage, write_message
from blimp.queue.redis.keys import LEVELS
from tests.queue.kombu_transport.conftest import Connect

MESSAGE = TaskMessage(id="a", task="t", queue="q")


def all_put(session: StreamsSession) -> list[tuple[int, Any]]:
    """Return level and kombu payload of all that was put into queue `q`."""
    keys, client = session.keys.queue("q"), session.link.client
    found: list[tuple[int, Any]] = []
    for level in range(LEVELS):
        entries: Any = client.xrange(keys.levels[level])
        for _, fields in entries:
            found.append((level, wire.unpack([part for pair in fields.items() for part in pair])))
    members: Any = client.zrange(keys.later, 0, -1)
    for member in members:
        level, fields = msgspec.msgpack.decode(member)
        found.append((level, wire.unpack([part.encode() for part in fields])))
    for _, payload in found:
        del payload["properties"]["delivery_tag"]  # another each time
    return found


@pytest.mark.parametrize("priority", [0, 1, 3, 6, 9])
@pytest.mark.parametrize("eta_s", [None, 4_102_444_800.0], ids=["now", "later"])
def test_entries_are_those_of_a_producer(
    streams: str, connect: Connect, session: StreamsSession, priority: int, eta_s: float | None
) -> None:
    message = TaskMessage(id="a", task="t", args=(1, "é"), queue="q", eta_s=eta_s)
    headers, body = write_message(message, signer=None)
    connect().Producer().publish(
        body,
        routing_key="q",
        headers=headers,
        content_type="application/json",
        content_encoding="utf-8",
        priority=max(1, priority),
        correlation_id="a",
        delivery_mode=2,
    )
    sender = StreamsSender(streams, timeout_s=2.0)
    sender.send(msgspec.structs.replace(message, priority=priority), headers, body, sender.stamp())
    sender.close()
    first, second = all_put(session)
    assert first == second


def test_the_same_stamp_puts_nothing_more(streams: str, session: StreamsSession) -> None:
    headers, body = write_message(MESSAGE, signer=None)
    sender = StreamsSender(streams, timeout_s=2.0)
    for number in (1, 1, 2):
        stamp = Stamp("blimp.test-sender", number, 10_000)
        sender.send(MESSAGE, headers, body, stamp)
    sender.close()
    assert len(all_put(session)) == 2


def test_a_server_that_forgot_its_scripts_and_connections_is_no_error(
    streams: str, session: StreamsSession
) -> None:
    headers, body = write_message(MESSAGE, signer=None)
    sender, client = StreamsSender(streams, timeout_s=2.0), session.link.client
    client.script_flush()
    for number in range(3):
        stamp = Stamp("blimp.test-sender", number, 10_000)
        sender.send(MESSAGE, headers, body, stamp)
        if number == 0:
            client.script_flush()
        else:
            client.client_kill_filter(_type="normal", skipme=True)
    sender.close()
    assert len(all_put(session)) == 3


def test_what_could_not_be_put_is_not_taken_for_put(streams: str, session: StreamsSession) -> None:
    headers, body = write_message(MESSAGE, signer=None)
    sender, client = StreamsSender(streams, timeout_s=2.0), session.link.client
    level = session.keys.queue("q").levels[2]
    stamp = Stamp("blimp.test-sender", 1, 10_000)
    client.set(level, "no stream")
    with pytest.raises(LinkError, match="WRONGTYPE"):
        sender.send(MESSAGE, headers, body, stamp)
    client.delete(level)
    sender.send(MESSAGE, headers, body, stamp)
    sender.close()
    assert len(all_put(session)) == 1


def test_a_forked_child_sends_on_a_connection_of_its_own(
    streams: str, session: StreamsSession
) -> None:
    headers, body = write_message(MESSAGE, signer=None)
    sender = StreamsSender(streams, timeout_s=2.0)

    def send(number: int) -> None:
        stamp = Stamp("blimp.test-sender", number, 10_000)
        sender.send(MESSAGE, headers, body, stamp)

    send(1)
    number = os.fork()
    if number == 0:
        status = 1
        with contextlib.suppress(BaseException):
            send(2)
            status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 0
    send(3)
    sender.close()
    assert len(all_put(session)) == 3
