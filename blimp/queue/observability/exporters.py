"""Where spans go: a file that people read, or what OpenTelemetry's environment names."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from blimp.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

GROUP = "opentelemetry_traces_exporter"
OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


class FileSpanExporter(SpanExporter):
    """Appends spans to a file, a line of JSON each. Several processes may share one.

    A disk that is full costs spans, and nothing else. Raises ConfigError where it cannot begin.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"BLIMP_TRACE_FILE {str(path)!r}: {error}") from error

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            for span in spans:  # one write each: what others append is not in its midst
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
        for found in entry_points(group=GROUP, name=wanted):
            try:
                exporter: Any = found.load()()
            except Exception as error:  # of whatever package it is
                raise ConfigError(f"trace exporter {wanted!r}: {error}") from error
            return exporter  # type: ignore[no-any-return]
    raise ConfigError(
        f"trace exporter {name!r} is not installed: try pip install opentelemetry-exporter-otlp"
    )
