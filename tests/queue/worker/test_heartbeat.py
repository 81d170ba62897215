"""One live worker per name, and the heartbeat that renews it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
import redis

from blimp.errors import LinkError
from blimp.queue import TaskApp, Worker
from blimp.queue.worker.heartbeat import Heartbeat, NameInUse, NameLock, process_identity
from tests.queue.conftest import DEADLINE_S, Silence, wait_until

KEY = "blimp.worker.tests.worker"


@pytest.fixture
def lock(app: TaskApp) -> NameLock:
    return NameLock(app=app, worker="worker")


def test_taking_renews_and_leaving_frees(app: TaskApp, lock: NameLock, server: redis.Redis) -> None:
    lock.take()
    server.pexpire(KEY, 50)
    lock.take()
    assert server.pttl(KEY) > 1_000
    other = NameLock(app=app, worker="worker")
    with pytest.raises(NameInUse, match=rf"in use by process {os.getpid()} on") as caught:
        other.take()
    assert caught.value.certain
    other.leave()  # not its own: nothing happens
    assert server.exists(KEY)
    lock.leave()
    assert not server.exists(KEY)
    other.take()


def test_a_dead_holder_of_this_machine_is_replaced_at_once(
    lock: NameLock, server: redis.Redis
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        server.set(KEY, json.dumps({"token": "x", **process_identity(process.pid)}), px=60_000)
        with pytest.raises(NameInUse) as caught:
            lock.take()
        assert caught.value.certain
        process.kill()
    lock.take()


def test_a_reused_process_number_is_not_its_old_owner(lock: NameLock, server: redis.Redis) -> None:
    holder = {"token": "x", **process_identity(os.getpid()), "started": "1"}
    server.set(KEY, json.dumps(holder), px=60_000)
    lock.take()


def test_a_holder_before_this_machines_restart_is_dead(lock: NameLock, server: redis.Redis) -> None:
    holder = {"token": "x", **process_identity(os.getpid()), "boot": "an earlier one"}
    server.set(KEY, json.dumps(holder), px=60_000)
    lock.take()


@pytest.mark.parametrize(
    "holder", ['{"token": "x", "host": "elsewhere", "pid": 1}', "not json", "{}", "[]"]
)
def test_a_holder_that_cannot_be_looked_at_is_waited_for(
    lock: NameLock, server: redis.Redis, holder: str
) -> None:
    server.set(KEY, holder, px=300)
    with pytest.raises(NameInUse) as caught:
        lock.take()
    assert not caught.value.certain

    def lapsed() -> bool:
        try:
            lock.take()
        except NameInUse:
            return False
        return True

    wait_until(lapsed, "the lease does not lapse")


def test_without_a_broker_nothing_is_taken() -> None:
    with TaskApp("tests", broker="unix:///nowhere.sock") as app, pytest.raises(LinkError):
        NameLock(app=app, worker="w").take()


def test_a_worker_that_loses_its_name_ends_with_a_status(app: TaskApp, server: redis.Redis) -> None:
    log = Silence()
    worker = Worker(app=app, name="worker", log=log)
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(worker.run()), daemon=True)
    thread.start()
    assert worker.ready.wait(DEADLINE_S)
    server.set(KEY, '{"token": "x", "host": "elsewhere", "pid": 7}', px=60_000)
    thread.join(DEADLINE_S)
    assert statuses == [1]
    assert "in use by process 7 on elsewhere" in log.events("name lost")[0]["reason"]


def test_a_lost_name_is_reported_once() -> None:
    """If it were reported again while the worker stops, its warm stop would be cut short."""
    stopping = threading.Event()
    many = threading.Event()
    reported: list[str] = []
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        if len(beats) == 3:
            many.set()
        raise NameInUse("another has it", certain=True)

    def lose(reason: str) -> None:
        reported.append(reason)
        stopping.set()

    heartbeat = Heartbeat(
        beat=beat,
        watchers=(),
        on_lost_name=lose,
        stopping=stopping,
        wake=lambda: None,
        log=Silence(),
    )
    heartbeat.start()
    assert many.wait(DEADLINE_S)
    heartbeat.close()
    assert reported == ["another has it"]
