"""A warning is an error in every process and thread that a test starts, as it is in the test's."""

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from blimp.queue import State, TaskApp
from tests.queue.conftest import DEADLINE_S, WorkerProcess
from tests.queue.worn_app import call_deprecated

KINDS = ["DeprecationWarning", "PendingDeprecationWarning", "FutureWarning"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_child_of_a_test_ends_with_what_is_deprecated(kind: str) -> None:
    words = [sys.executable, "-c", f"import warnings; warnings.warn('old', {kind})"]
    child = subprocess.run(words, capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert f"{kind}: old" in child.stderr


def test_a_thread_of_a_test_ends_with_what_is_deprecated() -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call_deprecated()
        except DeprecationWarning as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(DEADLINE_S)
    assert len(raised) == 1


@pytest.mark.parametrize("pool", ["thread", "loop", "process"])
def test_a_task_in_each_pool_fails_with_what_is_deprecated(
    url: str, start_worker: Callable[..., WorkerProcess], pool: str
) -> None:
    worker = start_worker(url, app="tests.queue.worn_app:app")
    with TaskApp("labour", broker=url, result_backend=url) as app:
        ended = app.send_task(f"deprecated.{pool}").wait(DEADLINE_S)
    assert ended.state is State.FAILURE
    assert "DeprecationWarning" in str(ended)
    assert worker.terminate() == 0


def test_a_worker_leaves_nothing_open(
    url: str, start_worker: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's development mode tells of each file and socket that nobody has closed."""
    monkeypatch.setenv("PYTHONDEVMODE", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    worker = start_worker(url, app="tests.queue.worn_app:app")
    with TaskApp("labour", broker=url, result_backend=url) as app:
        assert app.send_task("pid").wait(DEADLINE_S).state is State.SUCCESS
        assert app.send_task("heavy.pid", (1,)).wait(DEADLINE_S).state is State.SUCCESS
    assert worker.terminate() == 0
    assert not [line for line in worker.lines if "Warning" in line], "".join(worker.lines)
