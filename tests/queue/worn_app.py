"""The app of the worker processes that wear out, run into limits, or lose a child."""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from blimp.errors import Refused, SoftTimeLimitExceeded
from blimp.queue import TaskApp, TaskContext
from tests.queue.killed_app import BROKER, DIRECTORY, TRANSPORT

app = TaskApp("labour", broker=BROKER, result_backend=BROKER, transport=TRANSPORT)


def mark(name: str) -> None:
    """Leave a line in the file `name` for the test to see."""
    with (DIRECTORY / name).open("a") as marks:
        marks.write(f"{os.getpid()}\n")


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.005)


@app.task(name="pid")
def pid() -> int:
    return os.getpid()


@app.task(name="heavy.pid", cpu_bound=True)
def heavy_pid(value: int) -> list[int]:
    return [value, os.getpid()]


@app.task(name="heavy.replaced", cpu_bound=True, bind=True)
def heavy_replaced(context: TaskContext) -> None:
    context.replace(heavy_pid.s(4))


@app.task(name="count", ignore_result=True)
def count(number: int) -> None:
    mark(f"ran-{number}")


@app.task(name="hold", bind=True)
def hold(context: TaskContext) -> int:
    """Run until the test lets it."""
    mark(f"{context.id}.began")
    wait_for(DIRECTORY / f"{context.id}.go")
    return context.fence


def blocked_signals() -> int:
    """Return the signals that a process started here does not get, as bits."""
    reported = subprocess.run(
        ["/bin/cat", "/proc/self/status"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return int(reported.partition("SigBlk:")[2].split()[0], 16)


@app.task(name="blocked")
def blocked() -> int:
    return blocked_signals()


@app.task(name="async.blocked")
async def async_blocked() -> int:
    return blocked_signals()


@app.task(name="stuck", time_limit=0.2)
def stuck() -> None:
    mark("stuck.began")
    time.sleep(3600)


@app.task(name="stuck-again", time_limit=0.2, acks_on_timeout=False, bind=True)
def stuck_again(context: TaskContext) -> int:
    if context.fence < 2:
        time.sleep(3600)
    return context.fence


@app.task(name="stubborn", time_limit=0.2)
async def stubborn() -> None:
    """Does not heed its cancellation."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            mark("stubborn.cancelled")


# --- in processes of their own ------------------------------------------------------------------


@app.task(name="cpu.pid", cpu_bound=True)
def cpu_pid() -> list[int]:
    return [os.getpid(), os.getppid()]


@app.task(name="cpu.tidy", cpu_bound=True)
def cpu_tidy() -> None:
    """Leave something to be done when the process ends."""
    atexit.register(mark, "tidied")


@app.task(name="cpu.bound", cpu_bound=True, bind=True)
def cpu_bound(context: TaskContext, number: int, *, more: int = 0) -> dict[str, object]:
    assert context.progress(0.5, number=number)
    return {
        "id": context.id,
        "fence": context.fence,
        "worker": context.worker,
        "began_before": context.began_before,
        "age_s": context.age_s(),
        "sum": number + more,
        "thread": threading.current_thread().name,
    }


@app.task(name="cpu.returns", cpu_bound=True)
def cpu_returns(what: str) -> object:
    values = {"nan": float("nan"), "set": {1}, "object": object(), "large": "x" * 2_000_000}
    return values[what]


@app.task(
    name="cpu.raises", cpu_bound=True, bind=True, autoretry_for=(OSError,), retry_backoff=0.01
)
def cpu_raises(context: TaskContext, what: str) -> int:
    if context.message.retries == 0:
        match what:
            case "value":
                raise ValueError("the valve is shut")
            case "refused":
                raise Refused("the battery is at 6.1 V")
            case "exit":
                sys.exit(3)
            case "os":
                raise ConnectionResetError("again")
            case "retry":
                context.retry(countdown=0.01)
    return context.message.retries


def die(context: TaskContext) -> int:
    """Leave a mark and die; from the second delivery on, live."""
    mark(f"{context.id}.began")
    if context.fence == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return context.fence


app.task(name="cpu.dies", cpu_bound=True, bind=True)(die)


@app.task(name="cpu.poison", cpu_bound=True)
def cpu_poison() -> None:
    os._exit(7)


@app.task(name="cpu.hold", cpu_bound=True, bind=True)
def cpu_hold(context: TaskContext) -> list[int]:
    mark(f"{context.id}.began")
    while not (DIRECTORY / f"{context.id}.go").exists() and not context.stopping.is_set():
        time.sleep(0.005)
    return [context.fence, os.getpid()]


@app.task(name="cpu.grip", cpu_bound=True, bind=True)
def cpu_grip(context: TaskContext) -> int:
    """As cpu.hold, whether or not the worker stops."""
    mark(f"{context.id}.began")
    wait_for(DIRECTORY / f"{context.id}.go")
    return context.fence


@app.task(name="cpu.spin", cpu_bound=True, soft_time_limit=0.2)
def cpu_spin(hears: bool) -> str:
    try:
        while True:
            pass
    except SoftTimeLimitExceeded:
        if hears:
            return "noticed"
        raise


@app.task(name="cpu.sleep", cpu_bound=True, soft_time_limit=0.2)
def cpu_sleep() -> str:
    try:
        time.sleep(3600)
    except SoftTimeLimitExceeded:
        return "noticed"
    return "not noticed"


@app.task(name="cpu.deaf", cpu_bound=True, time_limit=0.3)
def cpu_deaf() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL})
    while True:
        time.sleep(3600)


@app.task(name="cpu.prints", cpu_bound=True)
def cpu_prints() -> list[str]:
    """Do to standard input and output what must not reach the channel."""
    print("noise", flush=True)
    os.write(1, b"more noise\n")
    return [sys.stdin.read()]


@app.task(name="cpu.starts", bind=True, cpu_bound=True, max_retries=0)
def starts(context: TaskContext) -> None:
    """Start a process, say which and by whom, and wait for its end, which does not come."""
    started = subprocess.Popen(["sleep", "300"])
    context.progress(0.5, started=started.pid, child=os.getpid())
    started.wait()
