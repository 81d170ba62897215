"""Those who watch a worker's jobs hear of each step, and stop nothing."""

from typing import Any

from blimp.queue import TaskApp, Worker
from blimp.queue.extensions import Extension
from blimp.queue.protocol.record import Outcome
from blimp.queue.worker.job import Job
from tests.inbox import Inbox
from tests.queue.conftest import DEADLINE_S, Silence, working


class Watcher(Extension):
    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._heard = Inbox[tuple[str, str, str]]()
        self.reported = self._heard.items
        self.times: list[tuple[float, float, float]] = []

    def received(self, job: Job) -> None:
        self._note("received", job)

    def started(self, job: Job) -> None:
        self._note("started", job)

    def finished(self, job: Job, outcome: Outcome) -> None:
        assert job.received_s is not None
        if job.started_s is not None and job.ended_s is not None:
            self.times.append((job.received_s, job.started_s, job.ended_s))
        self._note("finished", job, str(outcome.state))

    def lost(self, job: Job) -> None:
        self._note("lost", job)

    def _note(self, what: str, job: Job, state: str = "") -> None:
        self._heard.add((what, job.task.name, state))

    def wait_finished(self, count: int) -> list[tuple[str, str, str]]:
        def finished() -> bool:
            return sum(what == "finished" for what, *_ in self.reported) >= count

        assert self._heard.wait_for(finished), self.reported
        return self.reported


def watch(app: TaskApp) -> list[Watcher]:
    watchers: list[Watcher] = []

    def make(worker: Worker) -> Watcher:
        watchers.append(Watcher(worker))
        return watchers[-1]

    app.extend(make)
    return watchers


def test_each_try_is_reported_and_a_task_that_never_ran_was_not_started(app: TaskApp) -> None:
    watchers = watch(app)

    @app.task(name="fails", autoretry_for=(OSError,), max_retries=1, retry_backoff=False)
    def fails() -> None:
        raise OSError("no")

    app.task(name="late")(lambda: 1)
    with working(app):
        app.send_task("late", expires=-1.0)
        app.send_task("fails")
        reported = watchers[0].wait_finished(3)
    assert [one for one in reported if one[1] == "late"] == [
        ("received", "late", ""),
        ("finished", "late", "EXPIRED"),
    ]
    ended = [state for what, name, state in reported if (what, name) == ("finished", "fails")]
    assert ended == ["RETRY", "FAILURE"]
    for what in ("received", "started"):
        assert reported.count((what, "fails", "")) == 2


def test_one_that_raises_stops_neither_the_job_nor_the_others(app: TaskApp) -> None:
    class Bad(Extension):
        def received(self, job: Any) -> None:
            raise RuntimeError("bad observer")

        started = received

        def finished(self, job: Any, outcome: Any) -> None:
            raise RuntimeError("bad observer")

    app.extend(lambda worker: Bad())
    watchers = watch(app)
    app.task(name="one")(lambda: 1)
    log = Silence()
    with working(app, log=log):
        assert app.send_task("one").get(DEADLINE_S) == 1
        watchers[0].wait_finished(1)
    assert sum(event == "observer" for _, event, _ in log.lines) == 3
