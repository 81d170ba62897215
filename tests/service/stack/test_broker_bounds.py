"""Clients that have the broker keep as much as they can: it stays small, and stops pass."""

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from blimp.queue import TaskApp
from blimp.service.stack.broker import MAX_CLIENTS_MIB, MIB, client_limits
from blimp.tasks.client import VehicleClient
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.repeating import repeating

MEGABYTE = b"x" * 1_000_000
SENT = 450  # megabytes: what an attack would have the server keep
SPARE_MIB = 48  # the allocator's, and what one turn of the loop takes before the limits are checked
Attack = Callable[["Clients"], None]


class Clients:
    """Raw connections to a server, that end with the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: list[socket.socket] = []

    def connect(self) -> socket.socket:
        one = socket.socket(socket.AF_UNIX)
        self._open.append(one)
        one.settimeout(1.0)
        one.connect(str(self.path))
        return one

    def close(self) -> None:
        for one in self._open:
            one.close()


def send(client: socket.socket, *words: bytes, times: int = 1) -> None:
    """Send until the server closes the connection, or does not read any more."""
    with contextlib.suppress(OSError):
        for _ in range(times):
            client.sendall(b"".join(words))


def argument(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def an_argument_without_an_end(clients: Clients) -> None:
    client = clients.connect()
    send(client, b"*3\r\n", argument(b"SET"), argument(b"k"), b"$%d\r\n" % (SENT * 1_000_000))
    send(client, MEGABYTE, times=SENT - 1)


def a_command_without_an_end(clients: Clients) -> None:
    client = clients.connect()
    send(client, b"*%d\r\n" % (SENT + 2), argument(b"MSET"))
    send(client, argument(MEGABYTE), times=SENT)


def a_transaction_without_an_end(clients: Clients) -> None:
    client = clients.connect()
    send(client, b"*1\r\n", argument(b"MULTI"))
    send(client, b"*3\r\n", argument(b"SET"), argument(b"k"), argument(MEGABYTE), times=SENT)


def many_clients(clients: Clients) -> None:
    for _ in range(SENT):
        head = (b"*3\r\n", argument(b"SET"), argument(b"k"), b"$%d\r\n" % (len(MEGABYTE) + 1))
        send(clients.connect(), *head, MEGABYTE)


def answers_that_nobody_reads(clients: Clients) -> None:
    with redis.Redis(unix_socket_path=str(clients.path)) as owner:
        owner.set("long", MEGABYTE)
    send(clients.connect(), b"*2\r\n", argument(b"GET"), argument(b"long"), times=SENT)


def channels_that_nobody_reads(clients: Clients) -> None:
    send(clients.connect(), b"*2\r\n", argument(b"SUBSCRIBE"), argument(b"c"))
    with redis.Redis(unix_socket_path=str(clients.path)) as owner:
        for _ in range(SENT):
            owner.publish("c", MEGABYTE)


ATTACKS: tuple[Attack, ...] = (
    an_argument_without_an_end,
    a_command_without_an_end,
    a_transaction_without_an_end,
    many_clients,
    answers_that_nobody_reads,
    channels_that_nobody_reads,
)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with socket_directory() as home, EmbeddedBroker(directory=home / "b") as broker:
        yield broker


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / MIB


@contextlib.contextmanager
def watched(pid: int) -> Iterator[list[float]]:
    """Yield a list whose only value is the most memory that the process has had."""
    most = [resident_mib(pid)]

    def watch() -> None:
        most[0] = max(most[0], resident_mib(pid))

    with repeating(watch, period_s=0.002):
        yield most


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_client_cannot_make_the_broker_large_and_stops_pass(
    broker: EmbeddedBroker, attack: Attack
) -> None:
    path = broker.url.removeprefix("redis+socket://").partition("?")[0]
    clients = Clients(Path(path))
    with TaskApp("blimp.twin", broker=broker.url, result_backend=broker.url) as app:
        app.on_broadcast("estop")(lambda _: {})
        with working(app), VehicleClient(broker.url, "twin") as ground:
            before = resident_mib(broker.pid)
            try:
                with watched(broker.pid) as most:
                    thread = threading.Thread(target=attack, args=(clients,))
                    thread.start()
                    stops = 0
                    while thread.is_alive() or not stops:
                        assert ground.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
                        stops += 1
                    thread.join()
                    assert ground.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
                assert most[0] - before < MAX_CLIENTS_MIB + SPARE_MIB
            finally:
                clients.close()


def test_the_longest_answer_and_message_pass(broker: EmbeddedBroker) -> None:
    """128 messages of 1 MB wait, and a worker takes them at once."""
    ran: list[int] = []
    with TaskApp("tests", broker=broker.url) as app:
        app.task(name="note", ignore_result=True)(lambda number, _: ran.append(number))
        for number in range(128):
            app.send_task("note", (number, "x" * 990_000))
        with working(app, prefetch=128):
            wait_until(lambda: len(ran) == 128, "a message did not run")


def test_the_documents_have_the_limits_that_the_code_has() -> None:
    text = (Path(__file__).parents[3] / "docs" / "pilots.md").read_text()
    for name, value in client_limits("valkey", 9).items():
        for number in value.split():
            shown = f"{int(number) // MIB}mb" if number.isdigit() and int(number) else number
            value = value.replace(number, shown)
        assert re.search(rf"^    {name} {value}( |$)", text, flags=re.MULTILINE)
    assert "min-string-size-avoid-copy-reply" not in client_limits("redis", 8)
    assert "min-string-size-avoid-copy-reply" not in client_limits("valkey", 8)
