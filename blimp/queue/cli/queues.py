"""`queues`, `dead` and `revoke`: what waits, what was given up, and what must not start."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ConfigError
from blimp.queue.cli import (
    A_TASK,
    a_name,
    add_command,
    add_json,
    add_queues,
    say,
    say_error,
    say_json,
)
from blimp.queue.operations import open_session, requeue_dead

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.streams.dead_letters import DeadLetter

LIST_LIMIT = 1000
A_LETTER = "1795261901960-0"


def add_commands(commands: Any) -> None:
    """Add `queues`, `dead` and `revoke` to an argparse parser's commands."""
    meaning = "count the messages that are ready, in flight, scheduled and dead"
    queues = add_command(
        commands, "queues", show_queues, meaning=meaning, typed="queues", has_verbs=True
    )
    verbs = queues.add_subparsers(dest="verb", metavar="[VERB]")
    for verb, run, meaning in (
        (
            "pause",
            pause,
            "deliver only emergencies from it; workers still run the messages that they have",
        ),
        ("resume", pause, "deliver all its messages again"),
        ("purge", purge, "drop its waiting messages, scheduled or ready; dead letters stay"),
        ("unique", show_claims, "list the tasks whose claims keep the same from being sent"),
    ):
        one = add_command(
            verbs, verb, run, meaning=meaning, typed=f"queues {verb} weather", has_verbs=True
        )
        one.add_argument("name", type=a_name, help="name of the queue")
        if verb == "purge":
            one.add_argument(
                "--yes", action="store_true", help="purge; without --yes only count the messages"
            )
        elif verb == "unique":
            one.add_argument("--free", metavar="ID", help="free the claim of this task")
    meaning = "list, requeue or drop dead letters: messages that are not delivered any more"
    dead = add_command(commands, "dead", meaning=meaning, typed=f"dead requeue {A_LETTER}")
    verbs = dead.add_subparsers(dest="verb", required=True)
    for verb, meaning in (
        ("list", f"the oldest {LIST_LIMIT} of each queue"),
        ("show", "with headers and body"),
        ("requeue", "run them again"),
        ("drop", "delete them"),
    ):
        typed = f"dead {verb}" if verb == "list" else f"dead {verb} {A_LETTER}"
        letters = add_command(verbs, verb, handle_dead, meaning=meaning, typed=typed)
        letters.set_defaults(id=[])
        if verb != "list":  # "+" and not "*", which takes nothing if an option comes first
            also = "" if verb == "show" else f"; or all: the oldest {LIST_LIMIT} of each queue"
            letters.add_argument("id", nargs="+", help=f"from `dead list`{also}")
        add_queues(letters)
        add_json(letters)
    add_queues(queues)
    add_json(queues)
    revoke = add_command(
        commands,
        "revoke",
        revoke_tasks,
        meaning="revoke tasks: they do not start any more",
        typed=f"revoke {A_TASK}",
        then="; a task that has ended stays as it ended",
    )
    revoke.add_argument("id", nargs="+", help="ids of tasks, already sent or not")
    revoke.add_argument("--terminate", action="store_true", help="end running tasks, too")


def show_queues(app: TaskApp, options: argparse.Namespace) -> int:
    with app, open_session(app) as session:
        found = {
            name: msgspec.to_builtins(session.store.counts(session.keys.queue(name)))
            for name in options.queues or [app.queue]
        }
    if options.json:
        say_json(found)
        return 0
    for name, counts in found.items():
        age_s, paused = counts.pop("oldest_age_s"), counts.pop("paused")
        text = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in counts.items())
        text += "" if age_s is None else f", the oldest {age_s:.1f} s old"
        say(f"{name}: {text}" + (", paused" if paused else ""))
    return 0


def pause(app: TaskApp, options: argparse.Namespace) -> int:
    """Pause a queue or resume it; return 0 also if it was so already."""
    is_resumed = options.verb == "resume"
    with app, open_session(app) as session:
        is_new = session.store.pause(session.keys.queue(options.name), resume=is_resumed)
    now = "delivered" if is_resumed else "paused: emergencies are delivered, nothing else"
    say(f"{options.name} is {now}" if is_new else f"{options.name} was {now} already")
    return 0


def purge(app: TaskApp, options: argparse.Namespace) -> int:
    """Drop what waits in a queue; without `--yes` count it, and return 1."""
    with app, open_session(app) as session:
        queue = session.keys.queue(options.name)
        if options.yes:
            say(f"{options.name}: {session.store.purge(queue)} dropped")
            return 0
        counts = session.store.counts(queue)
    say(
        f"{options.name}: {counts.ready} ready and {counts.scheduled} scheduled messages would "
        "be dropped, and callers would wait for their results for ever: add --yes to drop them"
    )
    return 1


def show_claims(app: TaskApp, options: argparse.Namespace) -> int:
    """List the claims of unique tasks, or free one; return 1 if that is not there."""
    from blimp.queue.brokers.streams.unique_claims import UniqueClaims

    with app, open_session(app) as session:
        claims = UniqueClaims(session.store)
        if options.free:
            is_freed = claims.free_all_of(options.name, options.free)
            say(f"{options.free}: {'freed' if is_freed else 'has no claim'} in {options.name}")
            return 0 if is_freed else 1
        found = claims.held(options.name, limit=LIST_LIMIT)
    if options.json:
        say_json([msgspec.to_builtins(one) for one in found])
        return 0
    for one in found:
        left = "until it begins or ends" if one.left_s is None else f"for {one.left_s:.1f} s"
        say(f"{one.task}[{one.id}]  {left}")
    if not found:
        say(f"{options.name}: no claims")
    return 0


def revoke_tasks(app: TaskApp, options: argparse.Namespace) -> int:
    with app:
        for id in options.id:
            say(f"{id}  {app.revoke(id, terminate=options.terminate)}")
    return 0


def handle_dead(app: TaskApp, options: argparse.Namespace) -> int:
    """List, show, requeue or drop; return 1 if a dead letter is not there."""
    from blimp.queue.brokers.streams.dead_letters import DeadLetters

    for id in options.id:
        if not re.fullmatch(r"\d+-\d+", id) and (id != "all" or options.verb == "show"):
            raise ConfigError(f"dead {options.verb} {id!r}: give the ids that `dead list` shows")
    found: list[DeadLetter] = []
    with app, open_session(app) as session:
        for name in options.queues or [app.queue]:
            letters = DeadLetters(store=session.store, queue=name)
            wanted = options.id
            if wanted in ([], ["all"]):
                wanted = [letter.id for letter in letters.list(limit=LIST_LIMIT)]
            for letter in filter(None, map(letters.show, wanted)):
                found.append(letter)
                if options.verb == "requeue":
                    requeue_dead(app, letters, letter)
                elif options.verb == "drop":
                    letters.drop(letter.id)
    missing = set(options.id) - {letter.id for letter in found} - {"all"}
    for id in sorted(missing):
        say_error(f"no dead letter {id}")
    if options.json:
        say_json([msgspec.to_builtins(letter) for letter in found])
        return 1 if missing else 0
    if options.verb == "list" and not found:
        say("no dead letters")
    for letter in found:
        headers = letter.headers or {}
        task, id = headers.get("task", "?"), headers.get("id", "?")
        say(f"{letter.id}  {letter.queue}  {task}[{id}]  {letter.reason}")
        if options.verb == "show":
            say(f"  delivered {letter.deliveries} times")
            say(f"  headers {headers}")
            say(f"  body {letter.body!r}")
    return 1 if missing else 0
