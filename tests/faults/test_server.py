"""A server that is killed, stopped, full or emptied, under a worker that lives on."""

import os
import resource
import shutil
import signal
import time
from collections import Counter
from functools import partial

import pytest

from blimp.errors import LinkError
from blimp.queue import TaskApp, Worker
from blimp.queue.results.handle import AsyncResult
from tests.faults.conftest import Fork
from tests.faults.ground import Ground
from tests.faults.motor import What
from tests.faults.server_side import ServerSide
from tests.faults.workload import LEASE_S
from tests.queue.behaviour.test_outage import send_when_back
from tests.queue.conftest import DEADLINE_S, Silence, working
from tests.repeating import until
from tests.signals import stop_process
from tests.stopwatch import Stopwatch


def has_noticed(worker: Worker, before: int) -> bool:
    return worker.counts["reconnects"] > before


def test_a_worker_is_back_as_soon_as_its_server(ground: Ground) -> None:
    """kombu's own connect() would wait two seconds between two attempts."""
    app = TaskApp("tests", broker=ground.url, result_backend=ground.url)
    app.task(name="add")(lambda a, b: a + b)
    log = Silence()
    with app, working(app, log=log) as worker:
        for n in range(3):
            assert app.send_task("add", (n, 1)).get(DEADLINE_S) == n + 1
            before = worker.counts["reconnects"]
            os.kill(ground.broker.pid, signal.SIGKILL)
            until(lambda: ground.broker.poll() is not None, "the server lives")
            until(partial(has_noticed, worker, before), "it did not notice")
            ground.broker.start()
            watch = Stopwatch()
            send_when_back(partial(app.send_task, "add", (n, 2), task_id=f"t{n}"))
            assert app.result(f"t{n}").get(DEADLINE_S) == n + 2
            assert watch.undisturbed_s() < 1.5  # the longest wait between attempts is 1 s


def test_a_server_that_stood_still_for_longer_than_the_lease(
    ground: Ground, faults: TaskApp, side: ServerSide, fork: Fork
) -> None:
    """Two workers, and a task under way: it ends once, moves once, and both work on."""
    fork("a")
    handle = faults.send_task("hold", (str(ground.directory / "go"),))
    until(lambda: ground.journal.read(), "it did not begin")
    fork("b")
    assert faults.send_task("nap", (0.0,)).get(DEADLINE_S) == 0.0
    pid, began_s = ground.broker.pid, time.monotonic()
    stop_process(pid)
    try:
        until(lambda: time.monotonic() > began_s + 4.0 * LEASE_S, "the clock stands")
    finally:
        os.kill(pid, signal.SIGCONT)
    for fence in (1, 2):
        (ground.directory / f"go.{fence}").touch()
    assert handle.get(DEADLINE_S) is True
    more = [faults.send_task("breathe", (0.0,)) for _ in range(20)]
    assert [one.get(DEADLINE_S) for one in more] == [0.0] * 20
    until(lambda: side.messages_left() == 0, "something is left")
    ground.journal.read()
    assert sum(one.applied for one in ground.journal.heard) == 1
    assert sum(one.what is What.BEGAN and one.id == handle.id for one in ground.journal.heard) <= 2


def test_a_server_that_comes_back_empty_is_worked_for_all_the_same(
    ground: Ground, faults: TaskApp, side: ServerSide, fork: Fork
) -> None:
    """What it had is gone; its workers are not."""
    fork("a")
    faults.send_task("hold", (str(ground.directory / "go"),))
    until(lambda: ground.journal.read(), "it did not begin")
    os.kill(ground.broker.pid, signal.SIGKILL)
    until(lambda: ground.broker.poll() is not None, "the server lives")
    shutil.rmtree(ground.directory / "b" / "appendonlydir")
    ground.broker.start()
    (ground.directory / "go.1").touch()  # what ran goes on, and nobody asks for its end
    assert faults.send_task("nap", (0.0,)).get(DEADLINE_S) == 0.0
    handles = [faults.send_task("turn") for _ in range(5)]
    assert all(handle.get(DEADLINE_S) for handle in handles)
    until(lambda: side.messages_left() == 0, "something is left")
    assert side.strange_keys() == []


def send_until_refused(app: TaskApp, sent: list[AsyncResult]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        sent.append(app.send_task("turn"))


def test_a_full_disk_under_the_server_is_an_error_and_no_loss(
    ground: Ground, faults: TaskApp, side: ServerSide, fork: Fork
) -> None:
    """Publishers get an error, workers wait; with room again everything that was taken is done.

    The file may not grow past a limit: write(2) then fails as it does on a full disk, and the
    server answers every command that writes with MISCONF. No rights are needed for that.
    """
    side.client.config_set("appendfsync", "everysec")  # with "always" a server ends itself
    fork("a")
    sent = [faults.send_task("turn") for _ in range(5)]
    assert all(handle.get(DEADLINE_S) for handle in sent)
    unlimited = resource.prlimit(ground.broker.pid, resource.RLIMIT_FSIZE)
    size = sum(file.stat().st_size for file in (ground.directory / "b").rglob("*.aof"))
    resource.prlimit(ground.broker.pid, resource.RLIMIT_FSIZE, (size + 4096, unlimited[1]))
    with pytest.raises(LinkError, match="MISCONF"):
        send_until_refused(faults, sent)
    until(
        lambda: "MISCONF" in (ground.directory / "a.log").read_text(),
        "the worker does not hear of it",
    )
    resource.prlimit(ground.broker.pid, resource.RLIMIT_FSIZE, unlimited)
    assert all(handle.get(DEADLINE_S) for handle in sent)
    until(lambda: side.messages_left() == 0, "something is left")
    ground.journal.read()
    effects = Counter(one.id for one in ground.journal.heard if one.applied)
    assert {handle.id: 1 for handle in sent} == effects
