"""Tasks in processes of their own, in a real worker on a real broker."""

import os
import signal
from collections.abc import Callable

import pytest

from blimp.errors import ConfigError, Refused, TaskFailed
from blimp.queue import State, TaskApp, Worker
from tests.process_table import children, lives
from tests.queue.conftest import DEADLINE_S, Silence, WorkerProcess, wait_until
from tests.queue.server_view import Look
from tests.queue.worker.test_shutdown import LABOUR, runs

Start = Callable[..., WorkerProcess]


@pytest.fixture
def worker(labour: TaskApp, url: str, start_worker: Start) -> WorkerProcess:
    return start_worker(url, app=LABOUR, options="--process-workers 2")


def test_runs_in_processes_of_their_own_begun_with_the_first_task(
    labour: TaskApp, worker: WorkerProcess, look: Look
) -> None:
    assert children(worker.process.pid) == []
    pids = {labour.send_task("cpu.pid").get(DEADLINE_S)[0] for _ in range(20)}
    assert len(pids) <= 2
    assert worker.process.pid not in pids
    assert set(children(worker.process.pid)) == pids
    assert worker.terminate() == 0
    assert not any(lives(pid) for pid in pids)
    assert look.left_behind() == []


def test_a_bound_task_sees_its_message_and_tells_progress(
    labour: TaskApp, worker: WorkerProcess
) -> None:
    assert labour.results is not None
    with labour.results.watch("the-id") as watch:
        handle = labour.send_task("cpu.bound", (3,), {"more": 4}, task_id="the-id")
        record = watch.next(timeout_s=DEADLINE_S)
        while record is not None and record.state is not State.PROGRESS:
            record = watch.next(timeout_s=DEADLINE_S)
        assert record is not None
        assert record.result == {"fraction": 0.5, "number": 3}
    result = handle.get(DEADLINE_S)
    assert 0.0 <= result.pop("age_s") < DEADLINE_S
    assert result == {
        "id": "the-id",
        "fence": 1,
        "worker": "w",
        "began_before": False,
        "sum": 7,
        "thread": "MainThread",
    }


def test_whatever_a_task_does_in_its_child_the_worker_goes_on(
    labour: TaskApp, worker: WorkerProcess
) -> None:
    # A result that cannot be sent back is a clear failure.
    for what, complaint in (
        ("nan", "cpu.returns returned what JSON cannot hold"),
        ("set", "cpu.returns returned what JSON cannot hold"),
        ("object", "cpu.returns returned what JSON cannot hold"),
        ("large", "cpu.returns returned 2000002 bytes as JSON: the limit is 1000000"),
    ):
        with pytest.raises(TaskFailed, match=complaint):
            labour.send_task("cpu.returns", (what,)).get(DEADLINE_S)
        labour.send_task("cpu.pid").get(DEADLINE_S)

    # What it raises is reported as from a thread.
    with pytest.raises(TaskFailed, match="ValueError: the valve is shut") as caught:
        labour.send_task("cpu.raises", ("value",)).get(DEADLINE_S)
    assert "in cpu_raises" in (caught.value.trace or "")
    with pytest.raises(Refused, match="the battery"):
        labour.send_task("cpu.raises", ("refused",)).get(DEADLINE_S)
    with pytest.raises(TaskFailed, match="SystemExit"):
        labour.send_task("cpu.raises", ("exit",)).get(DEADLINE_S)
    assert labour.send_task("cpu.raises", ("os",)).get(DEADLINE_S) == 1
    assert labour.send_task("cpu.raises", ("retry",)).get(DEADLINE_S) == 1

    # Its noise and hunger do not reach its channel.
    assert labour.send_task("cpu.prints").get(DEADLINE_S) == [""]
    wait_until(lambda: any("more noise" in line for line in worker.lines), "it is not heard")

    # A soft limit strikes.
    for hears, state in ((True, State.SUCCESS), (False, State.FAILURE)):
        record = labour.send_task("cpu.spin", (hears,)).wait(DEADLINE_S)
        assert record.state is state
        reported = record.fault.exc_type if record.fault else record.result
        assert reported == ("noticed" if hears else "SoftTimeLimitExceeded")
    assert labour.send_task("cpu.sleep").get(DEADLINE_S) == "noticed"

    # Past its hard limit the child is killed.
    record = labour.send_task("cpu.deaf").wait(DEADLINE_S)
    assert record.reason == "cpu.deaf ran longer than its time limit of 0.3 s"
    assert record.fault is not None
    assert record.fault.exc_type == "TimeLimitExceeded"
    labour.send_task("cpu.pid").get(DEADLINE_S)
    assert worker.starts == 1


def test_a_killed_child_costs_its_own_task_alone(
    labour: TaskApp, worker: WorkerProcess, look: Look
) -> None:
    beside = labour.send_task("cpu.hold", task_id="beside")
    wait_until(lambda: runs(worker.directory, "beside.began"), "it did not begin")
    assert labour.send_task("cpu.dies", task_id="t1").get(DEADLINE_S) == 2
    assert runs(worker.directory, "t1.began") == 2
    (worker.directory / "beside.go").touch()
    assert beside.get(DEADLINE_S)[0] == 1  # its first delivery
    assert worker.terminate() == 0
    assert look.left_behind() == []


def test_a_task_that_kills_every_child_ends_as_a_dead_letter(
    labour: TaskApp, worker: WorkerProcess, look: Look
) -> None:
    poison = labour.send_task("cpu.poison")
    others = [labour.send_task("cpu.pid") for _ in range(20)]
    for other in others:
        other.get(4 * DEADLINE_S)
    record = poison.wait(4 * DEADLINE_S)
    assert record.state is State.FAILURE  # its caller gets an error
    assert "ended with status 7" in record.reason
    wait_until(lambda: look.dead("labour") == 1, "no dead letter")
    labour.send_task("cpu.pid").get(DEADLINE_S)
    assert worker.terminate() == 0
    assert look.left_behind() == []


def test_a_child_is_replaced_after_its_most_tasks_and_the_worker_is_not(
    labour: TaskApp, url: str, start_worker: Start
) -> None:
    worker = start_worker(url, app=LABOUR, options="--process-workers 1 --max-tasks 3")
    handles = [labour.send_task("cpu.pid") for _ in range(9)]
    pids = [handle.get(DEADLINE_S)[0] for handle in handles]
    assert pids[0] == pids[2] != pids[3] == pids[5] != pids[6] == pids[8]
    assert worker.starts == 1
    assert worker.terminate() == 0


def test_no_child_outlives_a_killed_worker(labour: TaskApp, worker: WorkerProcess) -> None:
    idle = labour.send_task("cpu.pid").get(DEADLINE_S)[0]
    for id in ("a", "b"):
        labour.send_task("cpu.grip", task_id=id)
        wait_until(lambda id=id: runs(worker.directory, f"{id}.began"), "it did not begin")
    found = children(worker.process.pid)
    assert idle in found
    assert len(found) == 2
    worker.kill()
    wait_until(lambda: not any(lives(pid) for pid in found), "a child outlives its worker")


def test_an_idle_child_ends_by_itself(labour: TaskApp, worker: WorkerProcess) -> None:
    labour.send_task("cpu.tidy").get(DEADLINE_S)
    assert worker.terminate() == 0
    assert runs(worker.directory, "tidied") == 1


def test_a_cold_stop_kills_a_child_and_its_task_comes_again(
    labour: TaskApp, worker: WorkerProcess, look: Look
) -> None:
    for id in ("a", "b"):
        labour.send_task("cpu.grip", task_id=id)
        wait_until(lambda id=id: runs(worker.directory, f"{id}.began"), "it did not begin")
    found = children(worker.process.pid)
    worker.process.send_signal(signal.SIGQUIT)
    assert worker.end() == 0
    assert not any(lives(pid) for pid in found)
    assert look.waiting("labour") == 2


# --- what cannot work ----------------------------------------------------------------------------


def test_a_coroutine_cannot_be_cpu_bound(app: TaskApp) -> None:
    with pytest.raises(ConfigError, match="task 'a' is cpu_bound and async"):

        @app.task(name="a", cpu_bound=True)
        async def a() -> None: ...


def test_a_task_that_no_other_process_finds_is_refused_at_the_start(app: TaskApp) -> None:
    @app.task(name="a", cpu_bound=True)
    def a() -> None: ...

    with pytest.raises(ConfigError, match="a process of its own cannot find it in module"):
        Worker(app=app, name="worker", log=Silence())


def test_a_revoked_task_is_ended_with_its_child(
    labour: TaskApp, worker: WorkerProcess, look: Look
) -> None:
    handle = labour.send_task("cpu.grip", task_id="a")
    wait_until(lambda: runs(worker.directory, "a.began"), "it did not begin")
    handle.revoke(terminate=True)
    assert handle.wait(DEADLINE_S).state is State.REVOKED
    assert labour.send_task("cpu.pid").get(DEADLINE_S)
    assert worker.terminate() == 0
    assert look.left_behind() == []


@pytest.mark.parametrize("how", ["time_limit", "revoke", "killed"])
def test_what_a_task_has_started_is_killed_with_its_process(
    labour: TaskApp, worker: WorkerProcess, how: str
) -> None:
    assert labour.results is not None
    limit = {"time_limit": 2.0} if how == "time_limit" else {}
    with labour.results.watch("the-id") as watch:
        handle = labour.send_task("cpu.starts", task_id="the-id", **limit)  # type: ignore[arg-type]
        record = watch.next(timeout_s=DEADLINE_S)
        while record is not None and record.state is not State.PROGRESS:
            record = watch.next(timeout_s=DEADLINE_S)
    assert record is not None
    started = record.result["started"]
    assert lives(started)
    if how == "revoke":
        handle.revoke(terminate=True)
    elif how == "killed":
        os.kill(record.result["child"], signal.SIGKILL)
    wait_until(lambda: not lives(started), "what it has started goes on")
    labour.revoke("the-id", terminate=True)  # one whose process was killed is tried again
    assert worker.terminate() == 0
