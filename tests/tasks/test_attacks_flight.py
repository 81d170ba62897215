"""Hostile vehicle commands through a real worker and mailbox: answered at once, by name."""

from typing import Any

import pytest
import redis

from blimp.errors import TaskFailed
from blimp.link.mailbox import MAX_COMMAND_BYTES
from blimp.queue import TaskApp
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S
from tests.queue.golden import envelope
from tests.tasks.test_flight import (  # noqa: F401
    FlightSide,
    app,
    directory,
    ground,
    mailbox,
    ship,
)


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> str:
    """Kombu's own: these attacks reach into its lists."""
    return "streams"


@pytest.mark.parametrize(
    ("headers", "kwargs", "reason"),
    [
        ({}, {"name": "x" * 500_000}, f"bytes: the limit is {MAX_COMMAND_BYTES}"),
        ({"blimp_boot_id": "b" * 100_000}, {}, f"bytes: the limit is {MAX_COMMAND_BYTES}"),
        ({"blimp_boot_id": "\ud800"}, {}, "cannot be sent: 'utf-8' codec can't encode"),
    ],
)
def test_a_command_that_no_datagram_carries_is_named_at_once(
    ground: VehicleClient,  # noqa: F811
    app: TaskApp,  # noqa: F811
    server: redis.Redis,
    ship: FlightSide,  # noqa: F811
    headers: dict[str, Any],
    kwargs: dict[str, Any],
    reason: str,
) -> None:
    # With a time to live of an hour, asking on would hold a thread of the worker that long.
    issued_ms = int(server.time()[0]) * 1000
    headers |= {"blimp_issued_ms": issued_ms, "blimp_ttl_s": 3600, "expires": None}
    server.lpush("blimp.twin", envelope(task="blimp.sensor", id="bad", kwargs=kwargs, **headers))
    with pytest.raises(TaskFailed, match=f"'sensor'.*{reason}"):
        app.result("bad").get(DEADLINE_S)
    assert ship.named("sensor") == []
    assert ground.ping(timeout_s=DEADLINE_S).state == "SUCCESS"


@pytest.mark.parametrize("source", ["y" * 100_000, "\ud800", 7, {"a": [1]}])
def test_whatever_a_sender_calls_himself_he_is_heard(
    ground: VehicleClient,  # noqa: F811
    app: TaskApp,  # noqa: F811
    server: redis.Redis,
    ship: FlightSide,  # noqa: F811
    source: object,
) -> None:
    server.lpush("blimp.twin", envelope(task="blimp.ping", id="ping", blimp_source=source))
    assert app.result("ping").get(DEADLINE_S) == {"fraction": 0.0, "accepted_s": 12.5}
    (command,) = ship.named("ping")
    assert len(command.source) <= 80


def test_an_emergency_stop_with_an_endless_source_stops_the_ship(
    ground: VehicleClient,  # noqa: F811
    app: TaskApp,  # noqa: F811
    ship: FlightSide,  # noqa: F811
) -> None:
    handle = app.broadcast("estop", {"source": "y" * 100_000})
    handle.get(DEADLINE_S)
    assert len(ship.named("estop")) == 1
