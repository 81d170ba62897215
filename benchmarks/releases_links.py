"""The same through real workers: links that release twice, and tasks that require a resource."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.releases_check import Checker, Claims
from blimp.errors import NoneFree
from blimp.queue import AsyncResult, TaskApp, TaskContext
from blimp.queue.resources import PoolStats

POOL = "linked"
REQUIRED = "required"
RESOURCES = 64
RUN_S = 0.2  # of a task, so that some are killed in it
REQUIRED_RESOURCES = 6
AHEAD = 24  # tasks sent and not done
TTL_S = 3600.0  # no grant expires
QUIET_S = 30.0  # without a release for so long, what is still held is lost
LOOK_EVERY = 4

app = TaskApp(
    "releases",
    broker=os.environ.get("RELEASES_BROKER", "redis+socket:///nowhere"),
    result_backend=os.environ.get("RELEASES_BROKER", "redis+socket:///nowhere"),
)
app.pools.declare(POOL, ttl_s=TTL_S)
app.pools.declare(REQUIRED, ttl_s=TTL_S)


@app.task(name="evaluate", ignore_result=True)
def evaluate(number: int) -> None:
    """Fail every second time, so that the link_error follows."""
    if number % 2:
        raise ValueError(number)


@app.task(name="occupy", requires=REQUIRED, bind=True)
def occupy(context: TaskContext) -> int:
    """Claim the resource, which nobody else may hold; earlier deliveries of the task may."""
    grant = context.grant
    assert grant is not None
    claims = Claims(app.broker_link.client)
    claims.claim(grant)
    context.stopping.wait(RUN_S)
    grant.check()
    claims.unclaim(grant.resource, grant.holder)
    return context.message.retries


class Workers:
    """Real workers; a killed one is restarted under its name."""

    def __init__(self, *, url: str, count: int) -> None:
        self._environment = os.environ | {"RELEASES_BROKER": url}
        self._processes = [self._start(place) for place in range(count)]

    def kill(self, place: int) -> None:
        self._processes[place].kill()
        self._processes[place].wait()
        self._processes[place] = self._start(place)

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(30.0)

    def _start(self, place: int) -> subprocess.Popen[bytes]:
        words = "-m blimp.queue worker -A benchmarks.releases_links:app --sync-workers 4 --name"
        return subprocess.Popen(
            [sys.executable, *words.split(), f"w{place}"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def run_links(*, url: str, grants: int, kills: int, workers: int, seed: int) -> dict[str, Any]:
    """Release `grants` grants by links; return the counts."""
    chance = random.Random(seed)
    with TaskApp("releases", broker=url, result_backend=url) as sender:
        pool = sender.pools[POOL]
        pool.ttl_s = TTL_S
        resources = {f"linked-{number}" for number in range(RESOURCES)}
        for name in sorted(resources):
            pool.add(name)
        checker = Checker(sender.broker_link.client, pool=POOL, resources=resources)
        pools = Workers(url=url, count=workers)
        began_s = time.monotonic()
        killed, next_kill = 0, 1.0
        try:
            for number in range(grants):
                grant = pool.acquire(f"mission-{number}", wait_s=QUIET_S)
                requeue = [pool.release_signature(grant)] * 2
                sender.send_task("evaluate", (number,), link=requeue, link_error=requeue)
                if number % LOOK_EVERY == 0:
                    checker.look()
                if killed < kills and number >= next_kill * grants / (kills + 1):
                    pools.kill(chance.randrange(workers))
                    killed, next_kill = killed + 1, killed + 1 + chance.uniform(0.6, 1.4)
            stats = _until_quiet(pool, checker, grants)
        except NoneFree as error:
            checker.wrong.append(str(error))
            stats = pool.stats()
        finally:
            took_s = time.monotonic() - began_s
            pools.close()
    if (stats.released, stats.expired, len(stats.free)) != (grants, 0, RESOURCES):
        checker.wrong.append(f"{stats.released} of {grants} released, {stats.expired} expired")
    return {
        "grants": grants,
        "workers": workers,
        "kills": killed,
        "resources": RESOURCES,
        "released": stats.released,
        "double_released": stats.double_released,
        "expired": stats.expired,
        "snapshots": checker.looks,
        "grants_per_s": round(grants / took_s, 1),
        "took_s": round(took_s, 1),
        "wrong": checker.wrong[:20],
    }


def run_tasks(*, url: str, tasks: int, kills: int, workers: int, seed: int) -> dict[str, Any]:
    """Run `tasks` tasks that require a resource; return the counts."""
    chance = random.Random(seed)
    resources = {f"required-{number}" for number in range(REQUIRED_RESOURCES)}
    with TaskApp("releases", broker=url, result_backend=url) as sender:
        pool = sender.pools[REQUIRED]
        for name in sorted(resources):
            pool.add(name)
        checker = Checker(sender.broker_link.client, pool=REQUIRED, resources=resources)
        pools = Workers(url=url, count=workers)
        began_s = time.monotonic()
        killed, done, since_s = 0, 0, time.monotonic()
        handles: list[AsyncResult] = []
        try:
            while done < tasks and time.monotonic() - since_s < QUIET_S:
                if len(handles) < tasks and len(handles) - done < AHEAD:
                    handles.append(sender.send_task("occupy"))
                checker.look()
                now = pool.stats().released
                if now > done:
                    done, since_s = now, time.monotonic()
                if killed < kills and done >= (killed + 1) * tasks / (kills + 1):
                    pools.kill(chance.randrange(workers))
                    killed += 1
            states = Counter(handle.wait(QUIET_S).state.value for handle in handles)
            stats = pool.stats()
        finally:
            took_s = time.monotonic() - began_s
            pools.close()
    wrong = checker.wrong[:20] + checker.overlaps()[:20]
    if states != Counter({"SUCCESS": tasks}) or stats.busy or stats.expired:
        wrong.append(f"{dict(states)} of {tasks}; {stats.busy} busy, {stats.expired} expired")
    return {
        "tasks": tasks,
        "workers": workers,
        "kills": killed,
        "resources": len(resources),
        "succeeded": states["SUCCESS"],
        "acquired": stats.acquired,
        "released": stats.released,
        "taken_again": stats.superseded,
        "expired": stats.expired,
        "snapshots": checker.looks,
        "tasks_per_s": round(tasks / took_s, 1),
        "took_s": round(took_s, 1),
        "wrong": wrong,
    }


def _until_quiet(pool: Any, checker: Checker, grants: int) -> PoolStats:
    """Wait until every link has run twice, or no release comes any more."""
    done, since_s = 0, time.monotonic()
    while True:
        checker.look()
        stats: PoolStats = pool.stats()
        now = stats.released + stats.double_released
        if now > done:
            done, since_s = now, time.monotonic()
        is_over = stats.released >= grants and stats.double_released >= grants
        if is_over or time.monotonic() - since_s > QUIET_S:
            return stats
