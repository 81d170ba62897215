"""Asking a worker as Celery's clients do."""

from tests.queue.celery.control.conftest import ask

__all__ = ["ask"]
