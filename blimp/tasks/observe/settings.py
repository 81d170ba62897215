"""How a worker is watched, as its command line and environment say."""

from __future__ import annotations

from typing import Literal

import msgspec

LOOPBACK = "127.0.0.1"
LOG_FORMATS = ("text", "json")
LogFormat = Literal["text", "json"]


class TraceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where spans go; by default nowhere, and nothing is loaded for them.

    file: gets a line of JSON for each. exporters: as OTEL_TRACES_EXPORTER names them, and the
    protocol of "otlp". is_named: the environment says what the service is called.
    """

    file: str = ""
    exporters: tuple[str, ...] = ()
    protocol: str = ""
    is_named: bool = False

    @property
    def is_wanted(self) -> bool:
        return bool(self.file or self.exporters)


class Watching(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is watched; by default not at all.

    metrics_port: where Prometheus metrics are served, None for nowhere, 0 for any that is free.
    log_format: of what it writes on standard error. vehicle: told in every line, "" for none.
    """

    metrics_port: int | None = None
    metrics_address: str = LOOPBACK
    log_format: LogFormat = "text"
    vehicle: str = ""
    trace: TraceSettings = TraceSettings()
