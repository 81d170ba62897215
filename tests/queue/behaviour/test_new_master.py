"""The queue on servers that take over from each other: a cluster, and a master with sentinels.

A master dies under load. What was confirmed is lost only as far as the new one had it not, in a
cluster with `wait_replicas` not at all, and it goes on. How long it stands still is a figure of
decision 58: beside other tests the servers' own election takes longer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blimp.errors import ConfigError, LinkError
from blimp.queue import TaskApp, chord
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.redis_cluster import (
    Cluster,
    place_of,
    running_cluster,
    running_sentinels,
)

pytestmark = pytest.mark.long

TAG = "weather"
BEFORE_THE_KILL = 150
AFTER_IT = 150


class Load:
    """Sends numbers until it is stopped; notes which are confirmed, and what each task did."""

    def __init__(self, app: TaskApp) -> None:
        self._app = app
        self.number = 0
        self.confirmed: list[int] = []
        self.effects: list[int] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send)
        app.task(name="note", idempotent=False)(self.effects.append)

    def _send(self) -> None:
        while not self._stopping.is_set():
            self.number += 1
            with contextlib.suppress(LinkError):  # then it may be there or not
                self._app.send_task("note", (self.number,))
                self.confirmed.append(self.number)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)

    def wait_for(self, count: int, what: str) -> None:
        wait_until(lambda: len(self.confirmed) >= count, f"{what}: {len(self.confirmed)}")


def kill_under_load(url: str, kill: Callable[[], None]) -> tuple[list[int], Counter[int]]:
    """Return the numbers confirmed, in order, and how often each had its effect."""
    with (
        TaskApp("tests", broker=url, result_backend=url, timeout_s=1.0) as app,
        Load(app) as load,
        working(app),
    ):
        load.wait_for(BEFORE_THE_KILL, "too little is confirmed before the kill")
        wait_until(lambda: len(load.effects) > 0, "no task runs before the kill")
        kill()
        number = load.number + 1  # is sent to a dead master, or later
        wait_until(lambda: max(load.effects) > number, "no task runs after the kill")
        load.wait_for(len(load.confirmed) + AFTER_IT, "it does not go on")
        load.__exit__()
        wait_until_quiet(load.effects)
        return load.confirmed, Counter(load.effects)


def wait_until_quiet(effects: list[int]) -> None:
    """Wait until nothing was added for longer than a lease."""
    last, since_s = -1, time.monotonic()

    def is_quiet() -> bool:
        nonlocal last, since_s
        if len(effects) != last:
            last, since_s = len(effects), time.monotonic()
        return time.monotonic() - since_s > 3.0

    wait_until(is_quiet, "it never ends")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def check(sent: list[int], effects: Counter[int], *, is_copied: bool) -> None:
    """is_copied: what was confirmed was on a replica; else the newest before the death may be lost.

    A replica has what the master wrote in its order, up to some moment: what is lost has no gap.
    """
    lost = [number for number in sent if number not in effects]
    doubled = [number for number, count in effects.items() if count > 1]
    assert len(sent) >= BEFORE_THE_KILL + AFTER_IT
    if is_copied:
        assert lost == [], f"confirmed and lost: {lost}"
        assert doubled == [], f"ran twice: {doubled}"
    else:
        assert not lost or lost == [one for one in sent if lost[0] <= one <= lost[-1]]


@pytest.mark.parametrize("waits", [False, True])
def test_a_killed_master_of_a_cluster(tmp_path: Path, waits: bool) -> None:
    with running_cluster(tmp_path, spare=place_of(TAG) if waits else None) as cluster:
        url = cluster.url(TAG) + "?wait_replicas=1" * waits
        sent, effects = kill_under_load(url, cluster.master_of(TAG).kill)
    check(sent, effects, is_copied=waits)


@pytest.mark.parametrize("waits", [False, True])
def test_a_killed_master_with_sentinels(tmp_path: Path, waits: bool) -> None:
    with running_sentinels(tmp_path, replicas=1 + waits) as watched:
        url = watched.url + "?wait_replicas=1" * waits
        sent, effects = kill_under_load(url, watched.master.kill)
    # Sentinels know the replicas' offsets from seconds ago: they may elect the one that has less.
    check(sent, effects, is_copied=False)


def test_a_master_that_gives_its_slots_to_its_replica(tmp_path: Path) -> None:
    """It answers MOVED from then on, and nothing is lost."""
    with running_cluster(tmp_path) as cluster:
        replica = cluster.replicas[place_of(TAG)]

        def give() -> None:
            with replica.client() as client:
                client.execute_command("CLUSTER FAILOVER")
                wait_until(lambda: client.info("replication")["role"] == "master", "no failover")

        sent, effects = kill_under_load(cluster.url(TAG), give)
    check(sent, effects, is_copied=True)


def test_all_that_an_app_does_is_in_one_slot(cluster: Cluster) -> None:
    url, heard = cluster.url(TAG), threading.Event()
    with TaskApp("tests", broker=url, result_backend=url) as app:
        app.task(name="add")(lambda a, b: a + b)
        app.task(name="sum")(sum)
        app.task(name="limited", concurrency_key="{a}")(lambda a: a)
        app.task(name="newest", coalesce="{a}")(lambda a: a)
        app.task(name="first", unique_for=60.0, unique_key="{a}")(lambda a: a)
        app.task(name="shared", fair_key="{a}")(lambda a: a)
        app.task(name="once", idempotent=False)(lambda a: a)
        app.task(name="early", acks_late=False)(lambda a: a)
        app.task(name="fail", max_retries=0)(lambda: 1 / 0)
        app.on_broadcast("tell")(lambda _: heard.set())
        tasks = app.tasks
        with working(app, queues=("tests", "other"), log=Silence()):
            assert app.send_task("add", (1, 2)).get(DEADLINE_S) == 3
            assert app.send_task("add", (1, 2), countdown=0.1).get(DEADLINE_S) == 3
            parts = [tasks["add"].s(n, n).set(queue="other") for n in range(3)]
            assert chord(parts, tasks["sum"].s())().get(DEADLINE_S) == 6
            chain = tasks["add"].s(1, 1) | tasks["add"].s(1).set(queue="other")
            assert chain().get(DEADLINE_S) == 3
            for name in ("limited", "newest", "first", "shared", "once", "early", "early"):
                assert app.send_task(name, (name,)).get(10.0) == name
            failed = app.send_task("fail")
            wait_until(lambda: failed.record.final, "it does not end")
            assert app.results is not None
            assert [one.id for one in app.results.failures(limit=9)] == [failed.id]
            app.broadcast("tell", {})
            assert heard.wait(DEADLINE_S)
            later = app.send_task("add", (1, 2), countdown=60.0)
            app.revoke(later.id)
            wait_until(lambda: later.record.final, "it is not revoked")
    masters = [one.client() for one in cluster.masters]
    others = [one for place, one in enumerate(masters) if place != place_of(TAG)]
    assert [one.dbsize() for one in others] == [0, 0]
    assert all(key.startswith(b"{weather}") for key in masters[place_of(TAG)].scan_iter())
    for client in masters:
        client.close()


def test_a_node_of_a_cluster_is_refused_under_the_url_of_a_server(cluster: Cluster) -> None:
    url = f"redis://127.0.0.1:{cluster.masters[0].port}/0"
    with (
        TaskApp("tests", broker=url) as app,
        pytest.raises(ConfigError, match=r"is a node of a cluster.*cluster://HOST:PORT"),
    ):
        app.send_task("add")
