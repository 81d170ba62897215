"""Restarting by exec: same process, same name, nothing lost; and the ways to stop."""

import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from blimp.queue import AsyncResult, State, TaskApp
from blimp.queue.worker.shutdown import STOP_SIGNALS, Launch
from tests.forked import ran
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until
from tests.queue.server_view import Look
from tests.signals import signal_another_thread

Start = Callable[..., WorkerProcess]
LABOUR = "tests.queue.worn_app:app"


def runs(directory: Path, name: str) -> int:
    try:
        return len((directory / name).read_text().splitlines())
    except FileNotFoundError:
        return 0


def hold(labour: TaskApp, worker: WorkerProcess, task: str) -> AsyncResult:
    """Have the worker busy with `task` until there is a file "held.go"."""
    handle = labour.send_task(task, task_id="held")
    wait_until(lambda: runs(worker.directory, "held.began"), "it did not begin")
    return handle


def test_after_its_most_tasks_it_restarts_and_loses_nothing_under_load(
    labour: TaskApp, url: str, look: Look, start_worker: Start
) -> None:
    worker = start_worker(url, app=LABOUR, options="--max-tasks 40 --log-level warning")
    for starts, numbers in ((2, range(120)), (3, range(120, 180))):  # more than it had in flight
        for number in numbers:
            labour.send_task("count", (number,), ignore_result=True)
        for number in numbers:
            wait_until(lambda n=number: runs(worker.directory, f"ran-{n}"), "it was not run")
        wait_until(lambda n=starts: worker.starts >= n, "it did not restart")
    assert [runs(worker.directory, f"ran-{n}") for n in range(180)] == [1] * 180
    assert labour.send_task("pid").get(DEADLINE_S) == worker.process.pid
    assert worker.terminate() == 0
    assert look.left_behind() == []


@pytest.mark.parametrize("task", ["stuck", "stubborn"])
def test_a_task_that_cannot_be_ended_ends_in_a_restart_that_loses_nothing(
    labour: TaskApp, url: str, look: Look, start_worker: Start, task: str
) -> None:
    worker = start_worker(url, app=LABOUR, options="--sync-workers 2 --loop-concurrency 1")
    handle = labour.send_task(task)
    rest = [labour.send_task("pid") for _ in range(30)]
    record = handle.wait(DEADLINE_S)
    assert record.state is State.FAILURE
    assert record.fault is not None
    assert record.fault.exc_type == "TimeLimitExceeded"
    wait_until(lambda: worker.starts == 2, "it did not restart")
    for one in rest:
        assert one.get(DEADLINE_S) == worker.process.pid
    assert worker.terminate() == 0
    assert look.left_behind() == []


def test_stuck_and_not_acknowledged_it_comes_again(
    labour: TaskApp, url: str, start_worker: Start
) -> None:
    worker = start_worker(url, app=LABOUR)
    assert labour.send_task("stuck-again").get(DEADLINE_S) >= 2  # it may be taken once too often
    wait_until(lambda: worker.starts == 2, "it did not restart")
    assert worker.terminate() == 0


def test_a_signal_that_another_thread_gets_stops_it(
    labour: TaskApp, url: str, start_worker: Start
) -> None:
    worker = start_worker(url, app=LABOUR, options="--grace 600")
    signal_another_thread(worker.process.pid, signal.SIGTERM)
    assert worker.end() == 0


def test_sigquit_is_cold_at_once(
    labour: TaskApp, url: str, look: Look, start_worker: Start
) -> None:
    worker = start_worker(url, app=LABOUR, options="--grace 60")
    hold(labour, worker, "hold")
    worker.process.send_signal(signal.SIGQUIT)
    assert worker.end() == 0
    assert look.in_flight(app="labour") == 0
    assert look.waiting("labour") == 1


@pytest.mark.parametrize("word", ["", "restarts", "stopped"])
def test_a_stop_that_comes_while_it_restarts_is_not_lost(
    labour: TaskApp, url: str, look: Look, start_worker: Start, word: str
) -> None:
    """Whenever it comes: before, within or after the exec."""
    worker = start_worker(url, app=LABOUR, options="--max-tasks 1")
    labour.send_task("pid").get(DEADLINE_S)
    wait_until(lambda: any(word in line for line in worker.lines), "it is not logged")
    assert worker.terminate() == 0
    assert look.left_behind() == []


def test_what_tasks_start_can_be_terminated_after_it_restarted(
    labour: TaskApp, url: str, start_worker: Start
) -> None:
    worker = start_worker(url, app=LABOUR, options="--max-tasks 2")
    for starts in (1, 2):
        wait_until(lambda n=starts: worker.starts == n, "it did not restart")
        assert labour.send_task("blocked").get(DEADLINE_S) == 0
        assert labour.send_task("async.blocked").get(DEADLINE_S) == 0
    assert worker.terminate() == 0


def test_a_stop_heard_just_before_the_exec_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    begun: list[str] = []
    block = signal.pthread_sigmask

    def late(how: int, mask: Iterable[signal.Signals]) -> set[int | signal.Signals]:
        if how == signal.SIG_BLOCK:
            signal.raise_signal(signal.SIGTERM)
        return block(how, mask)

    monkeypatch.setattr(signal, "pthread_sigmask", late)
    monkeypatch.setattr("os.execve", lambda command, *_: begun.append(command))
    before = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        handlers = [signal.getsignal(number) for number in sorted(STOP_SIGNALS)]
        launch = Launch(command=("/bin/false",), directory="/")
        launch.again(unless=lambda: bool(asked))
        assert [signal.getsignal(number) for number in sorted(STOP_SIGNALS)] == handlers
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked == [signal.SIGTERM]
    assert begun == []
    assert not block(signal.SIG_BLOCK, ()) & STOP_SIGNALS


RESTARTED = """
import signal
import subprocess
import sys
from blimp.queue.worker.shutdown import let_stop_signals_in
heard = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, lambda number, _: heard.append(number))
let_stop_signals_in()
print(*map(int, heard), flush=True)
"""
RESTARTS = f"""
import signal, sys, threading
from blimp.queue.worker.shutdown import Launch

stop = signal.Signals(int(sys.argv[1]))
now, done = threading.Event(), threading.Event()

def get_it():
    now.wait()
    signal.pthread_kill(threading.get_ident(), stop)
    done.set()
    threading.Event().wait()

threading.Thread(target=get_it, daemon=True).start()

def unless():
    now.set()
    done.wait()
    return False

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, lambda *_: None)
Launch(command=(sys.executable, "-c", {RESTARTED!r}), directory=".").again(unless=unless)
"""


@pytest.mark.parametrize("number", sorted(STOP_SIGNALS))
def test_a_stop_that_another_thread_gets_at_the_exec_is_heard_after_it(number: int) -> None:
    """Only the main thread's signals wait; a task's thread must let them through to children."""
    command = [sys.executable, "-c", RESTARTS, str(int(number))]
    done = ran(command, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout.strip()) == (0, str(int(number))), done.stderr
