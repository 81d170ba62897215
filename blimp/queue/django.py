"""What a Django project imports of the queue. Tested by test_tasks_backend.py."""

from typing import TYPE_CHECKING, Any

from blimp.queue.extras.django.django_app import DjangoTaskApp, default_app

if TYPE_CHECKING:
    from blimp.queue.extras.django.tasks_backend import TasksBackend

__all__ = ["DjangoTaskApp", "TasksBackend"]


def __getattr__(name: str) -> Any:
    """Return `TasksBackend`, which needs Django 6.0, or `app`, the app of settings alone."""
    if name == "app":
        return default_app()
    if name == "TasksBackend":
        from blimp.queue.extras.django.tasks_backend import TasksBackend

        return TasksBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
