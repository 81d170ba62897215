"""The table of the outbox. Tested by test_outbox.py."""

from django.db import models
from django.utils import timezone


class Unsent(models.Model):
    """One task that is sent with the commit of its row: see outbox.py.

    id: the task's. app: the name of its app. call: task, arguments and options, as JSON.
    """

    id = models.CharField(primary_key=True, max_length=255)
    app = models.CharField(max_length=255)
    call = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        app_label = "blimp_queue"
        verbose_name_plural = "unsent"

    def __str__(self) -> str:
        return str(self.id)
