"""Threads: what they leave behind, and interrupting one that is traced (debugger, coverage).

The latter in a process of its own: where CPython 3.11 believes that something is pending for
ever, the next traced call never ends, and no time limit of a test's is heard.
"""

import gc
import queue
import subprocess
import sys
import threading
import weakref

from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.task import Task
from blimp.queue.worker.job import Job
from blimp.queue.worker.pools.threads import ThreadPool
from tests.queue.conftest import DEADLINE_S, wait_until

PROGRAM = """
import sys, threading, time
import coverage
from types import SimpleNamespace
from blimp.errors import SoftTimeLimitExceeded
from blimp.queue.worker.pools.threads import ThreadCall
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
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.stdout, done.stderr) == ("SoftTimeLimitExceeded StopIteration\n", "")


def test_what_has_run_is_freed_without_the_collector() -> None:
    """Garbage in cycles took a seventh of a short task's time: see docs/decisions/0011."""
    app = TaskApp("freed", broker="redis+socket:///nowhere?virtual_host=0")
    task = app.task(name="plain")(lambda: None)
    done: queue.SimpleQueue[None] = queue.SimpleQueue()

    async def run(job: Job) -> None:
        assert job.call is not None
        await job.call.run(job, (), interruptible=True)
        done.put(None)

    pool = ThreadPool(run=run, size=1)
    freed: list[bool] = []
    gc.disable()
    try:
        for number in range(2):  # the thread keeps the last one until the next
            job = Job(message=TaskMessage(id=str(number), task="plain"), task=task, delivery=None)  # type: ignore[arg-type]
            if number == 0:
                weakref.finalize(job, freed.append, True)
            pool.submit(job)
            del job
            done.get(timeout=DEADLINE_S)
        wait_until(lambda: freed, "the job is not freed")
    finally:
        gc.enable()
        pool.close()


def job_of(number: int, task: Task) -> Job:
    return Job(message=TaskMessage(id=str(number), task="plain"), task=task, delivery=None)  # type: ignore[arg-type]


def test_a_job_wakes_the_thread_that_slept_last_and_no_other() -> None:
    app = TaskApp("woken", broker="redis+socket:///nowhere?virtual_host=0")
    task, size = app.task(name="plain")(lambda: None), 8
    ran_by: list[str] = []

    async def run(job: Job) -> None:
        ran_by.append(threading.current_thread().name)

    pool = ThreadPool(run=run, size=size)
    try:
        wait_until(lambda: len(pool._asleep) == size, "the threads do not sleep")
        others = pool._asleep[:-1]
        for number in range(5):
            pool.submit(job_of(number, task))
            wait_until(lambda: len(pool._asleep) == size, "its thread does not sleep again")
            assert pool._asleep[:-1] == others
    finally:
        pool.close()
    assert len(ran_by) == 5
    assert len(set(ran_by)) == 1


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

    pool = ThreadPool(run=run, size=0)
    pool._asleep = Asleep()
    try:
        pool.resize(1)
        assert ran.get(timeout=DEADLINE_S) == "1"
    finally:
        pool.close()
