"""kill -9: what was not acknowledged comes again at once, and what may not run twice does not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blimp.queue import State, TaskApp
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until
from tests.queue.server_view import Look
from tests.stopwatch import Stopwatch

Start = Callable[..., WorkerProcess]


@pytest.fixture
def app(url: str) -> Iterator[TaskApp]:
    with TaskApp("killed", broker=url, result_backend=url) as app:
        yield app


def marks(directory: Path, id: str) -> list[float]:
    """Return when each run of task `id` began."""
    try:
        lines = (directory / f"{id}.began").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [float(line.split()[1]) for line in lines if len(line.split()) == 2]


def begin(
    app: TaskApp, worker: WorkerProcess, task: str, id: str, ttl_s: float | None = None
) -> None:
    app.send_task(task, task_id=id, ttl_s=ttl_s)
    wait_until(lambda: marks(worker.directory, id), f"{task} did not begin")


def test_a_killed_workers_task_runs_again_within_a_second_of_its_restart(
    app: TaskApp, url: str, look: Look, start_worker: Start
) -> None:
    first = start_worker(url, options="--sync-workers 1 --prefetch 8")
    begin(app, first, "again", "t1")
    queued = [app.send_task("quick", (n,)) for n in range(20)]
    # Not while it takes messages: kombu's transport could lose one then.
    wait_until(lambda: look.in_flight(app="killed") == 8, "not eight in flight")
    first.kill()
    assert app.result("t1").state is State.PENDING

    second = start_worker(url, options="--sync-workers 1")
    watch = Stopwatch()
    wait_until(lambda: len(marks(second.directory, "t1")) == 2, "it did not run again")
    assert watch.undisturbed_s(marks(second.directory, "t1")[1]) < 1.0
    (second.directory / "t1.go").touch()
    result = app.result("t1").get(DEADLINE_S)
    assert result == {"pid": second.process.pid, "fence": 2}
    for number, handle in enumerate(queued):
        assert handle.get(DEADLINE_S) == number
    ended = [str(handle.record.date_done) for handle in queued]
    assert ended == sorted(ended), "restored out of order"
    assert second.terminate() == 0
    assert look.left_behind() == []


def test_killed_again_and_again_the_fence_grows(
    app: TaskApp, url: str, look: Look, start_worker: Start
) -> None:
    worker = start_worker(url)
    directory = worker.directory
    begin(app, worker, "again", "t1")
    for runs in (2, 3):
        worker.kill()
        worker = start_worker(url)
        wait_until(lambda n=runs: len(marks(directory, "t1")) == n, "it did not run again")
    (directory / "t1.go").touch()
    assert app.result("t1").get(DEADLINE_S)["fence"] == 3


def test_what_may_not_run_twice_ends_as_interrupted(
    app: TaskApp, url: str, look: Look, start_worker: Start
) -> None:
    first = start_worker(url)
    begin(app, first, "once", "t1")
    first.kill()
    second = start_worker(url)
    record = app.result("t1").wait(DEADLINE_S)
    assert record.state is State.INTERRUPTED
    assert record.reason == "once had begun when its worker was cut off; it is not run again"
    assert len(marks(second.directory, "t1")) == 1
    assert second.terminate() == 0
    assert look.left_behind() == [b"blimp-began-t1-0"]


def test_what_may_not_run_twice_runs_where_it_had_not_begun(
    app: TaskApp, url: str, look: Look, start_worker: Start
) -> None:
    """Taken by the killed worker, but waiting behind another: it had not begun."""
    first = start_worker(url, options="--sync-workers 1")
    begin(app, first, "again", "t1")
    app.send_task("once", task_id="t2")
    wait_until(lambda: look.in_flight(app="killed") == 2, "not taken")
    first.kill()
    second = start_worker(url)
    for id in ("t1", "t2"):
        (second.directory / f"{id}.go").touch()
    assert app.result("t2").get(DEADLINE_S)["fence"] == 2


def test_past_its_time_to_live_it_goes_on_only_where_it_is_resumable(
    app: TaskApp, url: str, start_worker: Start
) -> None:
    first = start_worker(url)
    begin(app, first, "resumed", "t1", ttl_s=1.0)
    begin(app, first, "again", "t2", ttl_s=1.0)
    first.kill()
    born_s = app.broker_clock.now_s()
    wait_until(lambda: app.broker_clock.now_s() > born_s + 1.1, "the clock stands")
    second = start_worker(url)
    (second.directory / "t1.go").touch()
    assert app.result("t1").get(DEADLINE_S)["fence"] == 2
    assert app.result("t2").wait(DEADLINE_S).state is State.EXPIRED


def test_the_same_name_twice_is_refused(app: TaskApp, url: str, start_worker: Start) -> None:
    start_worker(url)
    second = start_worker(url, is_ready=False)
    assert second.end() == 1
    assert "worker name 'w' is in use by process" in "".join(second.lines)
    assert app.send_task("quick", (7,)).get(DEADLINE_S) == 7


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        (
            "tests.queue.killed_app:quick",
            "quick is Task in tests.queue.killed_app, must be a TaskApp",
        ),
        ("tests.queue.absent:app", "No module named 'tests.queue.absent'"),
    ],
)
def test_an_app_that_is_not_there_is_named(
    path: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from blimp.queue.cli.main import main

    assert main(["worker", "-A", path]) == 2
    assert complaint in capsys.readouterr().err
