"""An unmodified Flower shows our worker and its tasks."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from blimp.errors import Refused
from blimp.queue import TaskApp, Worker
from blimp.queue.celery.events.worker_events import WorkerEvents
from tests.interop.guest import Guest, find_guest
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.redis_server import free_port

find_guest()
START_S = 60.0


class Flower:
    """Flower on a port of its own, asked as a browser would."""

    def __init__(self, guest: Guest) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._flower = guest.start(
            *["-m", "celery", "-A", "ground", "flower", "--address=127.0.0.1"], f"--port={port}"
        )

    def ask(self, path: str) -> Any:
        """Return what it answers, read as JSON; None where it does not."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=START_S) as answer:
                return json.load(answer)
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it has the answer's body
            assert self._flower.process.poll() is None, "".join(self._flower.lines)
            return None

    def worker(self, name: str) -> dict[str, Any] | None:
        """Return what its page of workers shows of one."""
        shown = self.ask("/workers?json=1") or {"data": []}
        found = [one for one in shown["data"] if one["hostname"] == name]
        return found[0] if found else None

    def inspected(self, name: str) -> dict[str, Any]:
        """Return what a worker has answered to Flower's questions."""
        found = self.ask("/api/workers?refresh=1") or {}
        return found.get(name) or {"stats": {"total": None}}

    def task(self, id: str) -> dict[str, Any]:
        found = self.ask(f"/api/task/info/{id}")
        return found or {"state": None}


@pytest.fixture
def flower(guest: Guest) -> Flower:
    guest.environment["FLOWER_UNAUTHENTICATED_API"] = "true"
    return Flower(guest)


def beats(worker: Worker, flower: Flower, **expected: int) -> Callable[[], bool]:
    """Return what has the worker send a heartbeat, and says whether Flower shows this of it."""

    def beat() -> bool:
        worker.extension(WorkerEvents).heartbeat()
        shown = flower.worker(worker.name) or {}
        return expected.items() <= shown.items()

    return beat


def test_flower_shows_the_worker_and_its_tasks(app: TaskApp, flower: Flower) -> None:
    go = threading.Event()

    @app.task(name="add")
    def add(a: int, b: int = 0) -> int:
        return a + b

    @app.task(name="take off")
    async def take_off(ship: str) -> None:
        raise Refused("the battery is at 6.1 V")

    @app.task(name="holds")
    def holds() -> None:
        assert go.wait(DEADLINE_S)

    with working(app, name="pad@ship", events=True) as worker:
        wait_until(lambda: flower.ask("/api/tasks") is not None, "Flower does not answer")
        wait_until(beats(worker, flower, active=0, processed=0), "the worker is not shown")
        sum = add.delay(2, b=3).id
        refused = take_off.delay("ship-1").id
        held = holds.delay().id
        wait_until(lambda: flower.task(sum)["state"] == "SUCCESS", "the sum is not shown")
        wait_until(lambda: flower.task(refused)["state"] == "FAILURE", "the refusal is not shown")
        wait_until(lambda: flower.task(held)["state"] == "STARTED", "the start is not shown")
        shown = flower.task(sum)
        wait_until(beats(worker, flower, active=1, processed=2), "it is not shown at work")
        at_work = flower.worker("pad@ship")
        ran = {"add": 1, "holds": 1, "take off": 1}
        wait_until(lambda: flower.inspected("pad@ship")["stats"]["total"] == ran, "no statistics")
        asked = flower.inspected("pad@ship")
        tasks = flower.ask("/api/tasks")
        go.set()
        wait_until(lambda: flower.task(held)["state"] == "SUCCESS", "the end is not shown")
    wait_until(lambda: not (flower.worker("pad@ship") or {})["status"], "it is not seen to go")
    assert shown["name"] == "add"
    assert (shown["args"], shown["kwargs"]) == ("(2,)", "{'b': 3}")
    assert (shown["result"], shown["worker"]) == ("5", "pad@ship")
    assert shown["received"] <= shown["started"] <= shown["succeeded"]
    assert flower.task(refused)["exception"] == "Refused('the battery is at 6.1 V')"
    assert tasks.keys() == {sum, refused, held}
    assert asked["registered"] == ["add", "holds", "take off"]
    assert [queue["name"] for queue in asked["active_queues"]] == ["tests"]
    assert at_work is not None
    assert at_work["status"] is True
    assert at_work["sw_ident"] == "blimp"
    assert (at_work["task-received"], at_work["task-succeeded"]) == (3, 1)
