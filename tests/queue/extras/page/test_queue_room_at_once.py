"""Requests at the same time."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from blimp.queue import TaskApp
from blimp.queue.extras.page.queue_room import MAX_SEARCHES, QueueRoom
from tests.queue.conftest import DEADLINE_S


class Searches:
    """Opens the app, and has those who open it for ship `slow` wait for each other and `go`."""

    def __init__(self, app: TaskApp) -> None:
        self._app = app
        self.together = threading.Barrier(MAX_SEARCHES + 1)
        self.go = threading.Event()

    @contextmanager
    def open(self, name: str) -> Iterator[TaskApp]:
        if name == "slow":
            self.together.wait(DEADLINE_S)
            assert self.go.wait(DEADLINE_S)
        yield self._app


def test_searches_keep_no_look_and_no_change_waiting_and_one_too_many_is_refused(
    app: TaskApp,
) -> None:
    app.send_task("tests.task")
    searches = Searches(app)
    room = QueueRoom(searches.open, clock=app.clock)
    (endpoint,) = (one.endpoint for one in room.routes() if one.path == "/api/queue/task")

    async def search() -> Response:
        answer: Response = await endpoint(
            Request({"type": "http", "headers": [], "query_string": b"id=nobody&vehicle=slow"})
        )
        return answer

    async def run() -> tuple[list[Response], Response]:
        waiting = [asyncio.create_task(search()) for _ in range(MAX_SEARCHES)]
        try:
            await run_in_threadpool(searches.together.wait, DEADLINE_S)
            refused = await asyncio.wait_for(search(), DEADLINE_S)
            for ready in (1, 0):  # what was seen before a change is not shown after it
                found = await asyncio.wait_for(run_in_threadpool(room.look, ""), DEADLINE_S)
                assert found["queues"]["tests"]["ready"] == ready
                purge = run_in_threadpool(room.act, "", "purge", "tests")
                assert (await asyncio.wait_for(purge, DEADLINE_S)).result == f"{ready} dropped"
        finally:
            searches.go.set()
        return await asyncio.gather(*waiting), refused

    found, refused = asyncio.run(run())
    assert [one.status_code for one in found] == [200] * MAX_SEARCHES
    assert refused.status_code == 503
    reason = msgspec.json.decode(bytes(refused.body))["reason"]
    assert reason == f"{MAX_SEARCHES} searches go on, which is the limit: try again"


def test_a_look_that_began_before_a_change_is_not_shown_after_it(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.send_task("tests.task")
    changed, counted = threading.Event(), threading.Event()
    room = QueueRoom(Searches(app).open, clock=app.clock)

    def slow(*_: Any, **__: Any) -> dict[str, Any]:
        counted.set()
        assert changed.wait(DEADLINE_S)
        return {}

    monkeypatch.setattr("blimp.queue.extras.page.queue_room.send_command", slow)
    monkeypatch.setattr("blimp.queue.extras.page.queue_room.FRESH_S", 60.0)
    looking = threading.Thread(target=room.look, args=("",))
    looking.start()
    assert counted.wait(DEADLINE_S)
    room.act("", "purge", "tests")
    changed.set()
    looking.join(DEADLINE_S)
    assert room.look("")["queues"]["tests"]["ready"] == 0
