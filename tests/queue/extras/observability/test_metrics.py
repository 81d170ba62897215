"""What a scraper sees of a worker, of its queues, and of an unreachable broker."""

import contextlib
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from blimp.errors import ConfigError, Reject
from blimp.queue import TaskApp, TaskContext, Worker
from blimp.queue.cli.main import main
from blimp.queue.extensions import WORKER_EXTENSIONS
from blimp.queue.extras.observability.metrics import Metrics
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S, Held, Silence, WorkerProcess, working
from tests.signals import stop_process

Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(port: int) -> Figures:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def figure(figures: Figures, name: str, **labels: str) -> float | None:
    return figures.get((name, tuple(sorted(labels.items()))))


def until(port: int, holds: Callable[[Figures], bool]) -> Figures:
    """Scrape until it holds: what is in the queues is read no oftener than twice a second."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds(found := scrape(port)):
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)
    return found


def named(figures: Figures, prefix: str) -> list[str]:
    return sorted({name for name, _ in figures if name.startswith(prefix)})


def test_outcomes_are_counted_and_measured(app: TaskApp) -> None:
    app.settings = msgspec.structs.replace(app.settings, unknown_task_wait_s=0.0)

    @app.task(name="ok")
    def ok() -> None: ...

    @app.task(name="bad")
    def bad() -> None:
        raise ValueError("no")

    @app.task(name="again", bind=True)
    def again(context: TaskContext) -> None:
        if context.message.retries < 2:
            context.retry(countdown=0.0)

    @app.task(name="put.back", bind=True)
    def put_back(context: TaskContext) -> None:
        if context.deliveries == 1:
            raise Reject("once more", requeue=True)

    with Metrics(app, port=0) as metrics, working(app):
        until(metrics.port, lambda found: figure(found, "blimp_broker_up") == 1.0)
        handles = [ok.delay(), ok.delay(), bad.delay(), again.delay(), put_back.delay()]
        handles.append(app.send_task("no.such.task", expires=0.2))
        for handle in handles:
            handle.wait(timeout=DEADLINE_S)
        found = until(
            metrics.port,
            lambda found: (
                figure(found, "blimp_tasks_ended_total", task="put.back", state="SUCCESS") == 1.0
                and figure(found, "blimp_worker_in_flight") == 0.0
            ),
        )
    expected: dict[str, Any] = {
        "ended_total": [
            (("ok", "SUCCESS"), 2.0), (("bad", "FAILURE"), 1.0), (("again", "RETRY"), 2.0),
            (("again", "SUCCESS"), 1.0), (("put.back", "SUCCESS"), 1.0),
        ],
    }  # fmt: skip
    for (task, state), count in expected["ended_total"]:
        assert figure(found, "blimp_tasks_ended_total", task=task, state=state) == count
        for kind in ("latency", "runtime"):
            name = f"blimp_tasks_{kind}_seconds"
            assert figure(found, f"{name}_count", task=task, state=state) == count
            assert figure(found, f"{name}_bucket", task=task, state=state, le="+Inf") == count
            total_s = figure(found, f"{name}_sum", task=task, state=state)
            assert total_s is not None
            assert 0.0 <= total_s < DEADLINE_S
    assert figure(found, "blimp_tasks_redelivered_total", task="put.back") == 1.0
    assert figure(found, "blimp_tasks_received_total", task="ok") == 2.0
    assert figure(found, "blimp_tasks_started_total", task="put.back") == 2.0
    assert figure(found, "blimp_worker_rejected_total", reason="unknown_task") == 1.0
    tasks = {dict(labels)["task"] for _, labels in found if "task" in dict(labels)}
    assert tasks == {"ok", "bad", "again", "put.back"}  # what is no task makes no label
    assert figure(found, "blimp_worker_pool_size", pool="thread") == 8.0
    assert figure(found, "blimp_worker_pool_busy", pool="thread") == 0.0


def test_queues_are_shown_by_priority(app: TaskApp, server: redis.Redis) -> None:
    held = Held()
    hold = app.task(name="hold")(held.run)
    with Metrics(app, port=0) as metrics, working(app, prefetch=1, sync_workers=1):
        hold.delay()
        assert held.began.wait(DEADLINE_S)
        hold.apply_async(priority=9)
        hold.apply_async(priority=9)
        hold.apply_async(countdown=3600.0)
        try:
            low = {"queue": "tests", "priority": "low"}
            found = until(
                metrics.port,
                lambda found: (
                    figure(found, "blimp_queue_messages", **low, state="ready") == 2.0
                    and figure(found, "blimp_queue_scheduled_messages", queue="tests") == 1.0
                ),
            )
            normal = {"queue": "tests", "priority": "normal"}
            assert figure(found, "blimp_queue_messages", **normal, state="in_flight") == 1.0
            assert figure(found, "blimp_queue_messages", **normal, state="ready") == 0.0
            assert figure(found, "blimp_queue_oldest_message_age_seconds", **normal) is None
            age_s = figure(found, "blimp_queue_oldest_message_age_seconds", **low)
            assert age_s is not None
            assert 0.0 <= age_s < DEADLINE_S
            assert figure(found, "blimp_queue_dead_letters", queue="tests") == 0.0
            assert figure(found, "blimp_worker_pool_busy", pool="thread") == 1.0
            server.set("blimp:queue:tests:level:0", "not a stream")
            found = until(
                metrics.port,
                lambda found: (
                    figure(
                        found,
                        "blimp_queue_messages",
                        queue="tests",
                        priority="emergency",
                        state="ready",
                    )
                    is None
                ),
            )
            assert figure(found, "blimp_queue_messages", **low, state="ready") == 2.0
            server.delete("blimp:queue:tests:level:0")
        finally:
            held.go.set()


def test_a_broker_that_is_not_redis_shows_what_waits() -> None:
    with TaskApp("plain", broker="memory://") as app, Metrics(app, port=0) as metrics:
        app.task(name="t")(len)
        with working(app):
            found = until(metrics.port, lambda found: figure(found, "blimp_broker_up") == 1.0)
    ready = {"queue": "plain", "priority": "all", "state": "ready"}
    assert figure(found, "blimp_queue_messages", **ready) == 0.0


def test_a_stopped_broker_does_not_delay_the_page(own_broker: EmbeddedBroker) -> None:
    with TaskApp("still", broker=own_broker.url) as app, Metrics(app, port=0) as metrics:
        app.task(name="t")(len)
        with working(app):
            until(metrics.port, lambda found: figure(found, "blimp_broker_up") == 1.0)
            stop_process(own_broker.pid)
            try:
                found = until(metrics.port, lambda found: figure(found, "blimp_broker_up") == 0.0)
                began_s = time.monotonic()
                for _ in range(3):
                    scrape(metrics.port)
                assert time.monotonic() - began_s < DEADLINE_S / 2  # it waits for none
            finally:
                os.kill(own_broker.pid, signal.SIGCONT)
            assert named(found, "blimp_queue") == []
            assert "blimp_tasks_received" not in named(found, "blimp_tasks")
            assert figure(found, "blimp_worker_pool_size", pool="loop") == 16.0
            until(metrics.port, lambda found: figure(found, "blimp_broker_up") == 1.0)


def test_resource_pools_are_shown(app: TaskApp) -> None:
    @app.task(name="fly", requires="ships")
    def fly() -> None: ...

    pool = app.pools["ships"]
    pool.add("one")
    pool.add("two")
    grant = pool.acquire("somebody")
    pool.release(grant.ticket)
    pool.release(grant.ticket)
    with Metrics(app, port=0) as metrics, working(app):
        found = until(
            metrics.port,
            lambda found: figure(found, "blimp_pool_resources", pool="ships", state="free") == 2.0,
        )
    assert figure(found, "blimp_pool_double_released_total", pool="ships") == 1.0
    assert figure(found, "blimp_pool_lost_total", pool="ships") == 0.0


class TestThePage:
    @pytest.fixture
    def port(self, app: TaskApp) -> Any:
        app.task(name="t")(len)
        with Metrics(app, port=0) as metrics:
            Worker(app=app, name="w", log=Silence())
            yield metrics.port

    def test_garbage_does_no_harm(self, port: int) -> None:
        for evil in (
            b"",
            b"\r\n\r\n",
            b"\x00" * 1000 + b"\r\n",
            b"GET\r\n",
            b"GET /metrics HTTP/9.9\r\n\r\n",
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
                client.sendall(evil)
                with contextlib.suppress(OSError):  # it may have hung up already
                    client.shutdown(socket.SHUT_WR)
                    assert b"200 OK" not in client.recv(4096)
        assert figure(scrape(port), "blimp_broker_up") == 1.0

    @pytest.mark.parametrize(
        ("verb", "path", "status"),
        [("GET", "/metrics?x=1", 200), ("POST", "/metrics", 405), ("GET", "//[/metrics", 200)],
    )
    def test_only_reading_is_allowed(self, port: int, verb: str, path: str, status: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
            client.sendall(f"{verb} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert client.recv(12) == f"HTTP/1.0 {status}".encode()

    def test_silent_clients_do_not_keep_others_out(self, port: int) -> None:
        with contextlib.ExitStack() as silent:
            for _ in range(3):  # each is waited for, READ_S at most
                silent.enter_context(socket.create_connection(("127.0.0.1", port)))
            assert figure(scrape(port), "blimp_broker_up") == 1.0

    def test_a_slow_client_is_closed(self, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        # Of this client alone: another on a loaded machine is slower than that without any fault.
        with monkeypatch.context() as short:
            short.setattr("blimp.queue.extras.observability.metrics.REQUEST_S", 0.2)
            with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
                client.settimeout(0.02)
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
                deadline_s = time.monotonic() + DEADLINE_S
                with contextlib.suppress(ConnectionError):
                    while time.monotonic() < deadline_s:
                        client.sendall(b"x")
                        with contextlib.suppress(TimeoutError):
                            if client.recv(1) == b"":
                                break
                assert time.monotonic() < deadline_s
        assert figure(scrape(port), "blimp_broker_up") == 1.0

    def test_a_port_that_is_taken_is_named_at_the_start(
        self, port: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with TaskApp("other", broker="redis://localhost") as app:
            with pytest.raises(ConfigError, match=rf"metrics at 127\.0\.0\.1:{port}: .*in use"):
                Metrics(app, port=port)
            assert app.extensions == list(WORKER_EXTENSIONS)
        words = ["worker", "-A", "tests.queue.killed_app:app", "--metrics-port", str(port)]
        os.environ.setdefault("KILLED_BROKER", "redis://localhost")
        assert main(words) == 2
        assert "in use" in capsys.readouterr().err

    @pytest.mark.parametrize("bad", ["-1", "65536", "x", "", "1.5", "٣"])
    def test_an_invalid_port_is_refused(self, bad: str) -> None:
        with pytest.raises(SystemExit) as stopped:
            main(["worker", "-A", "tests.queue.killed_app:app", f"--metrics-port={bad}"])
        assert stopped.value.code == 2

    def test_an_address_of_another_machine_is_refused(self) -> None:
        with TaskApp("other", broker="redis://localhost") as app:
            for bad in ("192.0.2.1", "no such host", "::zz", ""):
                if bad:
                    with pytest.raises(ConfigError, match="metrics at"):
                        Metrics(app, port=0, address=bad)


def test_the_command_line_serves_them(
    start_worker: Callable[..., WorkerProcess], url: str, server: redis.Redis
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    worker = start_worker(url, options=f"--metrics-port {port}")
    found = until(port, lambda found: figure(found, "blimp_broker_up") == 1.0)
    assert named(found, "process_resident") == ["process_resident_memory_bytes"]
    assert worker.terminate() == 0
