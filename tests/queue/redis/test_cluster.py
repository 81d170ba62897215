"""Which words of a command are keys, and who is the master of a slot."""

from typing import Any

import pytest
import redis

from blimp.queue.redis.cluster import SlotMaster, tagged, waiting
from tests.redis_server import free_port

TAG = "{weather}"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("GET", "k"), ("GET", "{weather}k")),
        (("SET", b"k", b"v", "NX"), ("SET", b"{weather}k", b"v", "NX")),
        (("GET", "{weather}k"), ("GET", "{weather}k")),
        (("GET", "{other}k"), ("GET", "{weather}{other}k")),
        (("DEL", "a", "b"), ("DEL", "{weather}a", "{weather}b")),
        (("MGET", "a", b"b"), ("MGET", "{weather}a", b"{weather}b")),
        (("XGROUP CREATE", "s", "g", "0"), ("XGROUP CREATE", "{weather}s", "g", "0")),
        (("EVALSHA", "d", 2, "a", "", "x"), ("EVALSHA", "d", 2, "{weather}a", TAG, "x")),
        (("EVAL", "text", "0", "x"), ("EVAL", "text", "0", "x")),
        (
            ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "a", "b", ">", ">"),
            ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "{weather}a", "{weather}b", ">", ">"),
        ),
        (
            ("XREAD", "BLOCK", 1, "STREAMS", "a", "0"),
            ("XREAD", "BLOCK", 1, "STREAMS", "{weather}a", "0"),
        ),
        (("PUBLISH", "c", "m"), ("PUBLISH", "c", "m")),
        (("CLIENT", "SETNAME", "n"), ("CLIENT", "SETNAME", "n")),
        (("client unblock", 3), ("client unblock", 3)),
        (("DBSIZE",), ("DBSIZE",)),
    ],
)  # fmt: skip
def test_keys_get_the_tag_and_nothing_else(command: Any, expected: Any) -> None:
    assert tagged(command, TAG) == expected


def test_no_node_that_answers_is_an_error_that_says_so() -> None:
    nodes = SlotMaster(
        [("127.0.0.1", free_port())], retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    )
    with pytest.raises(redis.ConnectionError, match=r"no node of the cluster .*refused"):
        nodes.discover_master(TAG)


class Answers:
    """A connection with the answers it will read."""

    def __init__(self, *answers: Any) -> None:
        self.sent: list[Any] = []
        self._answers = list(answers)

    def send_command(self, *args: Any) -> None:
        self.sent.append(args)

    def read_response(self) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("command", "answers", "found"),
    [
        ("EVALSHA", ["done", 2], "done"),
        ("SET", ["done", 1], redis.TimeoutError),
        ("EVAL", [redis.ResponseError("no"), 2], redis.ResponseError),
        ("GET", ["done"], "done"),
    ],
)
def test_a_write_is_done_when_enough_replicas_have_it(
    command: str, answers: list[Any], found: Any
) -> None:
    kind: Any = Answers
    make: Any = waiting(kind, replicas=2, timeout_s=1.0)
    connection = make(*answers, "next")
    connection.send_command(command, "k")
    if isinstance(found, str):
        assert connection.read_response() == found
    else:
        with pytest.raises(found):
            connection.read_response()
    assert connection.sent == [(command, "k"), *[("WAIT", 2, 500)] * (len(answers) - 1)]
    assert connection.read_response() == "next"  # each answer is read by who asked for it
