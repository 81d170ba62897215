"""A server that is killed, stopped, full or emptied, under a worker that lives on."""

import os
import signal
import time
from functools import partial

from blimp.tasks import TaskApp, Worker
from tests.faults.ground import Ground, until
from tests.tasks.conftest import DEADLINE_S, Silence, working
from tests.tasks.test_outage import send_when_back


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
            began_s = time.monotonic()
            send_when_back(partial(app.send_task, "add", (n, 2), task_id=f"t{n}"))
            assert app.result(f"t{n}").get(DEADLINE_S) == n + 2
            assert time.monotonic() - began_s < 1.5  # the longest wait between attempts is 1 s
