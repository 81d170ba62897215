"""What stands around the core, by the name under which the core asks for it: the one table.

The core keeps the promise: nothing lost, nothing stale, nothing doubled. It imports none of these;
each is loaded when a URL, an option or a command asks for it. A further neighbour is a package
beside them and one line here. `celery/` is what exists for the sake of Celery and kombu, `extras/`
what needs a package of its own.

Tested by test_extensions.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from blimp.distribution import needing
from blimp.errors import ConfigError


class Neighbour(NamedTuple):
    """Where a part is, "module:attribute", and the extra that it needs, "" for none.

    what: begins the message if the extra is missing.
    """

    path: str
    extra: str = ""
    what: str = ""


NEIGHBOURS = {
    # Brokers, by the name of their transport; see brokers/__init__.py.
    "amqp": Neighbour("blimp.queue.celery.rabbitmq:RabbitBroker"),
    "memory": Neighbour("blimp.queue.celery.kombu_broker:MemoryBroker"),
    # Results, by the scheme of their URL.
    "db": Neighbour(
        "blimp.queue.extras.sql.database:SqlResults", "sql", "result_backend: a database needs"
    ),
    # Parts of a worker.
    "kombu broadcasts": Neighbour("blimp.queue.celery.control.kombu_listener:KombuListener"),
    "remote control": Neighbour("blimp.queue.celery.control.remote_control:RemoteControl"),
    "events": Neighbour("blimp.queue.celery.events.worker_events:WorkerEvents"),
    "sent events": Neighbour("blimp.queue.celery.events.event_sender:SentEvents"),
    "processes": Neighbour("blimp.queue.extras.processes.process_pool:ProcessPool"),
    "watching": Neighbour("blimp.queue.extras.observability.watch:watched"),
    # Commands of `blimp-queue`.
    "inspect": Neighbour("blimp.queue.celery.control.remote:add_commands"),
    "page": Neighbour("blimp.queue.extras.page.page_command:add_commands"),
}


def neighbour(name: str) -> Callable[..., Any]:
    """Return the neighbour called `name`, imported. Raises ConfigError if its extra is missing."""
    found = NEIGHBOURS[name]
    if not found.extra:
        return _found(found.path)
    with needing(found.extra, found.what):
        return _found(found.path)


def load(factory: Callable[..., Any] | str) -> Callable[..., Any]:
    """Return `factory`, imported if it is given as "module:attribute". Raises ConfigError."""
    if not isinstance(factory, str):
        return factory
    try:
        return _found(factory)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"extension {factory!r} cannot be loaded: {error}") from error


def _found(path: str) -> Callable[..., Any]:
    module, _, attribute = path.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found
