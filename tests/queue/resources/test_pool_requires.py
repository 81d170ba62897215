"""`requires`: a task holds a resource while it runs, or waits in its queue for one."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError, Revoked, TaskFailed
from blimp.queue import TaskApp
from blimp.queue.context import TaskContext
from blimp.queue.protocol.record import Record, State
from blimp.queue.resources import Grant, ResourcePool
from blimp.queue.worker.boot import check_tasks
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S, WorkerProcess, working
from tests.queue.server_view import Look


@pytest.fixture
def streams(broker_server: EmbeddedBroker, server: redis.Redis) -> Iterator[TaskApp]:
    url = broker_server.url
    with TaskApp("tests", broker=url, result_backend=url, transport="streams") as app:
        yield app


@pytest.fixture
def ships(streams: TaskApp, quick: None) -> ResourcePool:
    streams.pools.declare("ship", ttl_s=30.0)
    return streams.pools["ship"]


def test_tasks_share_resources_and_each_has_its_own(app: TaskApp, look: Look) -> None:
    pool = app.pools["ship"]
    for name in ("twin", "other"):
        pool.add(name)
    flying: set[str] = set()
    lock = threading.Lock()

    def take(context: TaskContext) -> str:
        assert context.grant is not None
        assert context.grant.holder == context.id
        assert not context.redelivered
        assert context.message.retries == 0
        with lock:
            assert context.grant.resource not in flying
            flying.add(context.grant.resource)
        return context.grant.resource

    def leave(name: str) -> None:
        with lock:
            flying.remove(name)

    @app.task(name="plain", requires="ship", bind=True)
    def plain(context: TaskContext) -> int:
        name = take(context)
        context.stopping.wait(0.01)
        leave(name)
        return context.message.delivery

    @app.task(name="loop", requires="ship", bind=True)
    async def loop(context: TaskContext) -> int:
        name = take(context)
        await asyncio.sleep(0.01)
        leave(name)
        return context.message.delivery

    with working(app):
        handles = [task.delay() for task in (plain, loop) for _ in range(4)]
        assert [handle.get(timeout=DEADLINE_S) for handle in handles] == [1] * 8
    stats = pool.stats()
    assert (stats.acquired, stats.released, stats.expired) == (8, 8, 0)
    assert stats.waiting == ()
    assert sorted(stats.free) == ["other", "twin"]
    assert look.waiting() == 0


def test_one_that_waits_holds_no_thread_and_begins_when_it_can(
    streams: TaskApp, ships: ResourcePool
) -> None:
    ships.add("twin")
    grant = ships.acquire("pilot")

    @streams.task(name="fly", requires="ship", acks_late=False)
    def fly() -> str:
        return "flown"

    landed: list[str] = []
    has_landed = threading.Event()

    @streams.task(name="land")
    def land(result: str) -> None:
        landed.append(result)
        has_landed.set()

    @streams.task(name="other")
    def other() -> str:
        return "done"

    ships.keep(grant)
    with working(streams, sync_workers=1):
        waiting = fly.apply_async(link=[{"task": "land", "args": [], "kwargs": {}}])
        while waiting.id not in ships.stats().waiting:
            pass
        assert other.delay().get(timeout=DEADLINE_S) == "done"
        assert waiting.state is State.PENDING
        ships.release(grant)
        assert waiting.get(timeout=DEADLINE_S) == "flown"
        assert has_landed.wait(DEADLINE_S)
    assert landed == ["flown"]


def test_an_empty_pool_and_a_spoilt_one_fail_the_task(
    streams: TaskApp, ships: ResourcePool, server: redis.Redis
) -> None:
    @streams.task(name="fly", requires="ship")
    def fly() -> None: ...

    with working(streams):
        with pytest.raises(TaskFailed, match=r"fly requires one of pool 'ship': it is empty"):
            fly.delay().get(timeout=DEADLINE_S)
        assert ships.stats().waiting == ()
        server.delete(ships.keys.free)
        server.set(ships.keys.free, "x")
        with pytest.raises(TaskFailed, match=r"\{ship\}:free is a string, must be a zset"):
            fly.delay().get(timeout=DEADLINE_S)


def test_a_grant_that_is_taken_away_ends_its_task(streams: TaskApp, ships: ResourcePool) -> None:
    ships.add("twin")
    begun = threading.Event()

    @streams.task(name="loop", requires="ship", bind=True)
    async def loop(context: TaskContext) -> None:
        begun.set()
        await asyncio.sleep(60.0)

    @streams.task(name="plain", requires="ship", bind=True)
    def plain(context: TaskContext) -> str:
        begun.set()
        assert context.lost.wait(DEADLINE_S)
        return "nothing that counts"

    with working(streams):
        for task in (loop, plain):
            handle = task.delay()
            assert begun.wait(DEADLINE_S)
            begun.clear()
            assert ships.take_away("twin") == handle.id
            with pytest.raises(
                TaskFailed, match=r"twin of pool 'ship' was lost.*taken away"
            ) as raised:
                handle.get(timeout=DEADLINE_S)
            assert raised.value.kind == "LeaseLost"
    assert ships.stats().free == ("twin",)


def test_a_grant_that_is_lost_before_the_function_begins_keeps_it_from_beginning(
    streams: TaskApp, ships: ResourcePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ships.add("twin")
    ran: list[str] = []
    store = streams.results.store  # type: ignore[union-attr]

    def slow(record: Record, **options: Any) -> bool:
        if record.state is State.STARTED:
            assert ships.take_away("twin") == record.id
            while any(one.name == "grants" for one in threading.enumerate()):
                pass  # the renewal that learns of it is the last
        return store(record, **options)

    monkeypatch.setattr(streams.results, "store", slow)

    @streams.task(name="fly", requires="ship", track_started=True)
    def fly() -> None:
        ran.append("fly")

    with working(streams), pytest.raises(TaskFailed, match=r"was lost.*taken away") as raised:
        fly.delay().get(timeout=DEADLINE_S)
    assert raised.value.kind == "LeaseLost"
    assert ran == []


def test_one_that_was_revoked_leaves_nothing_held(streams: TaskApp, ships: ResourcePool) -> None:
    """As after a delivery whose worker was killed."""
    ships.add("twin")

    @streams.task(name="fly", requires="ship")
    def fly() -> None: ...

    ships.acquire("id-1")
    streams.revoke("id-1")
    with working(streams), pytest.raises(Revoked):
        fly.apply_async(task_id="id-1").get(timeout=DEADLINE_S)
    assert ships.stats().free == ("twin",)
    assert ships.stats().expired == 0


@pytest.mark.parametrize("is_revoked", [False, True])
def test_a_delivery_that_slept_takes_and_ends_nothing_of_the_next_one(
    streams: TaskApp, ships: ResourcePool, is_revoked: bool
) -> None:
    """Its message went to another worker, whose task runs; then it wakes, and goes on."""
    ships.add("twin")
    ran: list[str] = []

    @streams.task(name="fly", requires="ship")
    def fly() -> str:
        ran.append("fly")
        return "flown"

    @streams.task(name="other")
    def other() -> None: ...

    elsewhere = ships.ask("id-1", new_token=True, rank=2)
    assert isinstance(elsewhere, Grant)
    if is_revoked:
        streams.revoke("id-1")
    with working(streams, sync_workers=1):
        handle = fly.apply_async(task_id="id-1")
        other.delay().get(timeout=DEADLINE_S)
        assert ships.renew(elsewhere)
        assert ran == []
        ships.release(elsewhere)
        if is_revoked:
            with pytest.raises(Revoked):
                handle.get(timeout=DEADLINE_S)
        else:  # it was no sleeper after all, but a dead letter that was put back, say
            assert handle.get(timeout=DEADLINE_S) == "flown"
    assert ships.stats().free == ("twin",)


def test_what_a_task_raises_gives_back_as_well(streams: TaskApp, ships: ResourcePool) -> None:
    ships.add("twin")

    @streams.task(name="fly", requires="ship", autoretry_for=(OSError,), retry_backoff=False)
    def fly() -> None:
        raise OSError("wind")

    with working(streams), pytest.raises(TaskFailed, match="wind"):
        fly.delay().get(timeout=DEADLINE_S)
    stats = ships.stats()
    assert (stats.acquired, stats.released) == (4, 4)


@pytest.mark.parametrize("fails", [False, True])
def test_link_and_link_error_may_both_give_back(
    streams: TaskApp, ships: ResourcePool, fails: bool
) -> None:
    ships.add("twin")
    grant = ships.acquire("mission-7")
    requeue = ships.release_signature(grant)

    @streams.task(name="evaluate")
    def evaluate() -> None:
        if fails:
            raise ValueError("no")

    with working(streams):
        evaluate.apply_async(link=[requeue, requeue], link_error=[requeue, requeue])
        while (stats := ships.stats()).released + stats.double_released < 2:
            pass
        again = streams.send_task("blimp.release", kwargs={"grant": grant.as_dict()})
        assert again.get(timeout=DEADLINE_S).startswith("twin: already released")
        results_first = streams.send_task("blimp.release", [3], {"grant": grant.as_dict()})
        assert results_first.get(timeout=DEADLINE_S).startswith("twin: already released")
        forged = streams.send_task(
            "blimp.release", kwargs={"grant": {**grant.as_dict(), "token": 5}}
        )
        with pytest.raises(TaskFailed, match="twin: forged"):
            forged.get(timeout=DEADLINE_S)
        wrong = streams.send_task("blimp.release", kwargs={"grant": ["twin"]})
        with pytest.raises(TaskFailed, match="a grant is a mapping"):
            wrong.get(timeout=DEADLINE_S)
    assert ships.stats().free == ("twin",)
    assert ships.stats().released == 1


def test_a_killed_workers_task_has_its_resource_at_once(
    broker_server: EmbeddedBroker, tmp_path: Path, server: redis.Redis
) -> None:
    url = broker_server.url
    pool = ResourcePool(server, "ship")
    pool.add("twin")

    def start() -> WorkerProcess:
        path = "tests.queue.resources.ships:app"
        return WorkerProcess(url=url, directory=tmp_path, transport="streams", app=path)

    workers = [start()]
    try:
        with TaskApp("tests", broker=url, result_backend=url, transport="streams") as sender:
            handle = sender.send_task("fly")
            workers[0].wait_ready()
            while not (tmp_path / "flying").exists():
                assert workers[0].process.poll() is None
            held = pool.who("twin")
            assert held is not None
            assert held.holder == handle.id
            workers[0].kill()
            workers.append(start())
            found = handle.get(timeout=DEADLINE_S)
            assert found["resource"] == "twin"
            assert found["token"] > held.token
            assert found["deliveries"] == 2
            computed = sender.send_task("compute").get(timeout=DEADLINE_S)
            assert computed["token"] > found["token"]
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.kill()
    stats = pool.stats()
    assert (stats.free, stats.superseded, stats.expired) == (("twin",), 1, 0)


# --- what cannot be --------------------------------------------------------------------------


@pytest.mark.parametrize("requires", ["", "a{b}", 3])
def test_a_pool_that_cannot_be_is_refused(streams: TaskApp, requires: Any) -> None:
    with pytest.raises(ConfigError, match="pool"):
        streams.task(name="fly", requires=requires)(lambda: None)
    assert "fly" not in streams.tasks


def test_without_a_server_a_worker_says_who_requires_it() -> None:
    with TaskApp("tests", broker="memory://") as app:
        app.task(name="fly", requires="ship")(lambda: None)
        with pytest.raises(ConfigError, match="'fly' for requires"):
            check_tasks(app)


def test_middleware_without_requires_is_refused(broker_server: EmbeddedBroker) -> None:
    app = TaskApp("tests", broker=broker_server.url, middleware=[])
    with app, pytest.raises(ConfigError, match="its middleware has no Requires"):
        app.task(name="fly", requires="ship")(lambda: None)


def test_a_pool_in_use_keeps_its_time(streams: TaskApp, ships: ResourcePool) -> None:
    streams.pools.declare("ship", ttl_s=30.0)
    with pytest.raises(ConfigError, match=r"'ship'.*in use with a time to live of 30 s"):
        streams.pools.declare("ship", ttl_s=5.0)
    assert list(streams.pools) == ["ship"]


def test_apps_without_pools_have_no_task_for_them(streams: TaskApp) -> None:
    assert "blimp.release" not in streams.tasks
    assert streams.pools["ship"].add("twin")
