"""Two copies of one message, as a publisher that lost its answer leaves them."""

import threading

from blimp.queue import State, TaskApp
from tests.queue.conftest import DEADLINE_S, wait_until, working


def test_a_copy_does_not_end_the_task_that_runs(app: TaskApp) -> None:
    """Or an arm that succeeds would be reported as INTERRUPTED."""
    began, release = threading.Event(), threading.Event()
    runs: list[str] = []

    @app.task(name="once", idempotent=False)
    def once() -> str:
        runs.append("once")
        began.set()
        assert release.wait(DEADLINE_S)
        return "done"

    with working(app) as worker:
        handle = once.apply_async(task_id="twin")
        assert began.wait(DEADLINE_S)
        once.apply_async(task_id="twin")
        wait_until(lambda: worker.counts["done"] == 1, "the copy is not settled")
        assert not handle.ready()
        release.set()
        record = handle.wait(DEADLINE_S)
    assert (record.state, record.result) == (State.SUCCESS, "done")
    assert runs == ["once"]
