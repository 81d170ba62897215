"""Celery's events: what a worker and its tasks do, told to whoever listens."""
