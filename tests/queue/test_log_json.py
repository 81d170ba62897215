"""Lines of JSON: which task they name, and that no value breaks one."""

import collections
import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from blimp.queue import TaskApp
from blimp.queue.log import JsonLogs, StderrHandler, to_line
from blimp.queue.protocol.message import PARENT, TaskMessage
from tests.queue.conftest import DEADLINE_S, WorkerProcess

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def logs() -> Iterator[JsonLogs]:
    logs = JsonLogs(vehicle="twin")
    logs.install()
    yield logs
    logs.uninstall()


@pytest.fixture
def alone(logs: JsonLogs, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes our handler the only one: pytest's own raise for bad arguments."""

    def leave() -> None:
        root = logging.getLogger()
        ours = [one for one in root.handlers if type(one) is StderrHandler]
        assert len(ours) == 1
        monkeypatch.setattr(root, "handlers", ours)

    return leave


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_lines_of_every_pool_name_their_task(
    start_worker: Callable[..., WorkerProcess], url: str, server: redis.Redis
) -> None:
    worker = start_worker(
        url,
        app="tests.queue.observability.logged:app",
        options="--log-format json --process-workers 1",
    )
    headers = {PARENT: f"00-{TRACE}-{SPAN}-01", "blimp_vehicle": "twin"}
    with TaskApp("logged", broker=url, result_backend=url) as app:
        ids = {}
        for name in ("in.thread", "in.loop", "in.process"):
            handle = app.send_task(name, headers=headers)
            handle.wait(timeout=DEADLINE_S)
            ids[name] = handle.id
    assert worker.terminate() == 0
    lines = [json.loads(line) for line in worker.lines if line != "ready\n"]
    assert [one["event"] for one in lines if "task" not in one] == ["consuming", "stopped"]
    assert {one["worker"] for one in lines} == {"w"}
    reported = [one for one in lines if "task" in one]
    assert [(one["task"], one["event"], one["level"]) for one in reported] == [
        ("in.thread", "standard words", "info"),
        ("in.loop", "standard words", "info"),
        ("in.process", "standard words", "info"),
        ("in.process", "task", "error"),
    ]
    for one in reported:
        assert one["id"] == ids[one["task"]]
        assert (one["trace_id"], one["span_id"]) == (TRACE, SPAN)
        assert (one["vehicle"], one["queue"], one["delivery"]) == ("twin", "logged", 1)
        assert list(one)[:3] == ["timestamp", "level", "event"]
    assert reported[3]["reason"] == "ValueError: raised in the worker"


def test_lines_outside_of_a_task_do_not_name_it(
    logs: JsonLogs, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logs.make(worker="pad")
    with logs.bound(TaskMessage(id="a-1", task="read", queue="q", headers={PARENT: "nonsense"})):
        log.info("inside")
        logging.getLogger("x").warning("also inside")
    log.info("outside", task="another")
    inside, also, outside = lines_of(capsys)
    assert (inside["task"], inside["id"], inside["vehicle"]) == ("read", "a-1", "twin")
    assert "trace_id" not in inside
    assert (also["task"], also["logger"], also["worker"]) == ("read", "x", "pad")
    assert outside["task"] == "another"
    assert "id" not in outside


class Evil:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class EvilMapping(collections.UserDict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("changed")


class EvilText(str):
    def __str__(self) -> str:
        raise RuntimeError("no text")


LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: list[Any] = []
for _ in range(10_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "evil",
    [
        Evil(), EvilMapping(), EvilText("x"), float("nan"), float("-inf"), 10**5000, b"\xff",
        "\ud800", "a\nb\u2028\x1b[2J", LOOP, DEEP, {1: {Evil(): Evil()}}, {(1, 2): 3}, {1, 2},
        object(), ValueError("x"), range(10**9), list(range(10**5)), "x" * 10**6, 1j,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_no_value_makes_a_log_call_fail(
    evil: Any,
    logs: JsonLogs,
    alone: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone()
    logs.make(worker="pad").error("said", value=evil, values=[evil])
    logging.getLogger("x").error("%s", evil)
    found = lines_of(capsys)
    assert len(found) == 2
    assert found[0]["event"] == "said"
    assert len(to_line({"value": evil})) < 100_000


def test_arguments_that_do_not_fit_are_logged_all_the_same(
    logs: JsonLogs, alone: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    alone()
    logging.getLogger("x").error("%d of %s", "one")
    try:
        raise OSError("bus gone")
    except OSError:
        logs.make().exception("middleware")
        logging.getLogger("x").exception("again")
    first, second, third = lines_of(capsys)
    assert first["event"] == "%d of %s"
    for one in (second, third):
        assert one["exception"].endswith("OSError: bus gone")


def test_a_closed_stream_makes_no_log_call_fail(
    logs: JsonLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    logs.make().error("name lost")
    logging.getLogger("x").error("also lost")


def test_extras_are_imported_only_on_request() -> None:
    program = """
import sys
import blimp.queue.worker.worker, blimp.service.work
import blimp.queue.observability.watch, blimp.queue.cli.main
for name in ("structlog", "prometheus_client", "http.server", "blimp.queue.observability.tracing"):
    assert name not in sys.modules, name
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
