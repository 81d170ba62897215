"""Apps, workers and worker processes on a real broker."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from blimp.queue import TaskApp, Worker
from blimp.queue.redis.client import open_redis
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.inbox import Printed
from tests.queue.server_view import Look
from tests.repeating import until

DEADLINE_S = 60.0  # for what must happen; nothing here waits this long when it works


def wait_until(condition: Any, what: str) -> None:
    """Wait on something that no event tells of."""
    until(condition, what, within_s=DEADLINE_S)


@pytest.fixture(params=["streams"])
def transport(request: pytest.FixtureRequest) -> str:
    """The transport that apps and clients use if they name none."""
    name: str = request.param
    return name


@pytest.fixture
def look(server: redis.Redis, transport: str) -> Look:
    return Look(server=server)


@pytest.fixture
def server(broker_server: EmbeddedBroker) -> Iterator[redis.Redis]:
    """An empty server, and a client of it to look from outside."""
    client = open_redis(broker_server.url, timeout_s=DEADLINE_S)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def url(broker_server: EmbeddedBroker, server: redis.Redis, transport: str) -> str:
    return broker_server.url


@pytest.fixture
def own_broker() -> Iterator[EmbeddedBroker]:
    """A server of the test's own, to be stopped, killed and started."""
    with socket_directory() as directory, EmbeddedBroker(directory=directory / "b") as broker:
        yield broker


@pytest.fixture
def app(url: str) -> Iterator[TaskApp]:
    with TaskApp("tests", broker=url, result_backend=url) as app:
        yield app


@pytest.fixture
def labour(url: str) -> Iterator[TaskApp]:
    """The sender's end of `tests/queue/worn_app.py`."""
    with TaskApp("labour", broker=url, result_backend=url) as app:
        yield app


class Silence:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        def log(event: str, **fields: Any) -> None:
            self.lines.append((level, event, fields))

        return log

    def events(self, event: str) -> list[dict[str, Any]]:
        return [fields for _, name, fields in list(self.lines) if name == event]


class Held:
    """A task's function that goes on when the test lets it; it returns what it was given."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()

    def run(self, value: object = None) -> object:
        self.began.set()
        assert self.go.wait(DEADLINE_S)
        return value


@contextlib.contextmanager
def working(app: TaskApp, **options: Any) -> Iterator[Worker]:
    """Run a worker of `app` in a thread of this process."""
    settings: dict[str, Any] = {"name": "worker", "log": Silence()} | options
    app.events = settings.pop("events", app.events)
    worker = Worker(app=app, **settings)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="worker-main", daemon=True)
    thread.start()
    try:
        assert worker.ready.wait(DEADLINE_S), f"the worker does not consume: {failures}"
        yield worker
    finally:
        worker.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "the worker does not stop"
        assert not failures


class WorkerProcess:
    """`python -m blimp.queue worker` as a process to be killed."""

    def __init__(
        self,
        *,
        url: str,
        directory: Path,
        transport: str,
        app: str = "tests.queue.killed_app:app",
        name: str = "w",
        options: str = "",
        results: str | None = None,
    ) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "blimp.queue", "worker", "-A", app, "--name", name),
                *options.split(),
            ],
            env=os.environ
            | {
                "KILLED_BROKER": url,
                "KILLED_RESULTS": results or url,
                "KILLED_DIRECTORY": str(directory),
                "KILLED_TRANSPORT": transport,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._printed = Printed(self.process.stderr)
        self.lines = self._printed.items

    @property
    def starts(self) -> int:
        """How often it has become ready: a process may restart."""
        return self.lines.count("ready\n")

    def wait_ready(self) -> None:
        assert self._printed.wait_for(lambda: self.starts), "".join(self.lines)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> int:
        status = self.process.wait(DEADLINE_S)
        self._printed.join()
        return status


@pytest.fixture
def start_worker(tmp_path: Path, transport: str) -> Iterator[Callable[..., WorkerProcess]]:
    """Start a process, and wait until it consumes unless `is_ready` is False."""
    started: list[WorkerProcess] = []

    def start(url: str, *, is_ready: bool = True, **options: Any) -> WorkerProcess:
        worker = WorkerProcess(url=url, directory=tmp_path, transport=transport, **options)
        started.append(worker)
        if is_ready:
            worker.wait_ready()
        return worker

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.kill()
