"""What many threads number and count at once: no number twice, none left out.

An ordinary build rarely lets two threads into one step; a free-threaded one always does.
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from blimp.queue import TaskApp
from tests.queue.conftest import DEADLINE_S, working

THREADS = 4


def in_threads(function: Callable[[], Any], *, times: int) -> Counter[Any]:
    """Call `function` in THREADS threads, `times` in each; count what they return."""
    found: list[list[Any]] = [[] for _ in range(THREADS)]
    at_once = threading.Barrier(THREADS)

    def run(own: list[Any]) -> None:
        at_once.wait(DEADLINE_S)
        own.extend(function() for _ in range(times))

    threads = [threading.Thread(target=run, args=(own,)) for own in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    return Counter(one for own in found for one in own)


def test_each_task_of_many_senders_runs_once(app: TaskApp) -> None:
    ran: list[int] = []
    each = 250
    numbers = iter(range(each * THREADS))
    drawing = threading.Lock()
    done = threading.Event()

    @app.task(name="note", ignore_result=True)
    def note(number: int) -> None:
        ran.append(number)
        if len(ran) == each * THREADS:
            done.set()

    def send() -> int:
        with drawing:
            number = next(numbers)
        note.delay(number)
        return number

    with working(app, sync_workers=4) as worker:
        sent = in_threads(send, times=each)
        assert done.wait(DEADLINE_S), f"{len(ran)} of {len(sent)} ran"
    assert Counter(ran) == sent
    # It has stopped: nothing is counted any more.
    assert worker.counts["received"] == worker.counts["done"] == len(sent)
