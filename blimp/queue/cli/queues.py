"""Looking into the queues of an app: how much waits, what was given up, and what to do then."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ConfigError
from blimp.queue.cli.words import A_TASK, APP_MEANING, example

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.streams.dead_letters import DeadLetter, DeadLetters
    from blimp.queue.brokers.streams.session import StreamsSession

LIST_LIMIT = 1000
A_LETTER = "1795261901960-0"


def add_commands(commands: Any) -> None:
    """Add `queues` and `dead` to an argparse parser's commands."""
    queues = commands.add_parser(
        "queues",
        help="how much waits, is in flight, scheduled, dead",
        epilog=example("queues"),
    )
    queues.set_defaults(run=show_queues)
    dead = commands.add_parser(
        "dead",
        help="messages that were given up",
        epilog=example(f"dead requeue {A_LETTER}"),
    )
    dead.set_defaults(run=handle_dead, id=[])
    verbs = dead.add_subparsers(dest="verb", required=True)
    looking = [queues]
    for verb, meaning in (
        ("list", f"the oldest {LIST_LIMIT} of each queue"),
        ("show", "headers and body too"),
        ("requeue", "have them run again"),
        ("drop", "forget them"),
    ):
        typed = f"dead {verb}" if verb == "list" else f"dead {verb} {A_LETTER}"
        letters = verbs.add_parser(verb, help=meaning, epilog=example(typed))
        looking.append(letters)
        if verb != "list":  # "+" and not "*", which takes nothing where an option comes first
            also = "" if verb == "show" else f"; or all: the oldest {LIST_LIMIT} of each queue"
            letters.add_argument("id", nargs="+", help=f"as `dead list` shows them{also}")
    revoke = commands.add_parser(
        "revoke",
        help="call tasks back: they do not begin any more",
        epilog=f"{example(f'revoke {A_TASK}')}; what has ended, or was never sent, is no error",
    )
    revoke.set_defaults(run=revoke_tasks)
    revoke.add_argument("-A", "--app", required=True, metavar="MODULE:APP", help=APP_MEANING)
    revoke.add_argument("id", nargs="+", help="of the tasks, sent or not")
    revoke.add_argument("--terminate", action="store_true", help="end them where they run")
    for command in looking:
        command.add_argument("-A", "--app", required=True, metavar="MODULE:APP", help=APP_MEANING)
        command.add_argument("--queues", default="", metavar="A,B", help="default: the app's queue")
        command.add_argument("--json", action="store_true", help="a JSON document")


def show_queues(app: TaskApp, options: argparse.Namespace) -> int:
    with _holder(app) as holder:
        found = {
            name: msgspec.to_builtins(holder.store.counts(holder.keys.queue(name)))
            for name in _names(app, options)
        }
    if options.json:
        print(json.dumps(found))
        return 0
    for name, counts in found.items():
        age_s = counts.pop("oldest_age_s")
        text = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in counts.items())
        print(f"{name}: {text}" + ("" if age_s is None else f", the oldest {age_s:.1f} s old"))
    return 0


def revoke_tasks(app: TaskApp, options: argparse.Namespace) -> int:
    with app:
        for id in options.id:
            app.revoke(id, terminate=options.terminate)
    return 0


def handle_dead(app: TaskApp, options: argparse.Namespace) -> int:
    """List, show, requeue or drop; status 1 where a letter is not there."""
    from blimp.queue.brokers.streams.dead_letters import DeadLetters

    for id in options.id:
        if not re.fullmatch(r"\d+-\d+", id) and (id != "all" or options.verb == "show"):
            raise ConfigError(f"dead {options.verb} {id!r}: give the ids that `dead list` shows")
    status, told = 0, []
    with _holder(app) as holder:
        for name in _names(app, options):
            letters = DeadLetters(store=holder.store, queue=name)
            everything = letters.list(limit=LIST_LIMIT)
            wanted = options.id
            if options.verb == "list" or (wanted == ["all"] and options.verb != "show"):
                wanted = [letter.id for letter in everything]
            for id in wanted:
                letter = letters.show(id)
                if letter is None:
                    continue
                told.append(letter)
                if options.verb == "requeue":
                    _requeue(app, letters, letter)
                elif options.verb == "drop":
                    letters.drop(id)
    missing = set(options.id) - {letter.id for letter in told} - {"all"}
    for id in sorted(missing):
        print(f"no dead letter {id}", file=sys.stderr)
        status = 1
    _print(told, options)
    return status


def _requeue(app: TaskApp, letters: DeadLetters, letter: DeadLetter) -> None:
    """Have it run again: what it ended with, and that it has begun, is forgotten."""
    from blimp.queue.redis.keys import began_key, result_key

    headers = letter.headers or {}
    id, retries = str(headers.get("id", "")), headers.get("retries") or 0
    nesting = headers.get("replaced_task_nesting") or 0
    if id and app.results is not None and not app.completes_at_once:
        app.results.forget(id)  # first: a kill in between loses an old result, not the message
    forgetting = (result_key(id), began_key(id, retries, nesting)) if id else ()
    letters.requeue(letter.id, forgetting=forgetting)


def _print(letters: list[DeadLetter], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps([msgspec.to_builtins(letter) for letter in letters], default=repr))
        return
    for letter in letters:
        headers = letter.headers or {}
        task, id = headers.get("task", "?"), headers.get("id", "?")
        print(f"{letter.id}  {letter.queue}  {task}[{id}]  {letter.reason}")
        if options.verb == "show":
            print(f"  delivered {letter.deliveries} times\n  headers {headers}")
            print(f"  body {letter.body!r}")


@contextlib.contextmanager
def _holder(app: TaskApp) -> Iterator[StreamsSession]:
    """A way to the server; its errors become LinkError. Raises ConfigError off streams."""
    from blimp.queue.brokers.streams.broker import streams_options
    from blimp.queue.brokers.streams.session import StreamsSession
    from blimp.queue.redis.urls import redis_url

    if not app.capabilities.has_dead_letters:
        raise ConfigError(f"app {app.name!r} uses transport {app.transport!r}: needs 'streams'")
    app.broker_link.ask(lambda client: client.ping())  # of several, one that answers
    holder = StreamsSession(
        url=redis_url(app.broker), options=streams_options(timeout_s=app.timeout_s)
    )
    try:
        with app.broker_link.link():
            yield holder
    finally:
        holder.close()
        app.close()


def _names(app: TaskApp, options: argparse.Namespace) -> list[str]:
    return [name for name in options.queues.split(",") if name] or [app.queue]
