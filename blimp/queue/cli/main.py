"""A task queue on Redis that speaks Celery's protocol: its workers, queues and results."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import BlimpError, ConfigError
from blimp.queue.cli import add_command, add_queues, positive, say_error, seconds
from blimp.queue.log import LEVELS
from blimp.queue.neighbours import neighbour
from blimp.queue.watching import add_options, read_options
from blimp.system import unix_only

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 done, 1 failed, 2 wrong usage."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = make_parser(words)
    options = parser.parse_args(words)
    if not hasattr(options, "app"):
        parser.error(f"{options.command}: the following arguments are required: -A/--app")
    try:
        app = None if options.app is None else load_app(options.app)
        command: Callable[[TaskApp | None, argparse.Namespace], int] = options.run
        return command(app, options)
    except BlimpError as error:
        say_error(error)
        return 2 if isinstance(error, ConfigError) else 1
    except (AttributeError, ImportError) as error:
        if not (why := unix_only(error)):
            raise
        say_error(ConfigError(why))
        return 1


class _Version(argparse.Action):
    """Asks for the version when it is wanted: argparse's own action has to know it before."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from blimp.distribution import described

        print(described())
        parser.exit()


def load_app(path: str) -> TaskApp:
    """Return the app at `module:attribute`. Raises ConfigError naming what is missing."""
    from blimp.queue.app import TaskApp

    module_name, _, attribute = path.partition(":")
    if not (module_name and attribute):
        raise ConfigError(f"-A {path!r}: must be module:attribute, such as weather:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"-A {path!r}: {error}") from error
    app = getattr(module, attribute, None)
    if not isinstance(app, TaskApp):
        kind = "is missing" if app is None else f"is {type(app).__name__}"
        raise ConfigError(f"-A {path!r}: {attribute} {kind} in {module_name}, must be a TaskApp")
    app.import_tasks()
    return app


def make_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser for the command line `words`."""
    parser = argparse.ArgumentParser(
        prog=program(),
        description=__doc__,
        epilog="exit status: 0 done, 1 failed (the reason is printed), 2 wrong usage",
    )
    parser.add_argument("--version", action=_Version, help="print version and commit, and end")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_worker(commands)
    if words and words[0] == "worker":
        return parser  # without the other commands' modules: a worker would keep their memory

    from blimp.queue.cli import deploy, queues, results, schedules, trace

    neighbours = (neighbour("inspect"), neighbour("page"))
    own = (kind.add_commands for kind in (queues, trace, results, schedules, deploy))
    for add in (*own, *neighbours):
        add(commands)
    return parser


def _add_worker(commands: Any) -> None:
    worker = add_command(
        commands,
        "worker",
        _run_worker,
        meaning="run tasks until SIGTERM",
        about="Run tasks until SIGTERM: running tasks may end within --grace. A second SIGTERM, or "
        "SIGQUIT, does not wait.",
        typed="worker --name pad --queues a,b",
    )
    worker.add_argument(
        "--name",
        help="name of the worker, unique among live workers; give one to a second "
        "worker on this machine; default APP@HOST",
    )
    add_queues(worker)
    for option, default, meaning in (
        ("--loop-workers", 1, "threads with an asyncio loop, for async def tasks"),
        ("--loop-concurrency", 16, "async def tasks that one loop runs at once"),
        ("--sync-workers", 8, "threads for plain tasks"),
        ("--process-workers", None, "processes for cpu_bound tasks; default: cores minus one"),
        (
            "--prefetch",
            None,
            "messages in flight at once; default: as many as end in 50 ms, 16 to 512, and at "
            "least as many as run at once",
        ),
        ("--max-tasks", None, "restart the process after so many tasks; default: no limit"),
        ("--max-memory-mb", None, "restart it above so many MB resident; default: no limit"),
    ):
        shown = meaning if default is None else f"{meaning}; default {default}"
        worker.add_argument(option, type=positive, default=default, metavar="N", help=shown)
    worker.add_argument(
        "--grace",
        type=seconds,
        default=10.0,
        metavar="S",
        help="how long SIGTERM waits for running tasks, in seconds; default 10",
    )
    worker.add_argument(
        "-E", "--events", action="store_true", help="send events about tasks, as Celery does"
    )
    worker.add_argument("--log-level", choices=LEVELS, default="info", help="default info")
    add_options(worker)


def program() -> str:
    """Return what was typed: the command `blimp-queue`, or the module."""
    is_command = os.path.basename(sys.argv[0]) == "blimp-queue"
    return "blimp-queue" if is_command else "python -m blimp.queue"


def run() -> None:
    """The command `blimp-queue`."""
    sys.exit(main())


def _run_worker(app: TaskApp, options: argparse.Namespace) -> int:
    from blimp.config import trace_settings_from_environment
    from blimp.queue.worker.shutdown import Launch
    from blimp.queue.worker.worker import Worker

    watched = neighbour("watching")
    app.log_level = options.log_level
    app.events = app.events or options.events
    trace = trace_settings_from_environment()
    with app, watched(app, msgspec.structs.replace(read_options(options), trace=trace)):
        worker = Worker(
            app=app,
            name=options.name,
            queues=options.queues,
            loop_workers=options.loop_workers,
            loop_concurrency=options.loop_concurrency,
            sync_workers=options.sync_workers,
            process_workers=options.process_workers,
            prefetch=options.prefetch,
            max_tasks=options.max_tasks,
            max_memory_mb=options.max_memory_mb,
            grace_s=options.grace,
            app_path=options.app,
            launch=Launch.of_this_process(),
            on_ready=lambda: print("ready", file=sys.stderr, flush=True),
        )
        if sys.stderr.isatty():
            from blimp.queue.cli.greeting import greeting

            print(greeting(worker), file=sys.stderr, flush=True)
        return worker.run()
