"""An unmodified Celery program sends tasks by name to our worker, and reads what came of it."""

from blimp.tasks import TaskApp
from tests.interop.guest import Guest, find_guest
from tests.tasks.conftest import working

find_guest()


def test_a_celery_program_sends_tasks_and_reads_results(app: TaskApp, guest: Guest) -> None:
    @app.task(name="add")
    def add(a: int, b: int = 0) -> int:
        return a + b

    @app.task(name="fail", acks_late=True)
    async def fail() -> None:
        raise ValueError("the valve is shut")

    with working(app):
        told = guest.run("send.py", "add", "[2]", '{"b": 3}')
        assert (told["state"], told["value"]) == ("SUCCESS", 5)
        told = guest.run("send.py", "fail", "[]")
        assert (told["state"], told["value"]) == ("FAILURE", "ValueError: the valve is shut")
