"""Dead letters are bounded in number and in bytes."""

from typing import Any

from blimp.queue import TaskApp
from blimp.queue.redis.keys import Keys
from tests.queue.conftest import wait_until, working
from tests.queue.server_view import Look


def test_the_oldest_dead_letters_go_when_they_take_too_many_bytes(url: str, look: Look) -> None:
    with TaskApp("tests", broker=url, max_dead_letter_bytes=200_000) as app:
        for number in range(60):
            look.push_raw("tests", b"not json %d" % number, b"x" * 10_000)
        with working(app) as worker:
            wait_until(lambda: worker.counts["unreadable"] == 60, "not all were dropped")
    dead = Keys().queue("tests").dead
    client: Any = look.server
    assert client.memory_usage(dead, samples=0) <= 220_000
    assert 5 <= look.dead() < 60
    (_, newest) = client.xrevrange(dead, count=1)[0]
    assert newest[b"h"] == b"not json 59"
