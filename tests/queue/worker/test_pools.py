"""Threads: what they leave behind, and interrupting one that is traced (debugger, coverage).

The latter in a process of its own: where CPython 3.11 believes that something is pending for
ever, the next traced call never ends, and no time limit of a test's is heard.
"""

import queue
import sys
import threading
from collections.abc import Callable
from contextvars import Context
from types import SimpleNamespace
from typing import Any

import pytest

from blimp.errors import SoftTimeLimitExceeded
from blimp.queue import TaskApp
from blimp.queue.options import TaskOptions
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.task import Task
from blimp.queue.worker import pools
from blimp.queue.worker.job import Job
from blimp.queue.worker.pools import ThreadCall, ThreadPool
from tests.forked import ran
from tests.queue.conftest import DEADLINE_S

PROGRAM = """
import sys, threading, time
import coverage
from types import SimpleNamespace
from blimp.errors import SoftTimeLimitExceeded
from blimp.queue.worker.pools import ThreadCall
from blimp.queue.options import TaskOptions

def interrupted():
    began.append(True)
    until_s = time.monotonic() + 60.0
    while time.monotonic() < until_s:
        pass

began, ends = [], []  # no event: the exception could strike inside of it
held = threading.Event()

def waits():
    began.append(True)
    held.wait()

def job_of(function):
    task = SimpleNamespace(run=function, options=TaskOptions())
    message = SimpleNamespace(kwargs={})
    return SimpleNamespace(task=task, message=message)

def run(call, job):
    try:
        call.run(job, (), interruptible=True).send(None)
    except BaseException as end:
        ends.append(type(end).__name__)
    for _ in range(100):  # nothing strikes here any more
        (lambda: None)()

coverage.Coverage(data_file=None).start()

call = ThreadCall()
thread = threading.Thread(target=run, args=(call, job_of(interrupted)), daemon=True)
thread.start()
while not began:
    time.sleep(0)
call.interrupt()
thread.join()

began.clear()
call = ThreadCall()
thread = threading.Thread(target=run, args=(call, job_of(waits)), daemon=True)
thread.start()
while not began:  # it has entered its function, for which it needs the lock too
    time.sleep(0)
with call._lock:  # who leaves waits for it: it is struck after its function, before it has left
    held.set()
    while sys._current_frames()[thread.ident].f_code.co_name != "_leave":
        time.sleep(0)
    call.interrupt()
thread.join()
print(*ends)
"""


def test_it_strikes_in_its_function_or_nowhere() -> None:
    done = ran([sys.executable, "-c", PROGRAM], timeout=20)
    assert (done.stdout, done.stderr) == ("SoftTimeLimitExceeded StopIteration\n", "")


def job_of(number: int, task: Task) -> Job:
    return Job(message=TaskMessage(id=str(number), task="plain"), task=task, delivery=None)  # type: ignore[arg-type]


def test_a_job_that_comes_while_a_thread_falls_asleep_is_run() -> None:
    app = TaskApp("raced", broker="redis+socket:///nowhere?virtual_host=0")

    @app.task(name="plain")
    def plain() -> None:
        return None

    late = [job_of(1, plain)]
    ran = queue.SimpleQueue[str]()

    async def run(job: Job) -> None:
        ran.put(job.message.id)

    class Asleep(list[threading.Lock]):
        def append(self, alarm: threading.Lock) -> None:
            if late:
                pool.submit(late.pop())  # finds nobody to wake
            super().append(alarm)

    pool = ThreadPool(run=run, size=0, context=Context())
    pool._asleep = Asleep()
    try:
        pool.resize(1)
        assert ran.get(timeout=DEADLINE_S) == "1"
    finally:
        pool.close()


# --- one call, which nothing strikes by chance ----------------------------------------------------


def run(call: ThreadCall, function: Callable[[], Any], **options: Any) -> Any:
    task = SimpleNamespace(run=function, options=TaskOptions(**options))
    job: Any = SimpleNamespace(task=task, message=SimpleNamespace(kwargs={}))
    with pytest.raises(StopIteration) as end:
        call.run(job, (), interruptible=True).send(None)
    return end.value.value


def test_what_was_interrupted_before_it_began_does_not_run() -> None:
    ran: list[int] = []
    call = ThreadCall()
    call.interrupt()
    with pytest.raises(SoftTimeLimitExceeded):
        run(call, lambda: ran.append(1))
    assert ran == []
    assert run(call, lambda: 2, interruptible=False) == 2


def test_it_is_raised_once_and_one_that_comes_late_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[type[BaseException]] = []
    yields: list[float] = []

    def strike(for_s: float) -> None:
        yields.append(for_s)
        if len(yields) == 3:  # the interpreter is in no hurry
            raise raised[0]

    monkeypatch.setattr(pools, "_raise_in", lambda _, error: raised.append(error))
    monkeypatch.setattr(pools, "time", SimpleNamespace(sleep=strike))
    call = ThreadCall()

    def function() -> str:
        call.interrupt()
        call.interrupt()
        return "done"

    assert run(call, function) == "done"
    assert (len(raised), yields) == (1, [0, 0, 0])
    call.interrupt()
    assert len(raised) == 1
