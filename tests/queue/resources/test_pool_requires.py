"""`requires`: a task holds a resource while it runs, or waits in its queue for one."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError, Revoked, TaskFailed
from blimp.queue import TaskApp
from blimp.queue.context import TaskContext
from blimp.queue.protocol.record import State
from blimp.queue.resources import Grant, ResourcePool
from blimp.queue.worker.middleware import default_middleware
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


# --- limits by key -------------------------------------------------------------------------------


class Running:
    """How many ran at once of each user, at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def begin(self, user: str) -> None:
        with self._lock:
            self._now[user] += 1
            self.most[user] = max(self.most[user], self._now[user])

    def end(self, user: str) -> None:
        with self._lock:
            self._now[user] -= 1


def test_of_one_key_so_many_run_at_once_on_all_workers(url: str) -> None:
    running, full = Running(), threading.Event()

    def define(app: TaskApp) -> Any:
        @app.task(name="plain", concurrency_key=lambda user: f"{user}!", concurrency=2)
        def plain(user: str, number: int = 0) -> int:
            running.begin(user)
            if running.most["a"] == 2:
                full.set()
            full.wait(DEADLINE_S)  # so both places of the key are taken at some time
            running.end(user)
            return number

        @app.task(name="loop", concurrency_key="{user}")
        async def loop(user: str, number: int = 0) -> int:
            running.begin(user)
            await asyncio.sleep(0.001)
            running.end(user)
            return number

        return plain, loop

    with (
        TaskApp("tests", broker=url, result_backend=url) as app,
        TaskApp("tests", broker=url, result_backend=url) as other,
    ):
        plain, loop = define(app)
        define(other)
        with working(app, name="one"), working(other, name="two"):
            handles = [plain.delay("ab"[n % 2], n) for n in range(12)]
            handles += [loop.delay(user="c", number=n) for n in range(12, 16)]
            assert [handle.get(timeout=DEADLINE_S) for handle in handles] == list(range(16))
    assert running.most == {"a": 2, "b": running.most["b"], "c": 1}
    assert running.most["b"] <= 2


def test_a_limit_is_raised_and_lowered_and_forgotten_a_day_after_its_last_use(
    server: redis.Redis,
) -> None:
    def held(pool: ResourcePool, *holders: str) -> list[bool]:
        return [isinstance(pool.ask(one, place_s=30.0), Grant) for one in holders]

    two, three = (ResourcePool(server, "limit:x", size=size) for size in (2, 3))
    assert held(two, "a", "b", "c") == [True, True, False]
    assert held(three, "c", "d") == [True, False]
    assert held(two, "d") == [False]
    grants = [one for one in (two.ask(holder) for holder in "abc") if isinstance(one, Grant)]
    assert sorted(grant.resource for grant in grants) == ["1", "2", "3"]
    three_th = next(grant for grant in grants if grant.resource == "3")
    two.release(three_th)
    assert held(two, "d") == [False]  # it has left
    assert two.stats().free == ()
    for grant in grants:
        two.release(grant)
    assert held(two, "d", "e", "f") == [True, True, False]
    keys: Any = server.keys("blimp:pool:*")
    assert len(keys) > 3
    assert all(0 < server.ttl(key) <= 86_400 for key in keys)
    assert not any("limit" in name for name in ResourcePool(server, "ship").keys.all())


@dataclass
class User:
    name: str


def test_a_key_is_made_of_what_the_function_gets(app: TaskApp) -> None:
    seen: list[Any] = []

    def key(user: User, **more: Any) -> str:
        seen.append((user, more))
        return user.name

    @app.task(name="model", concurrency_key=key)
    def model(user: User, size: int = 3) -> str:
        return user.name

    @app.task(name="wrong", concurrency_key=lambda size: 1 // size)
    def wrong(size: int) -> None: ...

    @app.task(name="blank", concurrency_key="{nothing}")
    def blank(size: int) -> None: ...

    with working(app):
        assert model.delay(User("ada")).get(DEADLINE_S) == "ada"
        for task, why in ((wrong, "ZeroDivisionError"), (blank, "KeyError: 'nothing'")):
            with pytest.raises(TaskFailed, match=f"concurrency_key of '{task.name}': {why}"):
                task.delay(0).get(DEADLINE_S)
    assert seen
    assert all(one == (User("ada"), {"size": 3}) for one in seen)


def test_a_place_that_is_lost_ends_no_task(streams: TaskApp, quick: None) -> None:
    lost = threading.Event()

    @streams.task(name="it", concurrency_key="one", bind=True)
    def it(context: TaskContext) -> str:
        assert context.grant is not None
        if context.grant.lost.is_set():  # before it began
            return "done"
        context.grant.on_lost(lambda _: lost.set())
        streams.pools.limit("tests it one", 1).take_away(context.grant.resource)
        assert lost.wait(DEADLINE_S)
        return "done"

    async def take_away(job: Any, call_next: Any) -> Any:
        await job.in_thread(streams.pools.limit("tests it one", 1).take_away, "1")
        assert await job.in_thread(job.grant.lost.wait, DEADLINE_S)
        return await call_next(job)

    with working(streams):
        assert it.delay().get(DEADLINE_S) == "done"
    lost.clear()
    streams.middleware = (*default_middleware(streams), take_away)
    with working(streams):
        assert streams.send_task("it").get(DEADLINE_S) == "done"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"concurrency_key": 3}, "concurrency_key 3: must be a text or a function"),
        ({"concurrency_key": "a", "concurrency": 0}, "concurrency 0: must be from 1 to 10000"),
        ({"concurrency_key": "a", "concurrency": True}, "concurrency True: must be from 1"),
        ({"concurrency": 2}, "concurrency 2: of which tasks"),
        ({"concurrency_key": "a", "requires": "ship"}, "a task waits for one of them"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(
    streams: TaskApp, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        streams.task(name="it", **options)(print)
