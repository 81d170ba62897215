"""`page`: queues, workers, failures and schedules of an app in a browser.

Tested by test_page_server.py.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from blimp.distribution import needing
from blimp.queue.cli import add_command
from blimp.queue.operations import check_streams

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp

PORT = 8422  # beside that of a ship's page


def add_commands(commands: Any) -> None:
    """Add `page` to an argparse parser's commands."""
    page = add_command(
        commands,
        "page",
        serve_page,
        meaning="show queues, workers, failures and schedules in a browser, and change them",
        about="Serve a page about an app's queues until Ctrl-C, and print its address. Anybody "
        "with the token in that address may use the page for everything that this "
        "program's commands do.",
        typed="page --read-only",
    )
    page.add_argument("--host", default="127.0.0.1", help="address to listen on; default 127.0.0.1")
    page.add_argument(
        "--port", type=_port, default=PORT, help=f"port; 0 takes any free port; default {PORT}"
    )
    page.add_argument("--read-only", action="store_true", help="accept no changes")


def serve_page(app: TaskApp, options: argparse.Namespace) -> int:
    with needing("page", "the page needs"):
        from blimp.queue.extras.page.page_server import serve

    check_streams(app, "the page ")
    serve(
        app, host=options.host, port=options.port, read_only=options.read_only,
        say_url=lambda url: print(url, flush=True),
    )  # fmt: skip
    return 0


def _port(text: str) -> int:
    """Return a number of a port, as argparse reads one."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number, 0 to 65,535")
    return int(text)
