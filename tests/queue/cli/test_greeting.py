"""What a worker says of itself on a terminal."""

from __future__ import annotations

from blimp.queue import TaskApp
from blimp.queue.cli.greeting import greeting
from blimp.queue.worker.worker import Worker


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
