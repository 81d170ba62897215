"""`results`: list tasks that failed for good, send them again, delete old results."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError, ResultError
from blimp.queue.cli import A_TASK, add_app, add_json, example, positive

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.record import Record
    from blimp.queue.results.backend import ResultBackend

LIST_LIMIT = 100
LONGEST = 200  # letters of a reason in a line


def add_commands(commands: Any) -> None:
    """Add `results` to an argparse parser's commands."""
    results = commands.add_parser(
        "results",
        help="list failed tasks, send them again, delete old results",
        epilog=example("results failed"),
    )
    verbs = results.add_subparsers(dest="verb", required=True)
    failed = verbs.add_parser(
        "failed",
        help="tasks that failed for good, the newest first",
        description="List the tasks that failed for good (FAILURE, REFUSED, INTERRUPTED), the "
        "newest first: all in the app's result backend, also those of other apps that share it.",
        epilog=example("results failed"),
    )
    failed.set_defaults(run=list_failures)
    failed.add_argument(
        "--limit",
        type=positive,
        default=LIST_LIMIT,
        metavar="N",
        help=f"how many; default {LIST_LIMIT}",
    )
    add_json(failed)
    retry = verbs.add_parser(
        "retry",
        help="send failed tasks again",
        description="Send each task again, under a new id, which is printed. The arguments must "
        "be stored: the app needs result_extended=True. Callbacks and chords that followed the "
        "first one are not sent.",
        epilog=example(f"results retry {A_TASK}"),
    )
    retry.set_defaults(run=retry_tasks)
    forget = verbs.add_parser(
        "forget",
        help="delete the results of tasks",
        epilog=example(f"results forget {A_TASK}"),
    )
    forget.set_defaults(run=forget_results)
    for verb in (retry, forget):
        verb.add_argument("id", nargs="+", help="of the tasks, from `results failed`")
    cleanup = verbs.add_parser(
        "cleanup",
        help="delete results that are older than result_expires_s",
        description="Delete results that are older than the app's result_expires_s. Its workers "
        "do so by themselves, and results on a Redis server expire.",
        epilog=example("results cleanup"),
    )
    cleanup.set_defaults(run=clean_up)
    for verb in (failed, retry, forget, cleanup):
        add_app(verb)


def list_failures(app: TaskApp, options: argparse.Namespace) -> int:
    with app:
        found = _backend(app).failures(limit=options.limit)
    if options.json:
        print(json.dumps([_document(record) for record in found], default=repr))
        return 0
    for record in found:
        reason = " ".join(record.reason.split())[:LONGEST]
        kind = record.fault.exc_type if record.fault else ""
        print(
            f"{record.id}  {record.date_done or '-'}  {record.name or '-'}  {record.state}  "
            f"{kind}: {reason}"
        )
        if record.args is not None or record.kwargs:
            print(f"  args {record.args!r:.{LONGEST}}  kwargs {record.kwargs!r:.{LONGEST}}")
    return 0


def retry_tasks(app: TaskApp, options: argparse.Namespace) -> int:
    """Send each again; return 1 if one cannot be."""
    status = 0
    with app:
        backend = _backend(app)
        for id in options.id:
            try:
                print(f"{id}  sent again as {_retry(app, backend.get(id))}")
            except ResultError as error:
                print(f"error: task {id}: {error}", file=sys.stderr)
                status = 1
    return status


def _retry(app: TaskApp, record: Record) -> str:
    """Send the task of `record` again; return its new id. Raises ResultError, LinkError."""
    if not record.final:
        raise ResultError(f"is {record.state}: only a task that has ended can be sent again")
    if record.name is None or record.args is None:
        missing = "name" if record.name is None else "arguments"
        raise ResultError(
            f"its {missing} are not stored: give the app result_extended=True, "
            "for tasks that end from then on"
        )
    options: Any = {} if record.queue is None else {"queue": record.queue}
    return app.send_task(record.name, record.args, record.kwargs, **options).id


def forget_results(app: TaskApp, options: argparse.Namespace) -> int:
    with app:
        backend = _backend(app)
        for id in options.id:
            backend.forget(id)
    return 0


def clean_up(app: TaskApp, _: argparse.Namespace) -> int:
    with app:
        count = _backend(app).cleanup()
    print(f"{count} result{'' if count == 1 else 's'} deleted")
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
