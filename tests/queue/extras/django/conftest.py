"""The Django project of the tests, set up once in this process."""

import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import Client
from django.test.utils import setup_test_environment, teardown_test_environment

from blimp.errors import LinkError
from blimp.queue.testing import InProcess
from tests.broker import EmbeddedBroker

APP = "tests.queue.django_project.queue:app"
ALIASES = ("default", "archive")
WITHOUT_OUTBOX = [f"tests.queue.django_project.{one}" for one in ("orders", "probes")]
SHARED = {name: os.environ.get(name) for name in ("TZ", "DJANGO_SETTINGS_MODULE")}


@pytest.fixture(autouse=True)
def process_keeps_its_environment() -> Iterator[None]:
    """Django and its project set what other tests of this process, and their children, share."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.queue.django_project.settings"
    yield
    for name, value in SHARED.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    time.tzset()


@pytest.fixture(scope="session")
def project(
    broker_server: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SimpleNamespace]:
    """The project, set up once in this process, on files of its own."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PROJECT_DIRECTORY", str(tmp_path_factory.mktemp("project")))
        environment.setenv("PROJECT_BROKER", broker_server.url)
        from tests.queue.django_project.queue import app

        with app:
            app.import_tasks()
            from tests.queue.django_project.orders import tasks
            from tests.queue.django_project.orders.models import Order

            for alias in ALIASES:
                call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
            setup_test_environment()
            yield SimpleNamespace(app=app, tasks=tasks, Order=Order, client=Client())
            teardown_test_environment()
            connections.close_all()


@pytest.fixture
def queue(project: SimpleNamespace, blimp_queue: Callable[..., InProcess]) -> InProcess:
    return blimp_queue(project.app)


def sent(queue: InProcess) -> list[Any]:
    return [message.args for message in queue.waiting]


@pytest.fixture
def unsent(project: SimpleNamespace) -> Iterator[Any]:
    """The rows of the outbox, which are gone after the test."""
    from blimp.queue.extras.django.models import Unsent

    yield Unsent.objects
    Unsent.objects.all().delete()


def unreachable(*_: object) -> None:
    raise LinkError("no broker")
