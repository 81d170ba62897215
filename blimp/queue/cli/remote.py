"""`inspect` and `control`: questions to running workers, and changes of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from blimp.queue.cli import A_TASK, add_app, add_json, example

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp

LONGEST_S = 3600.0


class Argument(NamedTuple):
    """An argument of a command: its name in the message, how it is read, how many there are."""

    name: str
    type: Callable[[str], Any] = str
    how_many: str | None = None
    default: Any = None


class Verb(NamedTuple):
    """A command. typed: its arguments in the example of its help."""

    name: str
    meaning: str
    arguments: tuple[Argument, ...] = ()
    flags: tuple[tuple[str, str], ...] = ()  # name in the message, help
    typed: str = ""


INSPECT = (
    Verb("ping", "which workers answer"),
    Verb("stats", "counts, pools, broker, use of memory and processor"),
    Verb("active", "tasks that run now"),
    Verb("reserved", "prefetched tasks that wait for a free slot or a rate limit"),
    Verb("scheduled", "prefetched tasks that wait for their ETA"),
    Verb("revoked", "ids of revoked tasks"),
    Verb("registered", "tasks that it knows", (Argument("taskinfoitems", str, "*"),)),
    Verb("active_queues", "queues it consumes"),
    Verb("conf", "settings, without secrets", flags=(("with_defaults", "defaults, too"),)),
    Verb("query_task", "the state of tasks in flight", (Argument("ids", str, "+"),), typed=A_TASK),
    Verb("report", "versions and settings for a bug report"),
    Verb("clock", "its logical clock"),
)
CONTROL = (
    Verb(
        "revoke",
        "revoke tasks: they do not start any more",
        (Argument("task_id", str, "+"),),
        (("terminate", "end them, too, if they run"),),
        A_TASK,
    ),
    Verb(
        "rate_limit",
        "how often a task may start: 10/s, 100/m, 1000/h; 0: no limit",
        (Argument("task_name"), Argument("rate_limit")),
        typed="weather.read 100/m",
    ),
    Verb(
        "time_limit",
        "a task's soft and hard time limits, in seconds",
        (Argument("task_name"), Argument("soft", float), Argument("hard", float, "?")),
        typed="weather.read 5 10",
    ),
    Verb(
        "add_consumer",
        "consume one more queue",
        (
            Argument("queue"),
            Argument("exchange", str, "?"),
            Argument("exchange_type", str, "?"),
            Argument("routing_key", str, "?"),
        ),
        typed="storms",
    ),
    Verb("cancel_consumer", "stop consuming a queue", (Argument("queue"),), typed="storms"),
    Verb("pool_grow", "more threads for plain tasks", (Argument("n", int, "?", 1),), typed="2"),
    Verb("pool_shrink", "fewer threads for plain tasks", (Argument("n", int, "?", 1),), typed="2"),
    Verb("shutdown", "stop after the running tasks"),
    Verb("enable_events", "start sending events"),
    Verb("disable_events", "stop sending events"),
    Verb("heartbeat", "send a heartbeat event now"),
)


def add_commands(commands: Any) -> None:
    """Add `inspect` and `control` to an argparse parser's commands."""
    for name, meaning, verbs, typed in (
        ("inspect", "ask workers about their state", INSPECT, "ping"),
        ("control", "change running workers", CONTROL, "rate_limit weather.read 100/m"),
    ):
        parser = commands.add_parser(
            name,
            help=meaning,
            epilog=f"{example(f'{name} {typed}')}; exit status 1 if no worker answers, or one "
            "refuses",
        )
        parser.set_defaults(run=ask_workers)
        choices = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
        for verb in verbs:
            _add_verb(choices, verb, group=name)


def _add_verb(choices: Any, verb: Verb, *, group: str) -> None:
    parser = choices.add_parser(
        verb.name,
        help=verb.meaning,
        description=verb.meaning,
        epilog=example(f"{group} {verb.name} {verb.typed}".strip()),
    )
    for argument in verb.arguments:
        parser.add_argument(
            argument.name, type=argument.type, nargs=argument.how_many, default=argument.default
        )
    for flag, meaning in verb.flags:
        parser.add_argument(f"--{flag.replace('_', '-')}", action="store_true", help=meaning)
    add_app(parser)
    parser.add_argument(
        "-d", "--destination", default="", metavar="A,B", help="names of workers; default: all"
    )
    parser.add_argument(
        "-t",
        "--timeout",
        type=_seconds,
        default=1.0,
        metavar="S",
        help="how long to wait for the next answer, in seconds; default 1",
    )
    add_json(parser)
    parser.set_defaults(asked=verb)


def ask_workers(app: TaskApp, options: argparse.Namespace) -> int:
    """Ask, and print each worker's answer; return 1 if one is missing or refuses."""
    from blimp.queue.control.command import send_command

    verb: Verb = options.asked
    names = [argument.name for argument in verb.arguments] + [flag for flag, _ in verb.flags]
    given = {name: getattr(options, name) for name in names}
    destination = [name for name in options.destination.split(",") if name]
    with app:
        replies = send_command(
            app,
            verb.name,
            {name: value for name, value in given.items() if value not in (None, [])},
            destination=destination,
            timeout_s=options.timeout,
            on_reply=(lambda *_: None) if options.json else _say,
        )
    if options.json:
        print(json.dumps(replies))
    missing = sorted(set(destination) - replies.keys())
    if missing or not replies:
        who = f"no answer from {', '.join(missing)}" if missing else "no worker answered"
        print(f"error: {who} within {options.timeout:g} s", file=sys.stderr)
        return 1
    return int(any(isinstance(one, dict) and "error" in one for one in replies.values()))


def _say(name: str, reply: Any) -> None:
    """Print one answer in the layout of Celery's."""
    if isinstance(reply, dict) and len(reply) == 1 and ({*reply} & {"ok", "error"}):
        ((word, body),) = reply.items()
    else:
        word, body = "ok", reply
    print(f"->  {name}: {word.upper()}")
    for line in _lines(body):
        print(f"        {line}")
    sys.stdout.flush()


def _lines(body: Any) -> list[str]:
    if isinstance(body, str):
        return body.splitlines()
    if body is None:
        return []
    if isinstance(body, list):
        if not body:
            return ["- empty -"]
        return [f"* {one if isinstance(one, str) else json.dumps(one)}" for one in body]
    return json.dumps(body, indent=4).splitlines()


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value <= LONGEST_S:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be seconds, above 0 and up to {LONGEST_S:.0f}"
        )
    return value
