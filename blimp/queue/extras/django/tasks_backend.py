"""The queue as a backend of `django.tasks`, which Django has from 6.0 on.

    # shop/settings.py
    TASKS = {
        "default": {
            "BACKEND": "blimp.queue.django.TasksBackend",
            "QUEUES": ["default", "mails"],
            "OPTIONS": {"app": "shop.queue:app"},
        }
    }

What `django.tasks.task` decorates runs in the workers of that app. What a task ended with is its
record; beside it, under an id of its own, stands what Django wants to know and a record does not
say: see ticket.py.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError
from blimp.queue.extras.django import HEADER
from blimp.queue.extras.django.django_app import DjangoTaskApp
from blimp.queue.extras.django.outbox import (
    INSTALLED_APP,
    find_unsent,
    in_transaction,
    is_installed,
    send_now,
    send_on_commit,
)
from blimp.queue.protocol.message import EMERGENCY, HIGH, LOW, NORMAL, new_id
from blimp.queue.protocol.record import Record, State
from blimp.suggest import suggestion

try:
    from django.tasks import DEFAULT_TASK_QUEUE_NAME as DEFAULT
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.exceptions import InvalidTaskBackend, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued
except ImportError as error:
    import django

    raise ConfigError(
        f"blimp.queue.django.TasksBackend needs Django 6.0 or later, and this is "
        f"{django.__version__}: `django.tasks` came with 6.0"
    ) from error
from django.core import checks
from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone
from django.utils.module_loading import import_string

from blimp.queue.extras.django.task_function import declared, find_task
from blimp.queue.extras.django.ticket import Ticket, now

if TYPE_CHECKING:
    from django.tasks import Task, TaskResult

ALWAYS = "always"
NO_OUTBOX = f"{INSTALLED_APP!r} is not in INSTALLED_APPS"
APP = "blimp.queue.django:app"  # made of BLIMP_QUEUE alone
OPTIONS = ("app", "database", "outbox")


class TasksBackend(BaseTaskBackend):
    """Sends Django's tasks through a DjangoTaskApp.

    OPTIONS: "app", the app's path, as the command line's `-A`; by default the one that
    BLIMP_QUEUE alone makes; "database", the alias of the one whose transactions a task is sent
    with, by default "default"; "outbox": "always", if it is a row without a transaction, too.
    Raises InvalidTaskBackend for another option.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        for name in self.options:
            if name not in OPTIONS:
                near = suggestion(str(name), OPTIONS)
                known = ", ".join(OPTIONS)
                raise InvalidTaskBackend(f"{self._where}: no option {name!r}{near}; it has {known}")
        self._database: str = self.options.get("database", DEFAULT_DB_ALIAS)
        self._always = self.options.get("outbox") == ALWAYS
        if not self._always and "outbox" in self.options:
            found = self.options["outbox"]
            raise InvalidTaskBackend(f"{self._where}['outbox'] is {found!r}: must be {ALWAYS!r}")

    @property
    def _where(self) -> str:
        return f"TASKS[{self.alias!r}]['OPTIONS']"

    @cached_property
    def app(self) -> DjangoTaskApp:
        """The app. Not before the first task is sent: its module may import tasks."""
        path = self.options.get("app", APP)
        try:
            found = import_string(path.replace(":", "."))
        except (ImportError, AttributeError, TypeError) as error:
            raise InvalidTaskBackend(f"{self._where}['app'] is {path!r}: {error}") from error
        if not isinstance(found, DjangoTaskApp):
            kind = type(found).__name__
            raise InvalidTaskBackend(f"{self._where}['app'] is {path!r}: {kind}, no DjangoTaskApp")
        return found

    def validate_task(self, task: Task) -> None:
        """Do what Django does, and know the task: each is checked as it is declared."""
        super().validate_task(task)
        declared.setdefault(task.module_path, task)

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Send it, with the transaction if there is one.

        Raises TypeError or MessageError for arguments that JSON cannot hold; without outbox and
        transaction LinkError if no broker answers.
        """
        self.validate_task(task)
        ticket = Ticket.of(task, id=new_id(), args=args, kwargs=kwargs, at=now(self.app))
        result = ticket.result(task, Record(id=ticket.id, state=State.PENDING))
        options: dict[str, Any] = {
            "task_id": ticket.id,
            "queue": self.app.queue if task.queue_name == DEFAULT else task.queue_name,
            "priority": priority_of(task.priority),
            "headers": {HEADER: ticket.document()},
        }
        if task.run_after is not None:
            options["eta"] = _aware(task.run_after)
        call = (self.app, ticket.name, result.args, result.kwargs, options)
        if self._always or in_transaction(self._database):
            send_on_commit(*call, using=self._database, always=self._always)
        else:  # and without a connection to the database
            send_now(*call)
        task_enqueued.send_robust(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return what the app's result backend has of it. Raises LinkError, ResultError."""
        if self.app.results is None:
            return super().get_result(result_id)
        record = self.app.results.get(str(result_id))  # before the ticket: it may end meanwhile
        ticket = self._ticket(str(result_id))
        task = None if ticket is None else find_task(ticket.name)
        if ticket is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        return ticket.result(task, record)

    def _ticket(self, id: str) -> Ticket | None:
        """Return what is known of task `id`, sent or not."""
        found = Ticket.kept(self.app, id)
        if found is None and (call := find_unsent(id, using=self._database)) is not None:
            return Ticket.sent(*call) if HEADER in (call[3].get("headers") or {}) else None
        return found or Ticket.kept(self.app, id)  # perhaps it was sent meanwhile

    def check(self, **_: Any) -> list[checks.CheckMessage]:
        """Say what is wrong with the app before the first task is sent."""
        try:
            app = self.app
        except (InvalidTaskBackend, ConfigError) as error:
            return [checks.Error(str(error), id="blimp.E001")]
        found: list[checks.CheckMessage] = []
        if app.results is None:
            words = "BLIMP_QUEUE has no 'result_backend': get_result() and refresh() raise"
            found.append(checks.Info(words, id="blimp.I001"))
        if self._always and not is_installed():
            found.append(checks.Error(f"{self._where}['outbox']: {NO_OUTBOX}", id="blimp.E002"))
        return found


@checks.register
def check_outbox(**_: Any) -> list[checks.CheckMessage]:
    """Say that there is none: what sends in a transaction relies on it."""
    hint = "A task is lost if its process is killed between the commit and the send."
    return [] if is_installed() else [checks.Warning(NO_OUTBOX, hint=hint, id="blimp.W001")]


def priority_of(priority: int) -> int:
    """Return the level of Django's -100 to 100: what is above 50, above 0, 0, and below it."""
    if priority > 50:
        return EMERGENCY
    return HIGH if priority > 0 else NORMAL if priority == 0 else LOW


def _aware(moment: Any) -> Any:
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
