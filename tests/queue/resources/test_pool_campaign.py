"""A short campaign of `make releases`; and its checker finds faults."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from benchmarks.releases_check import CLAIMS, Checker, Claims
from blimp.clock import Clock, SystemClock
from blimp.queue.resources import ResourcePool
from blimp.queue.resources.grant import Grant, Ticket

Damage = Callable[[redis.Redis, ResourcePool], object]


def test_no_resource_is_lost_or_doubled_where_processes_are_killed() -> None:
    words = "-m benchmarks.releases --releases 200 --kills 6 --processes 4 --seed 4"
    done = subprocess.run(
        [sys.executable, *words.split()], capture_output=True, text=True, timeout=60.0, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["double_released"] >= 200
    assert report["kills"] >= 1
    assert report["snapshots"] > 3


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda server, pool: server.hdel(pool.keys.resources, "free"), "lost"),
        (lambda server, pool: server.hset(pool.keys.resources, "third", ""), "not of the pool"),
        (lambda server, pool: server.zrem(pool.keys.free, "free"), "free and not"),
        (lambda server, pool: server.zadd(pool.keys.free, {"busy": 1.0}), "both free and busy"),
        (lambda server, pool: server.zrem(pool.keys.due, "busy"), "busy and not"),
        (lambda server, pool: server.hset(pool.keys.holders, "eve", "busy"), "holders"),
    ],
)
def test_the_checker_sees_what_is_wrong(
    pool: ResourcePool, server: redis.Redis, damage: Damage, what: str
) -> None:
    pool.add("busy")
    pool.acquire("alice")
    pool.add("free")
    checker = Checker(server, pool="ships", resources={"busy", "free"})
    checker.look()
    assert checker.wrong == []
    damage(server, pool)
    checker.look()
    assert any(what in one for one in checker.wrong), checker.wrong


def test_the_checker_sees_a_token_that_goes_back_and_two_that_believe_to_hold(
    pool: ResourcePool, server: redis.Redis
) -> None:
    pool.add("twin")
    first = pool.acquire("alice")
    checker = Checker(server, pool="ships", resources={"twin"})
    checker.look()
    value: Any = server.hget(pool.keys.resources, "twin")
    server.hset(pool.keys.resources, "twin", value.replace(b"%d" % first.token, b"7"))
    checker.look()
    assert any("token 7 after" in one for one in checker.wrong)
    claims = Claims(server)
    claims.claim(first)
    claims.claim(first)
    assert checker.overlaps() == []
    claims.claim(_grant_to("bob"))
    [seen] = checker.overlaps()
    assert "and bob at" in seen


class Stalling(SystemClock):
    """A process that stands still for 4 s each time it has looked at the clock."""

    def __init__(self) -> None:
        self._now_s = 96.0

    def now_s(self) -> float:
        self._now_s += 4.0
        return self._now_s


def test_a_process_that_stands_still_claims_no_more_than_it_was_granted(
    server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Stalling()
    grant = _grant_to("alice", clock)  # for 5 s from 100 s on
    monkeypatch.setattr(time, "monotonic", clock.now_s)
    Claims(server).claim(grant)
    until_s = float(server.hget(CLAIMS, "twin").split()[1])  # type: ignore[union-attr]
    assert until_s <= 105.0


def _grant_to(holder: str, clock: Clock | None = None) -> Grant:
    clock = clock or SystemClock()
    ticket = Ticket(pool="ships", resource="twin", token=8, holder=holder)
    return Grant(ticket=ticket, ttl_s=5.0, asked_s=clock.now_s(), clock=clock)
