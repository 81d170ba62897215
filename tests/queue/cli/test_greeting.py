"""What a worker says of itself on a terminal, and that it says nothing of it elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from blimp.queue import TaskApp
from blimp.queue.cli.greeting import greeting
from blimp.queue.worker.worker import Worker
from tests.broker import EmbeddedBroker


def test_it_names_what_runs_and_hides_the_password() -> None:
    app = TaskApp("weather", broker="redis://me:secret@localhost/0")
    app.task(name="weather.read")(lambda station: station)
    text = greeting(Worker(app=app, name="pad", queues=["a", "b"], sync_workers=3))
    assert "secret" not in text
    for words in (
        "redis://me:***@localhost/0", "weather.read", "a, b", "3 threads", "none are kept",
        "pad: blimp.queue ", "nothing is missing",
    ):  # fmt: skip
        assert words in text, words


def test_it_names_what_a_broker_does_not_guarantee() -> None:
    text = greeting(Worker(app=TaskApp("weather", broker="memory://")))
    assert "no tasks: this worker runs nothing" in text
    assert 'not guaranteed  transport "memory"' in text


def test_a_worker_greets_on_a_terminal_only(broker_server: EmbeddedBroker, tmp_path: Path) -> None:
    (tmp_path / "pots.py").write_text(
        f"from blimp.queue import TaskApp\napp = TaskApp('pots', broker={broker_server.url!r})\n"
    )
    command = [sys.executable, "-m", "blimp.queue", "worker", "-A", "pots:app"]
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(command, cwd=tmp_path, stderr=theirs) as worker:
            os.close(theirs)
            said = _read_until(ours, "ready")
            worker.terminate()
            assert worker.wait(60) == 0
    finally:
        os.close(ours)
    assert "not guaranteed" in said
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        said = ""
        while "ready" not in said:
            said += worker.stderr.readline()
        worker.terminate()
        assert worker.wait(60) == 0
    assert "not guaranteed" not in said
    assert "event=consuming" in said


def _read_until(descriptor: int, word: str) -> str:
    said = ""
    while word not in said:
        said += os.read(descriptor, 4096).decode()
    return said
