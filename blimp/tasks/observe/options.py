"""What a command line says about watching a worker."""

from __future__ import annotations

import argparse

from blimp.tasks.observe.settings import LOG_FORMATS, LOOPBACK, Watching


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port",
        type=_port,
        metavar="N",
        help="serve Prometheus metrics at http://ADDRESS:N/metrics; 0 for any port that is free",
    )
    parser.add_argument(
        "--metrics-address",
        default=LOOPBACK,
        metavar="ADDRESS",
        help=f"an address of this machine; default {LOOPBACK}, which only it can reach",
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
