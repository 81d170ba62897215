"""A worker that stops: what ends, what is cut off, what is requeued."""

import threading

from blimp.queue import State, TaskApp, TaskContext
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.server_view import Look


def test_a_warm_stop_ends_what_runs_and_gives_back_what_waits(app: TaskApp, look: Look) -> None:
    go, busy = threading.Event(), threading.Event()

    @app.task(name="hold", bind=True)
    def hold(context: TaskContext, number: int) -> list[int]:
        busy.set()
        go.wait(DEADLINE_S)
        return [number, context.fence]

    with working(app, sync_workers=1, prefetch=4) as worker:
        handles = [hold.delay(n) for n in range(3)]
        later = hold.apply_async((3,), countdown=3600)
        assert busy.wait(DEADLINE_S)
        taken = 3  # streams keep on the server what is not due
        wait_until(lambda: worker.counts["received"] == taken, "not taken")
        worker.stop()
        wait_until(lambda: worker.counts["requeued"] == taken - 1, "not requeued at once")
        assert look.waiting() == 3
        go.set()
        assert handles[0].get(DEADLINE_S) == [0, 1]
    assert look.in_flight() == 0
    with working(app, name="another"):
        fence = 1  # streams do not count what never began
        assert handles[1].get(DEADLINE_S) == [1, fence]  # in their order
        assert handles[2].get(DEADLINE_S) == [2, fence]
        assert later.state is State.PENDING


def test_a_stop_leaves_no_thread_behind(app: TaskApp) -> None:
    app.on_broadcast("stop")(lambda broadcast: {})
    before = set(threading.enumerate())
    with working(app):
        app.broadcast("stop").get(DEADLINE_S)
    wait_until(lambda: set(threading.enumerate()) <= before, "threads are left behind")
