"""Tasks that are sent with the commit of a transaction, and never without it: the outbox.

With "blimp.queue.extras.django" in INSTALLED_APPS a task is a row of the transaction, in the same
database. After the commit it is sent and the row deleted. What is killed in between has left the
row: a thread of each worker sends what has lain for a while, and so does `manage.py send_outbox`.
A row has a stamp of its own on the broker, which puts a stamp once, however often and from wherever
it is sent. Without that app the task is a callback of the transaction, and dies with its process.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import close_old_connections, connections, router, transaction
from django.utils import timezone

from blimp.errors import LinkError
from blimp.queue.brokers.streams.envelope import Stamp
from blimp.queue.extensions import BackgroundExtension
from blimp.queue.extras.django import HEADER
from blimp.queue.protocol.kombu_body import from_json
from blimp.queue.protocol.message import AGAIN, new_id, to_json, write_message
from blimp.queue.protocol.record import text_of
from blimp.queue.publish.publisher import check_options, make_message, send
from blimp.queue.redis.keys import Keys

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.extras.django.models import Unsent

INSTALLED_APP = "blimp.queue.extras.django"
OF_THE_ATTEMPT = ("retry", "retry_policy")  # options that no row keeps: a relay is the next try
KEEP_MS = 30 * 86_400_000  # a stamp while its row lies: chosen, as the longest `unique_for`
DELETED_KEEP_S = 600  # and after that: a relay may have read the row before; chosen
LOOK_S = 5.0  # chosen: what a kill delays
LEFT_S = 2.0  # a younger row is its sender's, who takes some milliseconds: chosen
AT_ONCE = 100

logger = logging.getLogger("blimp.queue.outbox")


def is_installed() -> bool:
    return apps.ready and bool(apps.is_installed(INSTALLED_APP))


def in_transaction(using: str) -> bool:
    """Return whether what is written to this database now waits for a commit."""
    connection = connections[using]
    if connection.in_atomic_block:
        return True
    return connection.connection is not None and not connection.get_autocommit()


def send_on_commit(
    app: TaskApp,
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    using: str,
    robust: bool = False,
    always: bool = False,
) -> None:
    """Send a task once the transaction of a database is committed; at once without one.

    always: through the outbox without a transaction, too: the row is committed by itself.
    robust: without the outbox, an error of sending is logged instead of raised.
    Raises what sending does, but for LinkError, and what Django's `on_commit` does.
    """
    args, kwargs = _as_sent(app, name, args, kwargs, options)
    if not (is_installed() and (always or in_transaction(using))):

        def send() -> None:  # no partial: Django names the function in the error that it logs
            send_now(app, name, args, kwargs, options)

        transaction.on_commit(send, using=using, robust=robust)
        return
    from blimp.queue.extras.django.models import Unsent

    kept = {key: value for key, value in options.items() if key not in OF_THE_ATTEMPT}
    kept["task_id"] = kept.get("task_id") or new_id()
    row = Unsent(id=kept["task_id"], app=app.name)
    row.call = to_json([name, args, kwargs, kept]).decode()
    row.save(using=using, force_insert=True)
    if connections[using].in_atomic_block or connections[using].get_autocommit():
        transaction.on_commit(lambda: _leave_or_send(app, row, using=using), using=using)
    # else the caller commits by hand, and a relay sends it


def _as_sent(
    app: TaskApp, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], options: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as a message has them. Raises MessageError, ConfigError."""
    check_options(name, options)
    task = app.tasks.get(name)
    message = make_message(
        name,
        tuple(args),
        dict(kwargs),
        options,
        defaults=None if task is None else task.options,
        queue=app.queue,
        now_s=app.clock.wall_s(),
        origin="",
    )
    body = write_message(message, signer=None, limit_bytes=app.limit_bytes)[1]
    sent_args, sent_kwargs, _ = from_json(body)
    return sent_args, sent_kwargs


def find_unsent(id: str, *, using: str) -> list[Any] | None:
    """Return name, arguments and options of a task that waits for its commit, or to be sent."""
    if not is_installed():
        return None
    from blimp.queue.extras.django.models import Unsent

    row = Unsent.objects.using(using).filter(pk=id).first()
    found: list[Any] | None = None if row is None else from_json(row.call.encode())
    return found


def flush(app: TaskApp, *, using: str, left_s: float = 0.0) -> int:
    """Send the rows of `app` that are older than `left_s`; return how many. Raises LinkError.

    A row that cannot be sent is logged, and the others are sent.
    """
    from blimp.queue.extras.django.models import Unsent

    before = timezone.now() - timedelta(seconds=left_s)
    rows = Unsent.objects.using(using).filter(app=app.name, created_at__lte=before)
    sent, stuck = 0, set[str]()
    while found := rows.exclude(pk__in=stuck).order_by("created_at")[:AT_ONCE]:
        for row in found:
            try:
                _send_row(app, row, using=using, again=True)
                sent += 1
            except LinkError:
                raise
            except Exception:
                logger.exception("task %s stays in the outbox", row.pk)
                stuck.add(row.pk)
    return sent


def _leave_or_send(app: TaskApp, row: Unsent, *, using: str) -> None:
    """Send a row right after its commit. What is wrong is logged: it is left to a relay."""
    try:
        _send_row(app, row, using=using)
    except LinkError as error:
        logger.warning("task %s waits in the outbox: %s", row.pk, error)
    except Exception:
        logger.exception("task %s stays in the outbox", row.pk)


def _send_row(app: TaskApp, row: Unsent, *, using: str, again: bool = False) -> None:
    """Send a row, and delete it. again: perhaps only the deletion is missing."""
    name, args, kwargs, options = from_json(row.call.encode())
    if again:
        options["headers"] = (options.get("headers") or {}) | {AGAIN: True}
    stamp = _stamp(app, row.pk)
    send_now(app, name, args, kwargs, options | {"retry": False}, stamp=stamp)
    type(row).objects.using(using).filter(pk=row.pk).delete()
    if stamp is not None:
        with contextlib.suppress(LinkError):  # then it is kept for longer
            app.broker_link.ask(lambda client: client.expire(stamp.key, DELETED_KEEP_S))


def _stamp(app: TaskApp, id: str) -> Stamp | None:
    """Return the stamp of a row, None where there is none."""
    if not app.publisher.keeps_stamps:
        return None
    return Stamp(Keys().sender(f"outbox:{id}"), 1, KEEP_MS)


def send_now(
    app: TaskApp,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    options: Any,
    *,
    stamp: Stamp | None = None,
) -> None:
    """Send it. Of a task of Django's, what its results need is kept first."""
    headers = options.get("headers") or {}
    if HEADER in headers:
        from blimp.queue.extras.django.ticket import Ticket

        ticket = Ticket.sent(name, args, kwargs, options)
        if AGAIN not in headers or Ticket.kept(app, ticket.id) is None:
            ticket.keep(app)
    send(app, name, args, kwargs, options, stamp=stamp)


class Relay(BackgroundExtension):
    """The thread of one worker that sends what others have left in the outbox."""

    _app: TaskApp

    def __init__(self, worker: Any) -> None:
        super().__init__(worker, name="outbox")
        self._has_table: dict[str, bool] = {}

    def _serve(self) -> None:
        wait_s = 0.0
        while not self._ended.wait(wait_s):
            wait_s = LOOK_S
            for alias in connections:
                try:
                    self._look(alias)
                except Exception as error:  # of a database, of the broker: both may come back
                    self._log.warning("outbox", database=alias, reason=text_of(error))
            if not any(self._has_table.values()):
                self._has_table.clear()  # there may be one after a migration
            close_old_connections()
        connections.close_all()

    def _look(self, alias: str) -> None:
        if alias not in self._has_table:
            self._has_table[alias] = has_table(alias)
        if self._has_table[alias]:
            flush(self._app, using=alias, left_s=LEFT_S)


def has_table(using: str) -> bool:
    """Return whether a database has an outbox. Raises what the database does."""
    from blimp.queue.extras.django.models import Unsent

    if not router.allow_migrate_model(using, Unsent):
        return False
    connection = connections[using]
    was_open = connection.connection is not None
    found = Unsent._meta.db_table in connection.introspection.table_names()
    if not (found or was_open):
        connection.close()
    return found
