"""Interrupting a thread that is traced, as by a debugger or for coverage.

In a process of its own: where CPython 3.11 believes that something is pending for ever, the
next traced call never ends, and no time limit of a test's is heard.
"""

import subprocess
import sys

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

def job_of(function):
    task = SimpleNamespace(function=function, options=TaskOptions())
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

call = ThreadCall()
thread = threading.Thread(target=run, args=(call, job_of(held.wait)), daemon=True)
thread.start()
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
