"""Spans: from whoever sends a task to what the ship does, one trace.

OpenTelemetry is imported here and in `exporters.py` alone; a process that traces nothing loads
neither. Names and attributes are those of its semantic conventions for messaging.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from blimp.closing import Closing
from blimp.queue.observability.exporters import FileSpanExporter, exporter_named
from blimp.queue.protocol.trace_context import trace_headers

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from blimp.queue.observability.options import TraceSettings
    from blimp.queue.protocol.message import TaskMessage

CLOSE_S = 2.0  # for what is still to be sent: nobody waits longer for who collects spans
SYSTEM = "blimp"

_propagator = TraceContextTextMapPropagator()


class OwnProvider(TracerProvider):
    """One that a Tracer made, and closes with itself."""


class Tracer(Closing):
    """Makes the spans of this process. Thread-safe; close is idempotent.

    A program that has set up OpenTelemetry itself keeps its provider, and spans go there.
    Raises ConfigError for an exporter that is not there, or a file that cannot be written.
    """

    def __init__(self, settings: TraceSettings, *, service: str) -> None:
        self._own: OwnProvider | None = None
        provider = trace.get_tracer_provider()
        if settings.is_wanted:
            is_unset = isinstance(provider, trace.ProxyTracerProvider)
            provider = self._own = _provider(settings, service)
            if is_unset:
                trace.set_tracer_provider(provider)  # what tasks use may have spans of its own
        self._provider: Any = provider
        self._tracer = provider.get_tracer("blimp.queue")

    @contextlib.contextmanager
    def span(
        self,
        name: str,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
    ) -> Iterator[Span]:
        """Have the block be a span; what it raises is the span's error, and raised on."""
        begin = self._tracer.start_as_current_span
        with _harmless(lambda: begin(name, kind=kind, attributes=attributes)) as span:
            yield span

    @contextlib.contextmanager
    def sending(self, message: TaskMessage) -> Iterator[TaskMessage]:
        """Yield `message` as it is to be sent: with this span for its parent."""
        with self.span(
            f"send {message.queue}",
            kind=SpanKind.PRODUCER,
            attributes=_about(message, name="send", type="send"),
        ):
            yield carrying(message)

    @contextlib.contextmanager
    def processing(self, message: TaskMessage, *, delivery: int) -> Iterator[Span]:
        """Have the block be a task's run; `carrying` gives what it sends its context."""
        about = _about(message, name="process", type="process")
        about["messaging.message.delivery_attempt"] = delivery
        begin = self._tracer.start_as_current_span
        with _harmless(
            lambda: begin(
                f"process {message.queue}",
                context=context_of(message),
                kind=SpanKind.CONSUMER,
                attributes=about,
            )
        ) as span:
            yield span

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
        """Make a span of what is over, in `context` or else in the present one."""
        began_ns = max(0, began_ns)  # what a message says of its age may be anything
        with contextlib.suppress(Exception):
            span = self._tracer.start_span(
                name, context=context, kind=kind, attributes=attributes, start_time=began_ns
            )
            span.end(max(began_ns, ended_ns))

    @contextlib.contextmanager
    def within(self, message: TaskMessage) -> Iterator[None]:
        """Have the block's spans be children of what `message` names."""
        token = contexts.attach(context_of(message))
        try:
            yield
        finally:
            contexts.detach(token)

    def flush(self) -> None:
        """Send what waits to be sent: for a process that ends without an end of its own."""
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


@contextlib.contextmanager
def _harmless(begin: Callable[[], AbstractContextManager[Span]]) -> Iterator[Span]:
    """Have the block be a span, if it can: what a span processor raises is none of the block's.

    A message that is sent must not be taken for one that is not, nor a task that ended for one
    that failed.
    """
    try:
        manager = begin()
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


def context_of(message: TaskMessage) -> Context:
    """Return the context that `message` names: an empty one where it names none."""
    return _propagator.extract(trace_headers(message.headers), contexts.Context())


def carrying(message: TaskMessage) -> TaskMessage:
    """Return `message` with the present span for its parent."""
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    return msgspec.structs.replace(message, headers=message.headers | headers)


def fail(span: Span, kind: str, text: str) -> None:
    """Have `span` say what went wrong. kind: an exception's name, or a state's."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, text))


def wall_ns(moment_s: float, *, now_s: float) -> int:
    """Return a moment of the monotonic clock, now at `now_s`, as nanoseconds since the epoch."""
    return time.time_ns() + int((moment_s - now_s) * 1e9)


def _about(message: TaskMessage, *, name: str, type: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": type,
        "messaging.destination.name": message.queue,
        "messaging.message.id": message.id,
        "messaging.message.conversation_id": message.root_id or message.id,
        "blimp.task": message.task,
        "blimp.retries": message.retries,
    }


def _provider(settings: TraceSettings, service: str) -> OwnProvider:
    named = {} if settings.is_named else {SERVICE_NAME: service}
    provider = OwnProvider(resource=Resource.create(named), shutdown_on_exit=False)
    if settings.file:
        # At once: it is read while the process runs, and a kill loses nothing.
        provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(Path(settings.file))))
    for name in settings.exporters:
        provider.add_span_processor(
            BatchSpanProcessor(exporter_named(name, protocol=settings.protocol))
        )
    return provider
