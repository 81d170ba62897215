"""Which files one message passes, from `apply_async` to its acknowledgement.

Runs a worker in this process, sends it one task and lists the files of `blimp/` in which a
function was called, in the order of their first call, with the threads that called it.

    python -m benchmarks.message_files
"""

import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from blimp.queue import TaskApp
from tests.broker import EmbeddedBroker
from tests.queue.conftest import working

ROOT = f"{Path(__file__).parents[1]}/"
SETTLE_S = 0.5  # the worker is idle after its first tasks; the message is acknowledged


class Calls:
    """The files of `blimp/` that threads of this process enter while `counting`."""

    def __init__(self) -> None:
        self.counting = False
        self.threads: dict[str, set[str]] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.counting or event != "call":
            return
        name = frame.f_code.co_filename
        if name.startswith(f"{ROOT}blimp/"):
            thread = threading.current_thread().name
            self.threads.setdefault(name.removeprefix(ROOT), set()).add(thread)


def count(calls: Calls) -> None:
    """Run a few tasks to warm up, then one that is counted."""
    threading.setprofile(calls)
    sys.setprofile(calls)
    with (
        tempfile.TemporaryDirectory(prefix="blimp-") as directory,
        EmbeddedBroker(directory=Path(directory)) as broker,
        TaskApp("way", broker=broker.url, result_backend=broker.url) as app,
    ):

        @app.task(name="way.same")
        def same(value: int) -> int:
            return value

        with working(app, name="way"):
            for number in range(3):
                same.apply_async((number,)).get(timeout=10.0)
            time.sleep(SETTLE_S)
            calls.counting = True
            same.apply_async((1,))
            time.sleep(SETTLE_S)
            calls.counting = False


def main() -> None:
    calls = Calls()
    count(calls)
    for file, threads in calls.threads.items():
        print(f"{file:52} {', '.join(sorted(threads))}")
    queue = [file for file in calls.threads if file.startswith("blimp/queue/")]
    print(f"{len(calls.threads)} files, {len(queue)} of them in blimp/queue")


if __name__ == "__main__":
    main()
