"""How a process is watched, by its command line and environment; imports nothing else.

Tested by test_tracing.py.
"""

from __future__ import annotations

import argparse
from typing import Literal

import msgspec

LOOPBACK = "127.0.0.1"
LOG_FORMATS = ("text", "json")
LogFormat = Literal["text", "json"]


class TraceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where spans go; by default nowhere, and nothing is imported for them.

    file: gets a line of JSON for each. exporters: as OTEL_TRACES_EXPORTER names them, and the
    protocol of "otlp". is_named: the environment names the service.
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

    metrics_port: where Prometheus metrics are served, None for nowhere; 0 takes
    any free port.
    log_format: of its lines on standard error. vehicle: a field of every line, "" for none.
    """

    metrics_port: int | None = None
    metrics_address: str = LOOPBACK
    log_format: LogFormat = "text"
    vehicle: str = ""
    trace: TraceSettings = TraceSettings()

    @property
    def is_wanted(self) -> bool:
        return self.metrics_port is not None or self.log_format == "json" or self.trace.is_wanted


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port",
        type=_port,
        metavar="N",
        help="serve Prometheus metrics at http://ADDRESS:N/metrics; 0 takes any free port",
    )
    parser.add_argument(
        "--metrics-address",
        default=LOOPBACK,
        metavar="ADDRESS",
        help=f"an address of this machine; default {LOOPBACK}, which no other machine can reach",
    )
    parser.add_argument(
        "--log-format", choices=LOG_FORMATS, default="text", help="default text: key=value"
    )


def read_options(options: argparse.Namespace) -> Watching:
    return Watching(
        metrics_port=options.metrics_port,
        metrics_address=options.metrics_address,
        log_format=options.log_format,
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or not 0 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r:.40}: must be a port, from 0 to 65535")
    return int(text)
