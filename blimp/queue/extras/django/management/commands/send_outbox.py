"""`manage.py send_outbox`: what workers do by themselves, now. Tested by test_outbox.py."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.utils.module_loading import import_string

from blimp.errors import LinkError
from blimp.queue.extras.django.outbox import flush, has_table


class Command(BaseCommand):
    help = "Send the tasks that were committed and not sent."

    def add_arguments(self, parser: CommandParser) -> None:
        options = getattr(settings, "TASKS", {}).get("default", {}).get("OPTIONS", {})
        path = options.get("app", "blimp.queue.django:app")
        parser.add_argument(
            "-A", "--app", default=path, help="whose, as module:attribute; default: %(default)s"
        )

    def handle(self, *_: Any, app: str, **__: Any) -> None:
        try:
            found = import_string(app.replace(":", "."))
            found.import_tasks()
            sent = sum(flush(found, using=alias) for alias in connections if has_table(alias))
        except (ImportError, LinkError) as error:
            raise CommandError(f"--app {app}: {error}") from error
        self.stdout.write(f"sent: {sent}")
