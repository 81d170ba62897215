"""Where what became of a task is kept, in the words and keys that Celery uses."""
