"""`results`: list tasks that failed for good, send them again, delete old results."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError, ResultError
from blimp.queue.cli import A_TASK, add_command, add_json, positive, say, say_error, say_json
from blimp.queue.operations import send_again

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.record import Record
    from blimp.queue.results.backend import ResultBackend

LIST_LIMIT = 100
LONGEST = 200  # letters of a reason in a line


def add_commands(commands: Any) -> None:
    """Add `results` to an argparse parser's commands."""
    meaning = "list failed tasks, send them again, delete old results"
    results = add_command(commands, "results", meaning=meaning, typed="results failed")
    verbs = results.add_subparsers(dest="verb", required=True)
    failed = add_command(
        verbs,
        "failed",
        list_failures,
        meaning="tasks that failed for good, the newest first",
        about="List the tasks that failed for good (FAILURE, REFUSED, INTERRUPTED), the newest "
        "first. Other apps may share the app's result backend: `--all` lists theirs, too.",
        typed="results failed",
    )
    meaning = f"how many; default {LIST_LIMIT}"
    failed.add_argument("--limit", type=positive, default=LIST_LIMIT, metavar="N", help=meaning)
    failed.add_argument("--all", action="store_true", help="include tasks that are not in the app")
    add_json(failed)
    retry = add_command(
        verbs,
        "retry",
        retry_tasks,
        meaning="send failed tasks again",
        about="Send each task again, under a new id, which is printed. Arguments are stored of "
        "tasks that failed; in a database, and of others, the app needs result_extended=True. "
        "Callbacks and chords that followed the first one are not sent.",
        typed=f"results retry {A_TASK}",
    )
    meaning, typed = "delete the results of tasks", f"results forget {A_TASK}"
    forget = add_command(verbs, "forget", forget_results, meaning=meaning, typed=typed)
    for verb in (retry, forget):
        verb.add_argument("id", nargs="+", help="ids of tasks, from `results failed`")
    add_command(
        verbs,
        "cleanup",
        clean_up,
        meaning="delete results that are older than result_expires_s",
        about="Delete results that are older than the app's result_expires_s. Its workers do so by "
        "themselves, and results on a Redis server expire.",
        typed="results cleanup",
    )


def list_failures(app: TaskApp, options: argparse.Namespace) -> int:
    with app:
        # An app without tasks only sends them: it cannot say which are its own.
        names = app.tasks if app.tasks and not options.all else None
        found = _backend(app).failures(limit=options.limit, names=names)
    if options.json:
        say_json([_document(record) for record in found])
        return 0
    if not found:
        say("no task has failed for good")
    for record in found:
        reason = " ".join(record.reason.split())[:LONGEST]
        kind = record.fault.exc_type if record.fault else ""
        name, done = record.name or "-", record.date_done or "-"
        say(f"{record.id}  {done}  {name}  {record.state}  {kind}: {reason}")
        if record.args is not None or record.kwargs:
            say(f"  args {record.args!r:.{LONGEST}}  kwargs {record.kwargs!r:.{LONGEST}}")
    return 0


def retry_tasks(app: TaskApp, options: argparse.Namespace) -> int:
    """Send each again; return 1 if one cannot be."""
    status = 0
    with app:
        backend = _backend(app)
        for id in options.id:
            try:
                say(f"{id}  sent again as {send_again(app, backend.get(id))}")
            except ResultError as error:
                say_error(f"task {id}: {error}")
                status = 1
    return status


def forget_results(app: TaskApp, options: argparse.Namespace) -> int:
    with app:
        backend = _backend(app)
        for id in options.id:
            backend.forget(id)
    return 0


def clean_up(app: TaskApp, _: argparse.Namespace) -> int:
    with app:
        count = _backend(app).cleanup()
    say(f"{count} result{'' if count == 1 else 's'} deleted")
    return 0


def _backend(app: TaskApp) -> ResultBackend:
    """Raises ConfigError if the app keeps no results."""
    if app.results is None:
        raise ConfigError(f"app {app.name!r} keeps no results: it has no result_backend")
    return app.results


def _document(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "task": record.name,
        "state": record.state.value,
        "date_done": record.date_done,
        "error": record.fault.exc_type if record.fault else None,
        "reason": record.reason,
        "traceback": record.traceback,
        "worker": record.worker,
        "queue": record.queue,
        "retries": record.retries,
        "args": record.args,
        "kwargs": record.kwargs,
    }
