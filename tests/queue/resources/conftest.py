"""A pool on a real server, whose clock can be moved."""

from collections.abc import Callable

import pytest
import redis

from blimp.queue.redis.keys import pool_keys
from blimp.queue.resources import ResourcePool

TTL_S = 30.0
Pass = Callable[[float], None]


def pass_time(server: redis.Redis, name: str, seconds: float) -> None:
    """Advance the clock of a pool by `seconds`; or have the server's go back by as much."""
    field = "steady" if seconds > 0 else "wall"
    server.hincrby(pool_keys(name).counts, field, round(abs(seconds) * 1e6))


@pytest.fixture
def pool(server: redis.Redis) -> ResourcePool:
    return ResourcePool(server, "ships", ttl_s=TTL_S)


@pytest.fixture
def later(server: redis.Redis) -> Pass:
    return lambda seconds: pass_time(server, "ships", seconds)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew in the background every 0.05 s; the time to live of grants stays."""
    monkeypatch.setattr("blimp.queue.resources.grant.LONGEST_S", 0.05)
