"""`deploy check`: what the workers that run cannot run of some code, and the code of what waits.

Tested by test_deploy.py.
"""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.queue.cli import add_command, add_json, add_queues, say, say_json
from blimp.queue.operations import open_session
from blimp.queue.protocol.embed import MAP, STARMAP
from blimp.queue.task import builtin_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.streams.store import Store
    from blimp.queue.redis.fleet import Member

NOBODY = "no live worker knows it"
OTHER = "live workers know it with other arguments"


class QueueCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One queue. workers: that consume it. missing: tasks of the code that none of them can run,
    and why. partly: those that some can run, and which. waiting: tasks of messages there that the
    code cannot run, each with how many there are; lost: those that no worker can run either.
    """

    workers: tuple[str, ...]
    missing: dict[str, str]
    partly: dict[str, tuple[str, ...]]
    waiting: dict[str, int]
    lost: tuple[str, ...]


def add_commands(commands: Any) -> None:
    """Add `deploy` to an argparse parser's commands."""
    deploy = add_command(
        commands, "deploy", meaning="compare code with the workers that run", typed="deploy check"
    )
    verbs = deploy.add_subparsers(dest="verb", required=True)
    one = add_command(
        verbs,
        "check",
        check,
        meaning="list what live workers cannot run of this code, and what waits and it cannot run",
        typed="deploy check",
        then="; exit status 1 if no live worker can run a task, or a message that waits",
    )
    add_queues(one)
    add_json(one)


def check(app: TaskApp, options: argparse.Namespace) -> int:
    """Return 1 if something is found that no live worker can run."""
    with app:
        found = check_queues(app, options.queues)
    if options.json:
        say_json(msgspec.to_builtins(found))
    else:
        for name, one in found.items():
            _show(name, one)
    return int(any(one.missing or one.lost for one in found.values()))


def check_queues(app: TaskApp, names: list[str]) -> dict[str, QueueCheck]:
    """Compare the tasks of `app` with what the workers of `names`, by default all, know."""
    fleet = app.fleet.members()
    wanted: dict[str, dict[str, str]] = {name: {} for name in names or [app.queue]}
    for name, task in app.tasks.items():
        queue = task.options.queue or app.queue
        if not names or queue in names:
            wanted.setdefault(queue, {})[name] = task.version
    with open_session(app) as session:
        waiting = {one: _waiting(app, session.store, one) for one in wanted}
    return {one: _compare(tasks, fleet, waiting[one], one) for one, tasks in wanted.items()}


def _waiting(app: TaskApp, store: Store, queue: str) -> Counter[str]:
    """Count the messages of `queue` by task, but for those that every app has."""
    counts: Counter[str] = Counter()
    for message in store.messages(store.keys.queue(queue)):
        with contextlib.suppress(ValueError):  # what cannot be read is a dead letter at its turn
            task = str(message.payload()["headers"].get("task"))
            if task not in (MAP, STARMAP) and builtin_task(app, task) is None:
                counts[task] += 1
    return counts


def _compare(
    tasks: dict[str, str], fleet: Mapping[str, Member], waiting: Mapping[str, int], queue: str
) -> QueueCheck:
    workers = {name: one.tasks for name, one in fleet.items() if queue in one.queues}
    able = {
        task: tuple(name for name, known in workers.items() if known.get(task) == version)
        for task, version in tasks.items()
    }
    known = {task for one in workers.values() for task in one}
    others = {task: count for task, count in waiting.items() if task not in tasks}
    return QueueCheck(
        workers=tuple(workers),
        missing={
            task: OTHER if task in known else NOBODY for task, names in able.items() if not names
        },
        partly={task: names for task, names in able.items() if 0 < len(names) < len(workers)},
        waiting=others,
        lost=tuple(task for task in waiting if task not in known),
    )


def _show(queue: str, found: QueueCheck) -> None:
    say(f"{queue}: workers {', '.join(found.workers) or 'none'}")
    for task, why in found.missing.items():
        say(f"  cannot run {task}: {why}")
    for task, names in found.partly.items():
        say(f"  {task} runs only in {', '.join(names)}")
    for task, count in found.waiting.items():
        by = "nor any live worker" if task in found.lost else "but a live worker can"
        say(f"  {count} of {task} wait, which this code cannot run, {by}")
    for task in found.lost:
        if task not in found.waiting:
            say(f"  messages of {task} wait, and no live worker can run them")
    if not (found.missing or found.waiting or found.lost):
        say("  its workers can run this code")
