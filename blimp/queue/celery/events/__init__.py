"""Celery's events: what a worker and its tasks do, for monitors such as Flower."""
