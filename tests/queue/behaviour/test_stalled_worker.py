"""A worker that stood still for longer than its lease runs nothing that another has ended."""

import pytest
import redis

from blimp.queue import TaskApp
from blimp.queue.brokers.streams.store import StreamsOptions
from blimp.queue.brokers.streams.visibility import Leases, StreamsSession
from blimp.queue.redis.urls import redis_url
from tests.queue.conftest import DEADLINE_S, Held, wait_until, working


def end_elsewhere(server: redis.Redis, url: str, tasks: int) -> None:
    """Have another complete the newest deliveries in flight."""
    thief = StreamsSession(url=redis_url(url), options=StreamsOptions(consumer="thief"))
    level = next(
        level
        for level in thief.keys.queue("tests").levels
        if server.exists(level) and server.xpending(level, "workers")["pending"] == tasks + 1
    )
    held = server.xpending_range(level, "workers", "-", "+", 10)
    for one in held[1:]:
        server.xclaim(level, "workers", "thief", 0, [one["message_id"]])
        server.xack(level, "workers", one["message_id"])
        server.xdel(level, one["message_id"])
    thief.close()


@pytest.mark.parametrize("renews", [True, False], ids=["renewed", "at once"])
def test_it_runs_nothing_that_another_has_ended(
    url: str,
    server: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    *,
    renews: bool,
) -> None:
    """Where it comes to a task before the renewal, the early acknowledgement alone keeps it."""
    if not renews:
        monkeypatch.setattr(Leases, "renew", lambda *_: None)
    held = Held()
    ran: list[str] = []
    with TaskApp("tests", broker=url, result_backend=url, timeout_s=0.5) as app:
        hold = app.task(name="hold")(held.run)
        app.task(name="early", acks_late=False)(lambda: ran.append("early"))
        app.task(name="late")(lambda: ran.append("late"))
        app.task(name="last")(lambda: ran.append("last"))
        waiting = ["early", "late"] if renews else ["early"]
        with working(app, sync_workers=1, prefetch=8) as worker:
            hold.delay()
            assert held.began.wait(DEADLINE_S)
            for name in waiting:
                app.send_task(name)
            wait_until(lambda: len(worker.in_flight.jobs()) == len(waiting) + 1, "not in flight")
            end_elsewhere(server, url, len(waiting))
            if renews:
                wait_until(lambda: worker.counts["leases_lost"] == 2, "it was not notified")
            held.go.set()
            app.send_task("last").get(DEADLINE_S)
            assert worker.counts["leases_lost"] == len(waiting)
    assert ran == ["last"]
