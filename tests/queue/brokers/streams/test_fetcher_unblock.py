"""Taking a blocking question back."""

from typing import Any

import pytest

from blimp.queue.brokers.streams.fetcher import Question
from blimp.queue.redis.client import Link


def test_a_question_is_taken_back_that_the_server_has_not_come_to_yet(
    streams: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other connection's UNBLOCK overtakes it: there is nobody to unblock."""
    link = Link(url=streams, timeout_s=1.0)
    question = Question(link, lambda _: None)
    unblock, unblocked = link.client.client_unblock, []
    late: list[Any] = []
    question.ask(("PING",), block_ms=0)  # connects
    question._connection.read_response()
    send = question._connection.send_command
    monkeypatch.setattr(question._connection, "send_command", lambda *words: late.append(words))

    def overtakes(id: int) -> Any:
        unblocked.append(unblock(id))
        if late:
            send(*late.pop())
        return unblocked[-1]

    monkeypatch.setattr(link.client, "client_unblock", overtakes)
    try:
        question.ask(("XREAD", "BLOCK", 60_000, "STREAMS", "none", "$"), block_ms=60_000)
        assert question.withdraw() == []
    finally:
        question.close()
        link.close()
    assert not unblocked[0]
    assert unblocked[-1]


def test_one_that_is_answered_already_brings_its_answer(streams: str) -> None:
    link = Link(url=streams, timeout_s=1.0)
    question = Question(link, lambda _: None)
    try:
        link.client.xadd("there", {"a": "b"})
        question.ask(("XREAD", "BLOCK", 60_000, "STREAMS", "there", "0"), block_ms=60_000)
        assert [stream for stream, _, _ in question.withdraw()] == ["there"]
        assert question.withdraw() == []
    finally:
        question.close()
        link.close()
