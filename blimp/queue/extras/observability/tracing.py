"""Spans by OpenTelemetry: one trace from the program that sends a task to what the task does.

Imported only by a process that traces. Names and attributes are those of OpenTelemetry's
semantic conventions for messaging.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from blimp.closing import Closing
from blimp.errors import ConfigError, LinkError
from blimp.queue.log import running_message
from blimp.queue.protocol.message import trace_headers
from blimp.queue.watching import TraceSettings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span

    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.worker.job import CallNext, Job

CLOSE_S = 2.0  # for spans that still wait: no process waits longer for their collector
SYSTEM = "blimp"
EXPORTERS = "opentelemetry_traces_exporter"  # the group of entry points
OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}

_propagator = TraceContextTextMapPropagator()


class OwnProvider(TracerProvider):
    """One that a Tracer made, and closes with itself."""


class Tracer(Closing):
    """Makes the spans of this process. Thread-safe; close is idempotent.

    A program that has set up OpenTelemetry itself keeps its provider, and spans go there.
    Raises ConfigError for an unknown exporter, or a file that cannot be written.
    """

    def __init__(self, settings: TraceSettings, *, service: str) -> None:
        self._own: OwnProvider | None = None
        provider = trace.get_tracer_provider()
        if settings.is_wanted:
            is_unset = isinstance(provider, trace.ProxyTracerProvider)
            provider = self._own = OwnProvider(
                resource=Resource.create({} if settings.is_named else {SERVICE_NAME: service}),
                shutdown_on_exit=False,
            )
            if settings.file:
                # Span by span: the file is read while the process runs, and a kill loses nothing.
                exporter = FileSpanExporter(Path(settings.file))
                provider.add_span_processor(SimpleSpanProcessor(exporter))
            for name in settings.exporters:
                named = exporter_named(name, protocol=settings.protocol)
                provider.add_span_processor(BatchSpanProcessor(named))
            if is_unset:
                trace.set_tracer_provider(provider)  # for libraries that tasks use
        self._provider: Any = provider
        self._tracer = provider.get_tracer("blimp.queue")

    @contextlib.contextmanager
    def span(
        self,
        name: str,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        context: Context | None = None,
    ) -> Iterator[Span]:
        """Make a span of the block; what it raises is the span's error, and raised again.

        context: the present one if it is None. An error of a span processor does not reach the
        block: otherwise a message that was sent would look unsent, and a task that succeeded
        failed.
        """
        begin = self._tracer.start_as_current_span
        try:
            manager = begin(name, context=context, kind=kind, attributes=attributes)
            span = manager.__enter__()
        except Exception:
            yield trace.INVALID_SPAN
            return
        try:
            yield span
        except BaseException as error:
            with contextlib.suppress(Exception):
                manager.__exit__(type(error), error, error.__traceback__)
            raise
        with contextlib.suppress(Exception):
            manager.__exit__(None, None, None)

    @contextlib.contextmanager
    def sending(self, message: TaskMessage) -> Iterator[TaskMessage]:
        """Yield `message` as it shall be sent: with this span for its parent."""
        about = _about(message, "send")
        with self.span(f"send {message.queue}", kind=SpanKind.PRODUCER, attributes=about):
            yield carrying(message)

    def record(
        self,
        name: str,
        *,
        began_ns: int,
        ended_ns: int,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a span of something that has ended, in `context` or else in the present one."""
        began_ns = max(0, began_ns)  # a message may claim any age
        with contextlib.suppress(Exception):
            span = self._tracer.start_span(
                name, context=context, kind=kind, attributes=attributes, start_time=began_ns
            )
            span.end(max(began_ns, ended_ns))

    @contextlib.contextmanager
    def within(self, message: TaskMessage) -> Iterator[None]:
        """Make the block's spans children of the span that `message` names."""
        token = contexts.attach(context_of(message))
        try:
            yield
        finally:
            contexts.detach(token)

    def flush(self) -> None:
        """Send the spans that wait, in a process that is replaced without a close."""
        flush = getattr(self._provider, "force_flush", None)
        if flush is not None:
            _wait_for(flush)

    def close(self) -> None:
        provider, self._own = self._own, None
        if provider is not None:
            _wait_for(provider.shutdown)


def _wait_for(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call, name="spans", daemon=True)
    thread.start()
    thread.join(CLOSE_S)


def context_of(message: TaskMessage) -> Context:
    """Return the context that `message` names: an empty one if it names none."""
    return _propagator.extract(trace_headers(message.headers), contexts.Context())


def carrying(message: TaskMessage) -> TaskMessage:
    """Return `message` with the present span for its parent."""
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    return msgspec.structs.replace(message, headers=message.headers | headers)


def wall_ns(moment_s: float, *, now_s: float) -> int:
    """Return a moment of the monotonic clock, now at `now_s`, as nanoseconds since the epoch."""
    return time.time_ns() + int((moment_s - now_s) * 1e9)


def _about(message: TaskMessage, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": message.queue,
        "messaging.message.id": message.id,
        "messaging.message.conversation_id": message.root_id or message.id,
        "blimp.task": message.task,
        "blimp.retries": message.retries,
    }


# --- the spans of a worker's jobs ---------------------------------------------------------------


class TracedJobs:
    """A middleware, outside of all others: spans of how long a message waited, and of its run.

    What follows from a job, its next try and the tasks it sends, has that run for a parent.
    """

    def __init__(self, *, app: TaskApp, tracer: Tracer) -> None:
        self._clock = app.broker_clock
        self._tracer = tracer

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        await self._record_wait(job)
        message = job.message
        delivery = {"messaging.message.delivery_attempt": message.delivery}
        with self._tracer.span(
            f"process {message.queue}",
            kind=SpanKind.CONSUMER,
            attributes=_about(message, "process") | delivery,
            context=context_of(message),
        ) as span:
            job.message = carrying(message)
            running_message.set(job.message)
            outcome = await call_next(job)
            span.set_attribute(
                "blimp.state", "REQUEUED" if outcome.requeue else outcome.state.value
            )
            fault = outcome.fault
            if fault is not None and not outcome.requeue and outcome.retry_in_s is None:
                span.set_attribute("error.type", fault.exc_type)
                span.set_status(Status(StatusCode.ERROR, fault.text))
        return outcome

    async def _record_wait(self, job: Job) -> None:
        """Make a span of the time since it was due, by the broker's clock."""
        message = job.message
        if message.issued_ms is None:
            return
        assert job.in_thread is not None
        try:
            now_s: float = await job.in_thread(self._clock.recent_s)
        except LinkError:
            return
        due_s = max(message.issued_ms / 1000.0, message.eta_s or 0.0)
        now_ns = time.time_ns()
        self._tracer.record(
            f"wait {message.queue}",
            began_ns=now_ns - int(max(0.0, now_s - due_s) * 1e9),
            ended_ns=now_ns,
            context=context_of(message),
        )


# --- where spans go ----------------------------------------------------------------------------


class FileSpanExporter(SpanExporter):
    """Appends spans to a file, a line of JSON each. Several processes may share one.

    A full disk loses spans, and nothing else. Raises ConfigError for a file it cannot open.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"BLIMP_TRACE_FILE {str(path)!r}: {error}") from error

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            for span in spans:  # one write each: other processes append between them
                os.write(self._file, f"{span.to_json(indent=None)}\n".encode())
        except (OSError, ValueError, TypeError, OverflowError):
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._file)


def exporter_named(name: str, *, protocol: str) -> SpanExporter:
    """Return the exporter that OTEL_TRACES_EXPORTER names. Raises ConfigError."""
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)  # standard output is for data
    names: tuple[str, ...] = (name,)
    if name == "otlp":
        names = (OTLP.get(protocol, protocol),) if protocol else tuple(OTLP.values())
    for wanted in names:
        for found in entry_points(group=EXPORTERS, name=wanted):
            try:
                exporter: Any = found.load()()
            except Exception as error:  # of whatever package it is
                raise ConfigError(f"trace exporter {wanted!r}: {error}") from error
            return exporter  # type: ignore[no-any-return]
    raise ConfigError(
        f"trace exporter {name!r} is not installed: try pip install opentelemetry-exporter-otlp"
    )
