"""What INSTALLED_APPS has for the outbox: "blimp.queue.extras.django". Tested by test_outbox.py."""

from django.apps import AppConfig


class BlimpQueueConfig(AppConfig):
    name = "blimp.queue.extras.django"
    label = "blimp_queue"
    verbose_name = "Task queue"
