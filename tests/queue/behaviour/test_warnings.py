"""A warning is an error in every process and thread that a test starts, as it is in the test's."""

from collections.abc import Callable

import pytest

from blimp.queue import State, TaskApp
from tests.queue.conftest import DEADLINE_S, WorkerProcess


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
