"""Lines of JSON: which task they name, and that no value breaks one."""

import collections
import json
import logging
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blimp.queue import TaskApp
from blimp.queue.log import StderrHandler, TaskLogs, to_line
from blimp.queue.protocol.message import PARENT
from tests.forked import ran
from tests.queue.conftest import DEADLINE_S, WorkerProcess

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def logs() -> Iterator[TaskLogs]:
    logs = TaskLogs(vehicle="twin")
    logs.install()
    yield logs
    logs.uninstall()


@pytest.fixture
def alone(logs: TaskLogs, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes our handler the only one: pytest's own raise for bad arguments."""

    def leave() -> None:
        root = logging.getLogger()
        ours = [one for one in root.handlers if type(one) is StderrHandler]
        assert len(ours) == 1
        monkeypatch.setattr(root, "handlers", ours)

    return leave


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("form", ["json", "text"])
def test_lines_of_every_pool_name_their_task(
    form: str, start_worker: Callable[..., WorkerProcess], url: str
) -> None:
    worker = start_worker(
        url,
        app="tests.queue.extras.observability.logged:app",
        options=f"--log-format {form} --process-workers 1",
    )
    headers = {PARENT: f"00-{TRACE}-{SPAN}-01", "blimp_vehicle": "twin"}
    with TaskApp("logged", broker=url, result_backend=url) as app:
        ids = {}
        for name in ("in.thread", "in.loop", "in.process"):
            handle = app.send_task(name, headers=headers)
            handle.wait(timeout=DEADLINE_S)
            ids[name] = handle.id
    assert worker.terminate() == 0
    written = [line for line in worker.lines if line != "ready\n"]
    read = json.loads if form == "json" else read_pairs
    lines = [read(line) for line in written]
    assert [one["event"] for one in lines if "task" not in one] == ["consuming", "stopped"]
    reported = [one for one in lines if "task" in one]
    warned = "UserWarning: old words"
    assert [(one["task"], one["event"].split(" (")[0], one["level"]) for one in reported] == [
        ("in.thread", "standard words", "info"),
        ("in.thread", warned, "warning"),
        ("in.loop", "standard words", "info"),
        ("in.loop", warned, "warning"),
        ("in.process", "standard words", "info"),
        ("in.process", warned, "warning"),
        ("in.process", "task", "error"),
    ]
    assert all(one["id"] == ids[one["task"]] for one in reported)
    assert reported[-1]["reason"] == "ValueError: raised in the worker"
    if form == "text":
        return
    assert {one["worker"] for one in lines} == {"w"}
    for one in reported:
        assert (one["trace_id"], one["span_id"]) == (TRACE, SPAN)
        assert (one["vehicle"], one["queue"], one["delivery"]) == ("twin", "logged", 1)
        assert list(one)[:3] == ["timestamp", "level", "event"]


def read_pairs(line: str) -> dict[str, str]:
    return dict(one.split("=", 1) for one in shlex.split(line))


def shown(said: str) -> list[tuple[str, str]]:
    """Return the logger and text of each line of ours."""
    pairs = [read_pairs(line) for line in said.splitlines() if line.startswith("timestamp=")]
    return [(one["logger"], one["event"]) for one in pairs]


@pytest.mark.parametrize(
    ("settings", "expected", "others"),
    [
        ("", [("shop.orders", "shipped"), ("shop.orders", "low"), ("other", "said")], ""),
        (
            "logging.info('alone')",  # which adds a handler, as nobody has
            [("shop.orders", "shipped"), ("shop.orders", "low"), ("other", "said")],
            "",
        ),
        (
            "logging.getLogger('shop').addHandler(logging.NullHandler())",
            [("shop.orders", "shipped"), ("shop.orders", "low"), ("other", "said")],
            "",
        ),
        ("logging.basicConfig(level='INFO', format='MY %(message)s')", [],
         "MY shipped\nMY low\nMY said\n"),
        ("logging.basicConfig(format='MY %(message)s')", [], "MY low\n"),
        (
            "logging.getLogger('shop').addHandler(logging.StreamHandler())",
            [("other", "said")],
            "shipped\nlow\n",
        ),
        (
            "logging.getLogger().setLevel('ERROR')",
            [],
            "",
        ),
    ],
)  # fmt: skip
def test_the_settings_of_a_program_stand(
    settings: str, expected: list[tuple[str, str]], others: str
) -> None:
    program = f"""
import logging
from blimp.queue.log import TaskLogs
{settings}
with TaskLogs(form="text").installed():
    logging.getLogger("shop.orders").info("shipped")
    logging.getLogger("shop.orders").warning("low")
    logging.getLogger("other").info("said")
"""
    done = ran([sys.executable, "-c", program], check=True, timeout=30)
    assert shown(done.stderr) == expected
    assert (
        "".join(
            f"{line}\n" for line in done.stderr.splitlines() if not line.startswith("timestamp=")
        )
        == others
    )


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
    logs: TaskLogs,
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


def test_extras_are_imported_only_on_request() -> None:
    program = """
import sys
import blimp.queue.worker.worker, blimp.service.work
import blimp.queue.extras.observability.watch, blimp.queue.cli.main
tracing = "blimp.queue.extras.observability.tracing"
for name in ("structlog", "prometheus_client", "http.server", tracing):
    assert name not in sys.modules, name
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
