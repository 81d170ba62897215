"""The app of the project's tasks, which a worker is started with."""

import os

from blimp.queue.django import DjangoTaskApp

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.queue.django_project.settings")

app = DjangoTaskApp("shop")
