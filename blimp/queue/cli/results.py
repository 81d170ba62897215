"""What a person does with results from the command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError
from blimp.queue.cli.words import APP_MEANING, example

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp


def add_commands(commands: Any) -> None:
    """Add `results` to an argparse parser's commands."""
    results = commands.add_parser(
        "results", help="what is kept of tasks that have ended", epilog=example("results cleanup")
    )
    verbs = results.add_subparsers(dest="verb", required=True)
    cleanup = verbs.add_parser(
        "cleanup",
        help="delete those that are older than result_expires_s",
        description="Delete results that are older than the app's result_expires_s. Its "
        "workers do so by themselves, and a Redis server needs neither.",
        epilog=example("results cleanup"),
    )
    cleanup.set_defaults(run=clean_up)
    cleanup.add_argument("-A", "--app", required=True, metavar="MODULE:APP", help=APP_MEANING)


def clean_up(app: TaskApp, _: argparse.Namespace) -> int:
    """Raises ConfigError where the app keeps no results."""
    with app:
        if app.results is None:
            raise ConfigError(f"app {app.name!r} keeps no results: it has no result_backend")
        count = app.results.cleanup()
    print(f"{count} result{'' if count == 1 else 's'} deleted")
    return 0
