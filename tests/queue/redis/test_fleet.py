"""What live workers announce, and when it is written."""

import pytest
import redis

from blimp.queue import TaskApp
from blimp.queue.redis.fleet import Member
from tests.queue.conftest import wait_until, working


def test_a_worker_is_known_while_it_lives_with_what_it_consumes(
    app: TaskApp, server: redis.Redis
) -> None:
    app.task(name="t")(lambda x: x)
    with working(app, queues=["a"]) as worker:
        version = app.tasks["t"].version
        assert app.fleet.members() == {"worker": Member(("a",), {"t": version})}
        server.set("blimp.worker.tests.damaged", "lease")
        server.hset("blimp.fleet.tests", "damaged", "{")
        assert app.fleet.can_run("t", queue="a")
        assert not app.fleet.can_run("t", queue="b")
        assert not app.fleet.can_run("t", queue="a", versions=(version,))
        worker.consumer_loop.change_queues(("a", "b"), timeout_s=1.0)
        wait_until(lambda: app.fleet.can_run("t", queue="b"), "it announces the change")
        server.delete("blimp.fleet.tests")
        wait_until(app.fleet.members, "and again to a server that has lost it")
    assert app.fleet.members() == {}


def test_an_idle_worker_sends_it_once(app: TaskApp, server: redis.Redis) -> None:
    with working(app) as worker:
        assert worker._own_name is not None
        server.config_resetstat()
        for _ in range(20):
            worker._own_name.take()
        assert "cmdstat_mget" not in server.info("commandstats")


@pytest.mark.parametrize("worker", ["other", "worker"])
def test_the_dead_are_forgotten_when_another_announces(
    app: TaskApp, server: redis.Redis, worker: str
) -> None:
    for name in ("dead", "other"):
        server.set(f"blimp.worker.tests.{name}", "lease")
        app.fleet.announce(name, Member((), {}))
    server.delete("blimp.worker.tests.dead")
    assert [*app.fleet.members()] == ["other"]
    app.fleet.announce(worker, Member((), {}))
    assert {*server.hkeys("blimp.fleet.tests")} == {b"other", worker.encode()}
