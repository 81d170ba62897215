"""A broker whose disk is full: what it refuses, and that it goes on when there is room."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from blimp.link.paths import socket_path
from blimp.service.stack.broker import answers, find_server_binary
from blimp.service.stack.broker_files import BrokerFiles
from tests.broker import EmbeddedBroker
from tests.disk import Disk, small_disk
from tests.queue.conftest import wait_until

PUBLISH, XADD = "redis.call('PUBLISH', 'c', 'x')", "redis.call('XADD', 's', '*', 'a', 'b')"
# docs/faults.md has this table. PING is among them, and all that takes a message from a queue.
REFUSED: tuple[tuple[str, ...], ...] = (
    ("PING",), ("XADD", "s", "*", "a", "b"), ("SET", "k", "v"), ("DEL", "k"), ("EXPIRE", "k", "9"),
    ("XREADGROUP", "GROUP", "g", "w", "COUNT", "1", "STREAMS", "s", ">"), ("XACK", "s", "g", "1-1"),
    ("XCLAIM", "s", "g", "w", "0", "1-1"), ("XDEL", "s", "1-1"), ("EVAL", XADD, "1", "s"),
)  # fmt: skip
ANSWERED: tuple[tuple[str, ...], ...] = (
    ("PUBLISH", "c", "x"), ("EVAL", f"return {PUBLISH}", "0"), ("XREAD", "STREAMS", "s", "0"),
    ("XRANGE", "s", "-", "+"), ("GET", "k"), ("TIME",), ("INFO", "server"), ("SCAN", "0"),
)  # fmt: skip


class Server:
    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.broker = EmbeddedBroker(directory=disk.path / "b")
        self.path = socket_path(disk.path / "b")
        self.client: Any = redis.Redis(unix_socket_path=str(self.path))

    def is_refused(self, *words: str) -> bool:
        try:
            self.client.execute_command(*words)
        except redis.ResponseError as error:
            return "MISCONF Errors writing to the AOF file: No space left" in str(error)
        return False

    def fill(self) -> None:
        self.disk.fill()
        wait_until(lambda: self.is_refused("SET", "last", "x" * 10_000), "it refuses nothing")


@pytest.fixture
def server() -> Iterator[Server]:
    with small_disk(mib=4) as disk:
        server = Server(disk)
        with server.broker:
            server.client.xadd("s", {"a": "b"}, id="1-1")
            server.client.xgroup_create("s", "g", "0")
            yield server
            server.client.close()


def test_what_a_full_disk_refuses_and_that_it_goes_on_with_room(server: Server) -> None:
    assert answers(server.path)
    server.fill()
    assert [words for words in REFUSED if not server.is_refused(*words)] == []
    assert [words for words in ANSWERED if server.is_refused(*words)] == []
    assert answers(server.path), "it runs, so nobody may restart it, nor wait for it"
    server.disk.free()
    wait_until(lambda: not server.is_refused("SET", "k", "after"), "it goes on refusing")
    os.kill(server.broker.pid, 9)
    wait_until(lambda: server.broker.poll() is not None, "it does not die")
    with server.broker:
        assert server.client.xlen("s") == 1
        assert server.client.get("k") == b"after"


def test_a_broker_that_dies_on_a_full_disk_starts_on_it_and_has_what_was_written(
    server: Server,
) -> None:
    server.fill()
    os.kill(server.broker.pid, 9)
    wait_until(lambda: server.broker.poll() is not None, "it does not die")
    BrokerFiles(server.disk.path / "b", binary=find_server_binary()).mend()
    with server.broker:
        assert answers(server.path)
        assert server.client.xlen("s") == 1
        server.disk.free()
        wait_until(lambda: not server.is_refused("SET", "k", "v"), "it goes on refusing")
