"""Spans of a worker: right parents through retries, callbacks, children and other programs."""

import argparse
import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from opentelemetry import trace as trace_api
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from blimp.config import trace_settings_from_environment
from blimp.errors import ConfigError, TaskFailed
from blimp.queue import AsyncResult, TaskApp, TaskContext, group
from blimp.queue.cli.main import main
from blimp.queue.cli.trace import show
from blimp.queue.extras.observability import open_tracer
from blimp.queue.extras.observability.tracing import Tracer
from blimp.queue.extras.observability.watch import watched
from blimp.queue.protocol.message import PARENT, TaskMessage
from blimp.queue.watching import TraceSettings, Watching
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until, working

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{TRACE}-{SPAN[::-1]}-00"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def spans_of(trace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trace.read_text().splitlines()]


def id_of(span: dict[str, Any]) -> str:
    return str(span["context"]["span_id"])


def runs_of(trace: Path, task: str) -> list[dict[str, Any]]:
    return [
        span
        for span in spans_of(trace)
        if span["name"].startswith("process") and span["attributes"]["blimp.task"] == task
    ]


def test_retries_and_callbacks_belong_to_the_trace(app: TaskApp, trace: Path) -> None:
    @app.task(name="first", bind=True)
    def first(context: TaskContext) -> int:
        if context.message.retries < 2:
            context.retry(countdown=0.0)
        second.delay().get(DEADLINE_S, disable_sync_subtasks=False)
        return 7

    @app.task(name="second")
    async def second() -> None: ...

    @app.task(name="called")
    def called(result: int) -> None:
        raise ValueError(result)

    with watched(app, Watching(trace=TraceSettings(file=str(trace)))), working(app):
        handle = app.send_task(
            "first", link=[{"task": "called", "options": {"task_id": "the-called"}}]
        )
        assert handle.get(timeout=DEADLINE_S) == 7
        app.result("the-called").wait(timeout=DEADLINE_S)
    assert app.tracer is None
    tries = runs_of(trace, "first")
    sends = [span for span in spans_of(trace) if span["name"] == "send tests"]
    assert len({span["context"]["trace_id"] for span in spans_of(trace)}) == 1
    assert [span["attributes"]["blimp.state"] for span in tries] == ["RETRY", "RETRY", "SUCCESS"]
    # The first try's parent is who sent it; each further one's, and what it calls, the one before.
    outer = next(span for span in sends if span["parent_id"] is None)
    inner = next(span for span in sends if span is not outer)
    assert [span["parent_id"] for span in tries] == [id_of(outer), *map(id_of, tries[:2])]
    assert inner["parent_id"] == id_of(tries[2])
    (run,) = runs_of(trace, "second")
    assert run["parent_id"] == id_of(inner)
    (failed,) = runs_of(trace, "called")
    assert failed["parent_id"] == id_of(tries[2])
    assert failed["status"] == {"status_code": "ERROR", "description": "7"}
    assert failed["attributes"]["error.type"] == "ValueError"
    assert all(span["end_time"] >= span["start_time"] for span in spans_of(trace))


def test_a_trace_that_another_program_began_goes_on(app: TaskApp, trace: Path) -> None:
    app.task(name="t")(lambda: None)
    with watched(app, Watching(trace=TraceSettings(file=str(trace)))), working(app):
        app.tracer = None  # who sends knows nothing of traces, and passes on what it was given
        for parent in (GOOD, "nonsense", GOOD.replace("-01", "-00")):
            app.send_task("t", headers={PARENT: parent}).get(timeout=DEADLINE_S)
    good, other = runs_of(trace, "t")  # what its sender does not want sampled is not
    assert (good["context"]["trace_id"], good["parent_id"]) == (f"0x{TRACE}", f"0x{SPAN}")
    assert other["parent_id"] is None


def test_what_is_sent_in_a_request_has_its_span_for_a_parent(app: TaskApp) -> None:
    @app.task(name="t", bind=True)
    def t(context: TaskContext) -> str:
        return str(context.message.headers.get(PARENT))

    async def sent() -> AsyncResult:
        return await t.adelay()

    request = trace_api.NonRecordingSpan(
        trace_api.SpanContext(int(TRACE, 16), int(SPAN, 16), False, trace_api.TraceFlags(1))
    )
    with working(app):
        assert t.delay().get(DEADLINE_S) == "None"
        with trace_api.use_span(request):
            handles = [
                t.delay(),
                asyncio.run(sent()),
                *group([t.s(), t.s()]).apply_async().results,
                *app.send_many([t.s()]),
            ]
            other = t.apply_async(headers={PARENT: OTHER})  # what the caller names is not changed
        assert {one.get(DEADLINE_S) for one in handles} == {GOOD}
        assert other.get(DEADLINE_S) == OTHER


@pytest.mark.parametrize("issued_ms", [-(10**15), 0, 10**15])
def test_a_message_without_an_age_is_traced(issued_ms: int, app: TaskApp, trace: Path) -> None:
    app.task(name="t")(lambda: 7)
    with watched(app, Watching(trace=TraceSettings(file=str(trace)))), working(app):
        app.publisher.publish(TaskMessage(id="a", task="t", queue=app.queue, issued_ms=issued_ms))
        assert app.result("a").get(timeout=DEADLINE_S) == 7
    names = [span["name"] for span in spans_of(trace)]
    assert names == ["wait tests", "process tests"]


@pytest.mark.parametrize("is_at_start", [True, False])
def test_a_processor_that_raises_costs_no_task(
    is_at_start: bool, app: TaskApp, trace: Path
) -> None:
    app.task(name="t")(lambda: 7)
    app.task(name="bad")(lambda: 1 // 0)

    class Evil(SpanProcessor):
        def on_start(self, span: Span, parent_context: Context | None = None) -> None:
            if is_at_start:
                raise RuntimeError("no room")

        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("no room")

    with watched(app, Watching(trace=TraceSettings(file=str(trace)))), working(app):
        assert app.tracer is not None
        assert app.tracer._own is not None
        app.tracer._own.add_span_processor(Evil())
        assert app.send_task("t").get(timeout=DEADLINE_S) == 7
        with pytest.raises(TaskFailed, match="ZeroDivisionError"):
            app.send_task("bad").get(timeout=DEADLINE_S)


def test_spans_of_a_child_process_belong_to_the_run(
    start_worker: Callable[..., WorkerProcess],
    url: str,
    server: redis.Redis,
    trace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BLIMP_TRACE_FILE", str(trace))
    worker = start_worker(
        url, app="tests.queue.extras.observability.logged:app", options="--process-workers 1"
    )
    with TaskApp("logged", broker=url, result_backend=url) as app:
        app.send_task("own.span").get(timeout=DEADLINE_S)
    assert worker.terminate() == 0
    (own,) = [span for span in spans_of(trace) if span["name"] == "own"]
    (run,) = runs_of(trace, "own.span")
    assert own["parent_id"] == id_of(run)
    assert own["resource"]["attributes"]["service.name"] == "logged"


def test_a_restarted_process_and_a_child_that_ends_send_waiting_spans(
    start_worker: Callable[..., WorkerProcess],
    url: str,
    server: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    worker = start_worker(
        url,
        app="tests.queue.extras.observability.logged:app",
        options="--process-workers 1 --max-tasks 1",
    )
    with TaskApp("logged", broker=url, result_backend=url) as app:
        app.send_task("own.span").get(timeout=DEADLINE_S)
        app.send_task("in.thread").get(timeout=DEADLINE_S)
    wait_until(lambda: worker.starts == 2, "it does not restart")
    reported = "".join(worker.lines)
    assert '"name": "own"' in reported
    assert reported.count('"name": "process logged"') == 2
    assert worker.terminate() == 0


def test_a_program_s_own_provider_is_used() -> None:
    program = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from blimp.queue.watching import TraceSettings
from blimp.queue.extras.observability import open_tracer
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
assert open_tracer(TraceSettings(), service="x") == ""
trace.set_tracer_provider(provider)
with open_tracer(TraceSettings(), service="x") as tracer:
    with tracer.span("one"):
        pass
with trace.get_tracer("still open").start_as_current_span("two"):
    pass
assert [span.name for span in spans.get_finished_spans()] == ["one", "two"]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        (TraceSettings(file="/nonexistent/x"), "BLIMP_TRACE_FILE '/nonexistent/x'"),
        (TraceSettings(file="/"), "BLIMP_TRACE_FILE '/'"),
        (TraceSettings(exporters=("nonsense",)), "'nonsense' is not installed"),
        (TraceSettings(exporters=("otlp",)), "pip install opentelemetry-exporter-otlp"),
        (TraceSettings(exporters=("otlp",), protocol="smoke"), "'otlp' is not installed"),
    ],
)
def test_a_bad_destination_of_spans_is_named_at_the_start(
    settings: TraceSettings, reported: str
) -> None:
    with pytest.raises(ConfigError, match=reported):
        open_tracer(settings, service="x")


def test_a_missing_collector_delays_no_process(trace: Path) -> None:
    tracer = open_tracer(TraceSettings(file=str(trace)), service="x")
    assert isinstance(tracer, Tracer)
    with tracer, tracer.span("one"):
        trace.unlink()
    tracer.close()
    with tracer.span("after its end"):
        pass


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, TraceSettings()),
        ({"BLIMP_TRACE_FILE": "x"}, TraceSettings(file="x")),
        ({"BLIMP_TRACE_FILE": "x", "OTEL_SDK_DISABLED": "True"}, TraceSettings()),
        ({"OTEL_TRACES_EXPORTER": "none"}, TraceSettings()),
        (
            {"OTEL_TRACES_EXPORTER": " console, otlp ,", "OTEL_SERVICE_NAME": "me"},
            TraceSettings(exporters=("console", "otlp"), is_named=True),
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            },
            TraceSettings(exporters=("otlp",), protocol="grpc"),
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_TRACES_EXPORTER": "none"}, TraceSettings()),
    ],
)
def test_the_environment_chooses_the_exporters(
    environment: dict[str, str], expected: TraceSettings
) -> None:
    assert trace_settings_from_environment(environment) == expected


def test_a_file_is_shown_as_trees(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        Tracer(TraceSettings(file=str(trace)), service="pad") as tracer,
        tracer.span("ground arm"),
        tracer.span("evil \x1b[2J"),
    ):
        pass
    with trace.open("a") as lines:
        lines.write('no span\n{}\n[]\n{"name": 1}\n' + "[" * 5000 + "\n")
        lines.write(re.sub(r'Z"', '"', trace.read_text().splitlines()[0]) + "\n")  # no time zone
    assert main(["trace", str(trace)]) == 0
    out, err = capsys.readouterr()
    first, root, child = out.splitlines()
    assert first.startswith("trace ")
    assert "ms  ground arm " in root
    assert "ms    evil \\x1b[2J " in child
    assert root.endswith("pad")
    assert err == "6 lines are not spans\n"
    assert main(["trace", str(trace), "--id", "zz"]) == 0
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigError, match="trace '/nonexistent'"):
        show(None, argparse.Namespace(file=Path("/nonexistent"), id=""))
