"""The settings; tests give directory, broker and further databases in the environment."""

import json
import os
from pathlib import Path

import django

DIRECTORY = Path(os.environ.get("PROJECT_DIRECTORY", "."))
BROKER = os.environ.get("PROJECT_BROKER", "redis://localhost/0")

SECRET_KEY = "of an example"
USE_TZ = True
ROOT_URLCONF = "tests.queue.django_project.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "blimp.queue.extras.django",
    "tests.queue.django_project.orders",
    "tests.queue.django_project.probes",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DIRECTORY / "shop.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    },
    "archive": {"ENGINE": "django.db.backends.sqlite3", "NAME": DIRECTORY / "archive.sqlite3"},
    **json.loads(os.environ.get("PROJECT_DATABASES", "{}")),
}

BLIMP_QUEUE = {"broker": BROKER, "result_backend": BROKER}
TASKS = {
    "default": {
        "BACKEND": "blimp.queue.django.TasksBackend",
        "QUEUES": ["default", "slow"],
        "OPTIONS": {"app": "tests.queue.django_project.queue:app"},
    }
}
if django.VERSION >= (6, 0):  # the first with `django.tasks`
    INSTALLED_APPS += ["tests.queue.django_project.mails"]
