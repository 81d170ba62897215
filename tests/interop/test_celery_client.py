"""An unmodified Celery program sends tasks by name to our worker, and reads what came of it."""

from blimp.queue import TaskApp
from blimp.queue.celery.events.worker_events import WorkerEvents
from tests.interop.guest import Guest, find_guest
from tests.queue.conftest import wait_until, working

find_guest()


def test_a_celery_program_sends_tasks_and_reads_results(app: TaskApp, guest: Guest) -> None:
    @app.task(name="add")
    def add(a: int, b: int = 0) -> int:
        return a + b

    @app.task(name="fail", acks_late=True)
    async def fail() -> None:
        raise ValueError("the valve is shut")

    with working(app):
        answers = guest.run("send.py", "add", "[2]", '{"b": 3}')
        assert (answers["state"], answers["value"]) == ("SUCCESS", 5)
        answers = guest.run("send.py", "fail", "[]")
        assert (answers["state"], answers["value"]) == ("FAILURE", "ValueError: the valve is shut")


def test_celery_events_shows_what_happens(app: TaskApp, guest: Guest) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    dump = guest.start("-m", "celery", "-A", "ground", "events", "--dump")

    def hears() -> bool:
        worker.extension(WorkerEvents).heartbeat()
        return dump.has_printed("pad@ship", "heartbeat")

    with working(app, name="pad@ship", events=True) as worker:
        wait_until(hears, "nothing is heard")
        id = add.delay(2, 3).id
        wait_until(lambda: dump.has_printed("task succeeded", f"add({id})"), "no end is heard")
    wait_until(lambda: dump.has_printed("pad@ship", "shutdown"), "the worker's end is not heard")
    assert dump.has_printed("task received", f"add({id})", "args=(2, 3)")
    assert dump.has_printed("task started", f"add({id})")
