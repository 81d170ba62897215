"""Releases with both callbacks firing, under kill -9: `python -m benchmarks.releases`.

Eight processes acquire resources of one pool and release each twice: once themselves, as a
`link_error` that is called directly, and once through a list from which any of them takes, as a
`link` that is queued. Processes are killed at random and restarted. Some hold a resource for longer
than their grant lasts, some release what they never had. Meanwhile a checker that shares no code
with the pool checks that no resource is lost, free twice, or held by two.

Prints one JSON object, with --out into a file as well. Exit status: 1 if the checker found a fault.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import multiprocessing
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import print_figures, print_progress
from benchmarks.releases_check import Checker, Claims
from blimp.errors import LeaseError, NoneFree
from blimp.queue.redis.client import open_redis
from blimp.queue.resources import ResourcePool, Ticket
from tests.broker import EmbeddedBroker

POOL = "campaign"
RESOURCES = 6  # fewer than processes, so that some always wait
TTL_S = 0.4
CALLBACKS, STOP = "campaign:callbacks", "campaign:stop"
SLEEPY, FORGED, RENEWED = 0.0005, 0.01, 0.05  # shares of the grants
TIMEOUT_S = 10.0
ASK_EVERY = 8  # grants, between two looks whether to stop
LOOKS = 3  # between two counts


class Process:
    """One run of a process: holds, releases, and makes the releases that others have queued."""

    def __init__(self, *, url: str, name: str, seed: int) -> None:
        self._name = name
        self._chance = random.Random(f"{seed} {name}")
        self._client: Any = open_redis(url, timeout_s=TIMEOUT_S)
        self._pool = ResourcePool(self._client, POOL, ttl_s=TTL_S)
        self._claims = Claims(self._client)

    def run(self) -> None:
        logging.disable(logging.ERROR)  # a warning for each second release
        for number in itertools.count():
            if number % ASK_EVERY == 0 and self._client.exists(STOP):
                return
            queued = self._client.rpop(CALLBACKS)
            if queued is not None:
                self._pool.release(Ticket.read(json.loads(queued)))
            try:
                self._hold(f"{self._name}.{number}")
            except NoneFree:
                continue

    def _hold(self, holder: str) -> None:
        grant = self._pool.acquire(holder, wait_s=1.0)
        self._claims.claim(grant)
        drawn = self._chance.random()
        if drawn < SLEEPY:
            time.sleep(1.5 * TTL_S)
        elif drawn < RENEWED and self._pool.renew(grant):
            self._claims.claim(grant)
        self._claims.unclaim(grant.resource, holder)
        if drawn > 1.0 - FORGED:
            self._pool.release(Ticket.read(grant.as_dict() | {"token": grant.token + 10**9}))
        is_queued_first = self._chance.random() < 0.5
        if is_queued_first:
            self._queue(grant.ticket)
        self._pool.release(grant)
        if not is_queued_first:
            self._queue(grant.ticket)

    def _queue(self, ticket: Ticket) -> None:
        self._client.lpush(CALLBACKS, json.dumps({
            "pool": ticket.pool, "resource": ticket.resource,
            "token": ticket.token, "holder": ticket.holder,
        }))  # fmt: skip


class Campaign:
    """Starts the processes, kills them by the number of releases so far, and checks the pool."""

    def __init__(self, *, url: str, releases: int, kills: int, processes: int, seed: int) -> None:
        self._url = url
        self._releases = releases
        self._kills = kills
        self._processes = processes
        self._seed = seed
        self._chance = random.Random(seed)
        self._client: Any = open_redis(url, timeout_s=TIMEOUT_S)
        self._pool = ResourcePool(self._client, POOL, ttl_s=TTL_S)
        self._children: dict[int, Any] = {}
        self._lives = 0

    def run(self) -> dict[str, Any]:
        resources = {f"resource-{number}" for number in range(RESOURCES)}
        for name in sorted(resources):
            self._pool.add(name)
        checker = Checker(self._client, pool=POOL, resources=resources)
        for place in range(self._processes):
            self._start(place)
        began_s = time.monotonic()
        killed, next_kill = 0, self._gap()
        stats = self._pool.stats()
        while stats.double_released < self._releases:
            for _ in range(LOOKS):
                checker.look()
            stats = self._pool.stats()
            if killed < self._kills and stats.double_released >= next_kill:
                self._kill(self._chance.randrange(self._processes))
                killed, next_kill = killed + 1, next_kill + self._gap()
                if killed % 20 == 0:
                    print_progress(f"{stats.double_released} of {self._releases}")
        took_s = time.monotonic() - began_s
        self._stop(checker)
        stats = self._pool.stats()
        ended = stats.released + stats.expired + stats.taken_away
        wrong = checker.wrong[:20] + checker.overlaps()[:20]
        if (stats.busy, len(stats.free)) != ((), RESOURCES):
            wrong.append(f"at the end: {stats.busy} busy, {stats.free} free")
        if stats.acquired != ended:
            wrong.append(f"{stats.acquired} grants, and {ended} ended")
        return {
            "releases_with_both_callbacks": stats.double_released,
            "processes": self._processes,
            "kills": killed,
            "resources": RESOURCES,
            "ttl_s": TTL_S,
            "acquired": stats.acquired,
            "released": stats.released,
            "double_released": stats.double_released,
            "expired": stats.expired,
            "stale": stats.stale,
            "forged": stats.forged,
            "refused": stats.refused,
            "repaired": stats.repaired,
            "snapshots": checker.looks,
            "acquisitions_per_s": round(stats.acquired / took_s, 1),
            "took_s": round(took_s, 1),
            "wrong": wrong,
        }

    def _gap(self) -> int:
        """Return after how many more releases the next process is killed."""
        mean = self._releases / (self._kills + 1)
        return round(self._chance.uniform(0.5, 1.4) * mean)

    def _start(self, place: int) -> None:
        self._lives += 1
        name = f"p{place}.{self._lives}"
        life = multiprocessing.get_context("fork").Process(
            target=_live, args=(self._url, name, self._seed), daemon=True
        )
        life.start()
        self._children[place] = life

    def _kill(self, place: int) -> None:
        child = self._children[place]
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        self._start(place)

    def _stop(self, checker: Checker) -> None:
        """Stop all, make the releases still queued, and wait for the grants of killed processes."""
        self._client.set(STOP, "1")
        for child in self._children.values():
            child.join(TIMEOUT_S)
        logging.disable(logging.ERROR)
        while (queued := self._client.rpop(CALLBACKS)) is not None:
            self._pool.release(Ticket.read(json.loads(queued)))
        until_s = time.monotonic() + 10.0 * TTL_S
        while self._pool.stats().busy and time.monotonic() < until_s:
            checker.look()
        checker.look()


def _live(url: str, name: str, seed: int) -> None:
    try:
        Process(url=url, name=name, seed=seed).run()
    except LeaseError as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--releases", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=400)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", action="store_true", help="on one line")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="blimp-"))
    report: dict[str, Any] = {"seed": options.seed, "python": platform.python_version()}
    try:
        with EmbeddedBroker(directory=directory / "b") as broker:
            report |= Campaign(
                url=broker.url,
                releases=options.releases,
                kills=options.kills,
                processes=options.processes,
                seed=options.seed,
            ).run()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = print_figures("benchmarks.releases", report, one_line=options.json)
    if options.out is not None:
        options.out.write_text(text + "\n")
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
