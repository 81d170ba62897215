"""`queues`, `dead` and `revoke`: what waits, what was given up, and what must not start."""

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
from blimp.queue.cli import A_TASK, add_app, add_json, example

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.streams.store import DeadLetter, DeadLetters
    from blimp.queue.brokers.streams.visibility import StreamsSession

LIST_LIMIT = 1000
A_LETTER = "1795261901960-0"


def add_commands(commands: Any) -> None:
    """Add `queues`, `dead` and `revoke` to an argparse parser's commands."""
    queues = commands.add_parser(
        "queues",
        help="count the messages that are ready, in flight, scheduled and dead",
        epilog=example("queues"),
    )
    queues.set_defaults(run=show_queues)
    _add_options(queues)
    dead = commands.add_parser(
        "dead",
        help="list, requeue or drop dead letters: messages that were given up",
        epilog=example(f"dead requeue {A_LETTER}"),
    )
    dead.set_defaults(run=handle_dead, id=[])
    verbs = dead.add_subparsers(dest="verb", required=True)
    for verb, meaning in (
        ("list", f"the oldest {LIST_LIMIT} of each queue"),
        ("show", "with headers and body"),
        ("requeue", "run them again"),
        ("drop", "delete them"),
    ):
        typed = f"dead {verb}" if verb == "list" else f"dead {verb} {A_LETTER}"
        letters = verbs.add_parser(verb, help=meaning, epilog=example(typed))
        if verb != "list":  # "+" and not "*", which takes nothing if an option comes first
            also = "" if verb == "show" else f"; or all: the oldest {LIST_LIMIT} of each queue"
            letters.add_argument("id", nargs="+", help=f"from `dead list`{also}")
        _add_options(letters)
    revoke = commands.add_parser(
        "revoke",
        help="revoke tasks: they do not start any more",
        epilog=f"{example(f'revoke {A_TASK}')}; a task that has ended stays as it ended",
    )
    revoke.set_defaults(run=revoke_tasks)
    add_app(revoke)
    revoke.add_argument("id", nargs="+", help="ids of tasks, sent or not")
    revoke.add_argument("--terminate", action="store_true", help="end them, too, if they run")


def _add_options(parser: Any) -> None:
    add_app(parser)
    parser.add_argument("--queues", default="", metavar="A,B", help="default: the app's queue")
    add_json(parser)


def show_queues(app: TaskApp, options: argparse.Namespace) -> int:
    with _session(app) as session:
        found = {
            name: msgspec.to_builtins(session.store.counts(session.keys.queue(name)))
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
            print(f"{id}  {app.revoke(id, terminate=options.terminate)}")
    return 0


def handle_dead(app: TaskApp, options: argparse.Namespace) -> int:
    """List, show, requeue or drop; return 1 if a dead letter is not there."""
    from blimp.queue.brokers.streams.store import DeadLetters

    for id in options.id:
        if not re.fullmatch(r"\d+-\d+", id) and (id != "all" or options.verb == "show"):
            raise ConfigError(f"dead {options.verb} {id!r}: give the ids that `dead list` shows")
    found: list[DeadLetter] = []
    with _session(app) as session:
        for name in _names(app, options):
            letters = DeadLetters(store=session.store, queue=name)
            wanted = options.id
            if options.verb == "list" or (wanted == ["all"] and options.verb != "show"):
                wanted = [letter.id for letter in letters.list(limit=LIST_LIMIT)]
            for id in wanted:
                letter = letters.show(id)
                if letter is None:
                    continue
                found.append(letter)
                if options.verb == "requeue":
                    _requeue(app, letters, letter)
                elif options.verb == "drop":
                    letters.drop(id)
    missing = set(options.id) - {letter.id for letter in found} - {"all"}
    for id in sorted(missing):
        print(f"error: no dead letter {id}", file=sys.stderr)
    _print(found, options)
    return 1 if missing else 0


def _requeue(app: TaskApp, letters: DeadLetters, letter: DeadLetter) -> None:
    """Requeue a dead letter; delete its result and the mark that it has begun."""
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
def _session(app: TaskApp) -> Iterator[StreamsSession]:
    """Open a session on the broker; redis-py's errors become LinkError.

    Raises ConfigError for a broker without dead letters and counts.
    """
    from blimp.queue.brokers.streams.visibility import StreamsSession
    from blimp.queue.redis.client import streams_options
    from blimp.queue.redis.urls import redis_url

    if not app.capabilities.has_dead_letters:
        raise ConfigError(f"app {app.name!r} uses transport {app.transport!r}: needs 'streams'")
    app.broker_link.ask(lambda client: client.ping())  # of several, one that answers
    session = StreamsSession(
        url=redis_url(app.broker), options=streams_options(timeout_s=app.timeout_s)
    )
    try:
        with app.broker_link.link():
            yield session
    finally:
        session.close()
        app.close()


def _names(app: TaskApp, options: argparse.Namespace) -> list[str]:
    return [name for name in options.queues.split(",") if name] or [app.queue]
