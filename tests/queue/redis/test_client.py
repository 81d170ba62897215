"""What is required of a server's settings before a message is trusted to it."""

import contextlib
import sys
from collections.abc import Iterator

import pytest

from blimp.errors import ConfigError, LinkError
from blimp.queue import TaskApp, Worker
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.forked import ran
from tests.queue.conftest import Silence, wait_until, working

SENT = 4000


@contextlib.contextmanager
def server(**settings: str) -> Iterator[EmbeddedBroker]:
    options = {name.replace("_", "-"): value for name, value in settings.items()}
    with (
        socket_directory() as directory,
        EmbeddedBroker(directory=directory / "b", options=options) as broker,
    ):
        yield broker


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_evicts_is_refused_by_publisher_and_worker(policy: str) -> None:
    with server(maxmemory_policy=policy) as broker, TaskApp("tests", broker=broker.url) as app:
        reason = rf"maxmemory-policy {policy}: .*set maxmemory-policy noeviction"
        with pytest.raises(ConfigError, match=reason):
            app.send_task("add")
        with pytest.raises(ConfigError, match=reason):
            Worker(app=app, name="worker", log=Silence()).run()


def test_every_confirmed_message_runs_on_a_full_server() -> None:
    """With allkeys-lru, 355 of these 4,000 ran, without a word."""
    ran: list[int] = []
    refused = 0
    with (
        server(maxmemory="6mb", save="") as broker,
        TaskApp("tests", broker=broker.url, retry=False) as app,
    ):
        app.task(name="note", ignore_result=True)(lambda number, _: ran.append(number))
        sent = []
        for number in range(SENT):
            try:
                app.send_task("note", (number, "x" * 2000))
            except LinkError:
                refused += 1
            else:
                sent.append(number)
        with working(app):
            wait_until(lambda: len(ran) >= len(sent), "a confirmed message did not run")
    assert refused, "the server was not full"
    assert sorted(ran) == sent


@pytest.mark.parametrize(("appendonly", "warnings"), [("no", 1), ("yes", 0)])
def test_a_server_without_an_append_only_file_is_a_warning(appendonly: str, warnings: int) -> None:
    log = Silence()
    with (
        server(appendonly=appendonly) as broker,
        TaskApp("tests", broker=broker.url) as app,
        working(app, log=log),
    ):
        pass
    said = [event for level, event, _ in log.lines if level == "warning"]
    assert len([event for event in said if "appendonly no" in event]) == warnings


def test_an_app_that_asks_no_server_loads_no_client_and_no_event_loop() -> None:
    """redis-py takes half of the time that it takes to make an app, and 13 MB."""
    code = (
        "import sys; from blimp.queue import TaskApp; "
        "TaskApp('tests', broker='redis://h', result_backend='redis://h'); "
        "print(*{'redis', 'asyncio', 'kombu'} & {*sys.modules})"
    )
    done = ran([sys.executable, "-c", code], check=True)
    assert done.stdout.split() == []
