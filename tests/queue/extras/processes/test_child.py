"""A child that hangs at its start, dies, or talks nonsense: the worker's side of it."""

import contextlib
import itertools
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextvars import Context
from datetime import UTC, datetime
from pathlib import Path

import pytest

from blimp.errors import ConfigError, Retry, WorkerLost
from blimp.queue import TaskApp
from blimp.queue.extras.processes import child as child_module
from blimp.queue.extras.processes import process_pool
from blimp.queue.extras.processes.child import (
    Begin,
    Channel,
    ChildContext,
    FromChild,
    Ready,
    find,
    without_arguments,
)
from blimp.queue.extras.processes.process_pool import ChildProcess, ProcessPool
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Outcome, State
from blimp.queue.worker.boot import locate_all
from blimp.queue.worker.job import Job
from blimp.queue.worker.shutdown import Wear
from tests.queue.conftest import DEADLINE_S, Silence, wait_until
from tests.queue.worn_app import app as labour

ORIGIN = "tests.queue.worn_app:app"


@contextlib.contextmanager
def started(*, origin: str = ORIGIN) -> Iterator[ChildProcess]:
    child = ChildProcess(1, [origin], wear=Wear(max_tasks=None, max_memory_mb=None))
    try:
        yield child
    finally:
        child.end()


def begin(child: ChildProcess, task: str, *args: object) -> Begin:
    message, arguments = without_arguments(TaskMessage(id="the-id", task=task, args=args))
    return Begin(
        child=child.number,
        job=child.next_job(),
        origin=ORIGIN,
        message=message,
        arguments=arguments,
        limit_bytes=1_000_000,
    )


def pretend(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Have children run `program` instead; `say(kind, **fields)` sends a frame."""
    prelude = """
import json, os, struct, sys, time
def say(**frame):
    data = json.dumps(frame).encode()
    os.write(0, struct.pack("!I", len(data)) + data)
"""
    monkeypatch.setattr(process_pool, "_PROGRAM", prelude + program)


def test_a_child_runs_job_after_job_and_ends_when_asked() -> None:
    with started() as child:
        child.wait_ready(DEADLINE_S)
        for _ in range(3):
            done = child.call(begin(child, "cpu.pid"), on_report=lambda _: None)
            assert done.outcome.state is State.SUCCESS
            assert done.outcome.result == [child.pid, os.getpid()]
        done = child.call(begin(child, "no.such"), on_report=lambda _: None)
        assert done.outcome.state is State.FAILURE
        assert done.outcome.fault is not None
        assert "task 'no.such' is not in tests.queue.worn_app:app" in done.outcome.fault.text
        child.end()
    assert not child.running()


def test_an_interruption_that_comes_too_late_strikes_no_other_job() -> None:
    with started() as child:
        child.wait_ready(DEADLINE_S)
        for _ in range(3):
            job = begin(child, "cpu.pid")
            child.call(job, on_report=lambda _: None)
            child.signal(signal.SIGUSR1, job=job.job)
            os.kill(child.pid, signal.SIGUSR1)  # as one that was under way when the job ended
            done = child.call(begin(child, "cpu.pid"), on_report=lambda _: None)
            assert done.outcome.state is State.SUCCESS


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("time.sleep(3600)", "does not start in time"),
        ("sys.exit(3)", "ended with status 3"),
        ("say(kind='ready', child=2); time.sleep(3600)", "child 1 has the number 2"),
        ("os.write(0, b'x' * 100); time.sleep(3600)", "unreadable frame: a frame above"),
        ("say(kind='what', child=1); time.sleep(3600)", "unreadable frame: Invalid value"),
        ("say(kind='ready', child=1, problem='too tired')", "cannot start: too tired"),
    ],
)
def test_a_child_that_does_not_begin_well_is_lost(
    monkeypatch: pytest.MonkeyPatch, program: str, complaint: str
) -> None:
    pretend(monkeypatch, program)
    with started() as child:
        with pytest.raises(WorkerLost, match=complaint):
            child.wait_ready(0.5 if "in time" in complaint else DEADLINE_S)
        child.signal(signal.SIGKILL)
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_child_that_answers_for_another_job_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(
        monkeypatch,
        "say(kind='ready', child=1)\n"
        "say(kind='done', child=1, job=9, outcome={'state': 'SUCCESS'})\ntime.sleep(3600)",
    )
    with started() as child:
        child.wait_ready(DEADLINE_S)
        with pytest.raises(WorkerLost, match="in job 1"):
            child.call(begin(child, "cpu.pid"), on_report=lambda _: None)
        wait_until(lambda: not child.running(), "it was not killed")


class Errand:
    """A job for the executor alone, whose end the test waits for."""

    def __init__(self, task: str) -> None:
        message = TaskMessage(id="the-id", task=task)
        self.job = Job(message=message, task=labour.tasks[task], delivery=None)  # type: ignore[arg-type]
        self.ended = threading.Event()
        self.outcome: Outcome | None = None

    async def run(self, job: Job) -> None:
        assert job.call is not None
        self.outcome = await job.call.run(job, (), interruptible=False)
        self.ended.set()


def test_a_child_whose_start_hangs_is_killed_and_restarted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first two hang; what is to run waits for the third, and is run once."""
    real = process_pool._PROGRAM
    starts = tmp_path / "starts"
    hangs = (
        f"import time\nwith open({str(starts)!r}, 'a') as f: f.write('x')\n"
        f"if len(open({str(starts)!r}).read()) < 3: time.sleep(3600)\n"
    )
    monkeypatch.setattr(process_pool, "_PROGRAM", hangs + real)
    errand, log = Errand("cpu.pid"), Silence()
    executor = ProcessPool(
        run=errand.run, size=1, context=Context(), origins={"cpu.pid": ORIGIN}, start_s=1.0, log=log
    )
    with contextlib.closing(executor):
        executor.submit(errand.job)
        wait_until(lambda: len(log.events("child does not start")) >= 2, "it is not killed")
        executor._start_s = DEADLINE_S  # the third does not hang, however long it takes
        assert errand.ended.wait(DEADLINE_S)
    assert errand.outcome is not None
    assert errand.outcome.state is State.SUCCESS
    waits_s = [event["again_in_s"] for event in log.events("child does not start")]
    assert waits_s[:2] == [0.2, 0.4]


def test_a_child_that_cannot_be_begun_is_begun_later() -> None:
    errand, log = Errand("cpu.pid"), Silence()
    executor = ProcessPool(
        run=errand.run, size=1, context=Context(), origins={"cpu.pid": ORIGIN}, log=log
    )
    with contextlib.closing(executor):
        with descriptors(more=1):
            executor.submit(errand.job)
            wait_until(lambda: bool(log.events("child does not start")), "it is not logged")
        assert errand.ended.wait(DEADLINE_S)
    assert errand.outcome is not None
    assert errand.outcome.state is State.SUCCESS
    assert "Too many open files" in log.events("child does not start")[0]["reason"]


@contextlib.contextmanager
def descriptors(*, more: int) -> Iterator[None]:
    """Let this process open so many descriptors more."""
    taken = open_descriptors()
    free = itertools.islice((n for n in itertools.count() if n not in taken), more, None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(free), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_descriptors() -> set[int]:
    found = {int(name) for name in os.listdir("/proc/self/fd")}
    return {number for number in found if Path(f"/proc/self/fd/{number}").exists()}


def test_a_close_does_not_wait_for_a_start_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "time.sleep(3600)")
    errand = Errand("cpu.pid")
    executor = ProcessPool(
        run=errand.run, size=1, context=Context(), origins={"cpu.pid": ORIGIN}, log=Silence()
    )
    executor.submit(errand.job)
    wait_until(lambda: bool(executor._children), "it does not start")
    (child,) = executor._children
    began_s = time.monotonic()
    executor.close()
    assert time.monotonic() - began_s < DEADLINE_S / 2.0
    wait_until(lambda: not Path(f"/proc/{child.pid}").exists(), "it is left behind")
    assert not errand.ended.is_set()


def test_a_task_is_found_at_its_app_or_where_that_is_said_to_be() -> None:
    found = locate_all(labour, app_path=None)
    assert set(found.values()) == {"tests.queue.worn_app:app"}
    assert "pid" not in found
    assert find(found["cpu.pid"], "cpu.pid") is labour.tasks["cpu.pid"]
    found = locate_all(labour, app_path="elsewhere:app")
    assert set(found.values()) == {"elsewhere:app"}
    for origin in ("tests.queue.worn_app:nothing", "tests.queue.worn_app:cpu_spin"):
        with pytest.raises(ConfigError, match=f"task 'cpu.pid' is not in {origin}"):
            find(origin, "cpu.pid")
    assert find("tests.queue.worn_app:cpu_pid", "cpu.pid").name == "cpu.pid"


# --- the channel -------------------------------------------------------------------------------


def test_half_a_frame_whose_sender_was_killed_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its socket may stay open in a process that it forked."""
    monkeypatch.setattr(child_module, "FRAME_S", 1)
    pretend(
        monkeypatch,
        "import signal\n"
        "if os.fork() == 0: time.sleep(5); os._exit(0)\n"
        "os.write(0, struct.pack('!i', 100) + b'half')\n"
        "os.kill(os.getpid(), signal.SIGKILL)",
    )
    with started() as child, pytest.raises(WorkerLost, match="was killed by SIGKILL"):
        child.wait_ready(DEADLINE_S)


def test_a_child_that_waits_long_for_work_keeps_its_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(child_module, "FRAME_S", 1)
    with theirs:
        channel = Channel(ours, receives=FromChild)
        got: list[object] = []
        reader = threading.Thread(target=lambda: got.append(channel.receive()), daemon=True)
        reader.start()
        reader.join(0.05)
        assert reader.is_alive()
        sender = Channel(theirs.dup(), receives=FromChild)
        sender.send(Ready(child=1))
        reader.join(DEADLINE_S)
    assert got == [Ready(child=1)]
    sender.close()
    with pytest.raises(EOFError):
        channel.receive()
    channel.close()
    channel.close()


def test_progress_that_an_earlier_job_left_costs_no_later_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that a task left behind may report after its end."""
    pretend(
        monkeypatch,
        "say(kind='ready', child=1)\n"
        "say(kind='progress', child=1, job=0, fraction=0.5, details={})\n"
        "say(kind='done', child=1, job=1, outcome={'state': 'SUCCESS'})\ntime.sleep(3600)",
    )
    with started() as child:
        child.wait_ready(DEADLINE_S)
        reports: list[object] = []
        done = child.call(begin(child, "cpu.pid"), on_report=reports.append)
        assert done.outcome.state is State.SUCCESS
        assert reports == []
        child.signal(signal.SIGKILL)


def test_a_retry_at_a_time_asks_no_broker_from_a_child() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, TaskApp("far", broker="redis://127.0.0.1:1/0", timeout_s=0.1) as app:
        task = app.task(name="t", bind=True)(lambda context: None)
        message, arguments = without_arguments(TaskMessage(id="the-id", task="t"))
        begun = Begin(
            child=1,
            job=1,
            origin=ORIGIN,
            message=message,
            arguments=arguments,
            limit_bytes=1_000_000,
            broker_now_s=1_000_000.0,
        )
        channel = Channel(ours, receives=FromChild)
        context = ChildContext(task, begun, channel, threading.Event(), dict)
        with pytest.raises(Retry) as raised:
            context.retry(eta=datetime.fromtimestamp(1_000_060.0, UTC))
        channel.close()
    assert raised.value.countdown_s == pytest.approx(60.0, abs=1.0)
