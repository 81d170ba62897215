"""`inspect` and `control`: questions to running workers, and changes of them."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from blimp.queue.cli import (
    A_TASK,
    add_command,
    add_json,
    names,
    say,
    say_error,
    say_json,
    seconds,
)

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp

TYPES = {"soft": float, "hard": float, "n": int}  # of arguments by name; the others are texts


class Verb(NamedTuple):
    """A command.

    arguments: their names in the message; "?", "*" or "+" after one as in argparse. flags: the
    same, and a help text. typed: the arguments in the example of its help.
    """

    name: str
    meaning: str
    arguments: str = ""
    flags: tuple[tuple[str, str], ...] = ()
    typed: str = ""


INSPECT = (
    Verb("ping", "which workers answer"),
    Verb("stats", "counts, pools, broker, use of memory and processor"),
    Verb("active", "tasks that run now"),
    Verb("reserved", "prefetched tasks that wait for a free slot or a rate limit"),
    Verb("scheduled", "prefetched tasks that wait for their ETA"),
    Verb("revoked", "ids of revoked tasks"),
    Verb("registered", "tasks registered in the worker", "taskinfoitems*"),
    Verb("active_queues", "queues that the worker consumes"),
    Verb("conf", "settings, without secrets", flags=(("with_defaults", "defaults, too"),)),
    Verb("query_task", "the state of tasks in flight", "ids+", typed=A_TASK),
    Verb("report", "versions and settings for a bug report"),
    Verb("clock", "logical clock of the worker"),
)
CONTROL = (
    Verb(
        "revoke",
        "revoke tasks: they do not start any more",
        "task_id+",
        (("terminate", "end running tasks, too"),),
        A_TASK,
    ),
    Verb(
        "rate_limit",
        "how often a task may start: 10/s, 100/m, 1000/h; 0: no limit",
        "task_name rate_limit",
        typed="weather.read 100/m",
    ),
    Verb(
        "time_limit",
        "a task's soft and hard time limits, in seconds",
        "task_name soft hard?",
        typed="weather.read 5 10",
    ),
    Verb(
        "add_consumer",
        "consume one more queue",
        "queue exchange? exchange_type? routing_key?",
        typed="storms",
    ),
    Verb("cancel_consumer", "stop consuming a queue", "queue", typed="storms"),
    Verb("pool_grow", "more threads for plain tasks", "n?", typed="2"),
    Verb("pool_shrink", "fewer threads for plain tasks", "n?", typed="2"),
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
        group = add_command(
            commands,
            name,
            meaning=meaning,
            typed=f"{name} {typed}",
            then="; exit status 1 if no worker answers, or one refuses",
        )
        choices = group.add_subparsers(dest="verb", required=True, metavar="COMMAND")
        for verb in verbs:
            _add_verb(choices, verb, group=name)


def _add_verb(choices: Any, verb: Verb, *, group: str) -> None:
    typed = f"{group} {verb.name} {verb.typed}".strip()
    parser = add_command(choices, verb.name, ask_workers, meaning=verb.meaning, typed=typed)
    asked = [flag for flag, _ in verb.flags]
    for argument in verb.arguments.split():
        name = argument.rstrip("?*+")
        asked.append(name)
        parser.add_argument(name, type=TYPES.get(name, str), nargs=argument[len(name) :] or None)
    for flag, meaning in verb.flags:
        parser.add_argument(f"--{flag.replace('_', '-')}", action="store_true", help=meaning)
    parser.add_argument(
        "-d",
        "--destination",
        type=names,
        default="",
        metavar="A,B",
        help="names of workers; default: all",
    )
    parser.add_argument(
        "-t",
        "--timeout",
        type=partial(seconds, least_s=0.001, most_s=3600.0),
        default=1.0,
        metavar="S",
        help="how long to wait for the next answer, in seconds; default 1",
    )
    add_json(parser)
    parser.set_defaults(asked=asked)


def ask_workers(app: TaskApp, options: argparse.Namespace) -> int:
    """Ask, and print each worker's answer; return 1 if one is missing or refuses."""
    from blimp.queue.celery.control.command_sender import send_command

    given = {name: getattr(options, name) for name in options.asked}
    with app:
        replies = send_command(
            app,
            options.verb,
            {name: value for name, value in given.items() if value not in (None, [])},
            destination=options.destination,
            timeout_s=options.timeout,
            on_reply=(lambda *_: None) if options.json else _say_reply,
        )
    if options.json:
        say_json(replies)
    missing = sorted(set(options.destination) - replies.keys())
    if missing or not replies:
        who = f"no answer from {', '.join(missing)}" if missing else "no worker answered"
        say_error(f"{who} within {options.timeout:g} s")
        return 1
    return int(any(isinstance(one, dict) and "error" in one for one in replies.values()))


def _say_reply(name: str, reply: Any) -> None:
    """Print one answer in the layout of Celery's."""
    word, body = "ok", reply
    if isinstance(reply, dict) and len(reply) == 1 and ({*reply} & {"ok", "error"}):
        ((word, body),) = reply.items()
    say(f"->  {name}: {word.upper()}")
    for line in _lines(body):
        say(f"        {line}")
    sys.stdout.flush()


def _lines(body: Any) -> list[str]:
    match body:
        case None:
            return []
        case str():
            return body.splitlines()
        case []:
            return ["- empty -"]
        case list():
            return [f"* {one if isinstance(one, str) else json.dumps(one)}" for one in body]
    return json.dumps(body, indent=4).splitlines()
