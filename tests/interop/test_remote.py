"""Celery's own `inspect` and `control` ask our worker, and change it."""

import json
import urllib.request
from typing import Any

from blimp.queue import State, TaskApp
from blimp.queue.celery.events.worker_events import WorkerEvents
from tests.interop.guest import Guest, find_guest
from tests.interop.test_flower import START_S, Flower
from tests.queue.conftest import DEADLINE_S, Held, wait_until, working

find_guest()
NAME = "pad@ship"


def ask(guest: Guest, *commands: tuple[Any, ...]) -> list[Any]:
    """Have each `(kind, name, *args)` asked; return the answers."""
    words = [json.dumps([kind, name, list(args), {}]) for kind, name, *args in commands]
    found: list[Any] = guest.run("remote.py", NAME, *words)
    return found


def test_celery_inspects_our_worker(app: TaskApp, guest: Guest) -> None:
    held = Held()
    hold = app.task(name="hold", rate_limit="100/s")(held.run)
    with working(app, name=NAME, sync_workers=1) as worker:
        running = hold.delay("a").id
        assert held.began.wait(DEADLINE_S)
        waiting = hold.delay("b").id
        wait_until(lambda: worker.counts["received"] == 2, "it is not taken")
        names = (
            "ping", "stats", "active", "reserved", "scheduled", "revoked", "registered",
            "active_queues", "conf", "report", "clock",
        )  # fmt: skip
        got = dict(zip(names, ask(guest, *(("inspect", name) for name in names)), strict=True))
        (queried,) = ask(guest, ("inspect", "query_task", running, waiting, "none"))
        held.go.set()
        app.result(waiting).get(DEADLINE_S)
    assert got["ping"] == {"ok": "pong"}
    assert got["stats"]["total"] == {"hold": 2}
    assert got["stats"]["pool"]["max-concurrency"] == 1
    assert [one["id"] for one in got["active"]] == [running]
    assert got["active"][0]["args"] == ["a"]
    assert [one["id"] for one in got["reserved"]] == [waiting]
    assert got["scheduled"] == got["revoked"] == []
    assert got["registered"] == ["hold [rate_limit=100/s]"]
    assert [one["name"] for one in got["active_queues"]] == ["tests"]
    assert got["conf"]["task_default_queue"] == "tests"
    assert "blimp:" in got["report"]["ok"]
    assert got["clock"]["clock"] > 0
    assert {id: state for id, (state, _) in queried.items()} == {
        running: "active",
        waiting: "reserved",
    }


def test_celery_controls_our_worker(app: TaskApp, guest: Guest) -> None:
    app.task(name="add")(lambda a: a + 1)
    with working(app, name=NAME, sync_workers=1) as worker:
        got = ask(
            guest,
            ("control", "rate_limit", "add", "50/s"),
            ("control", "time_limit", "add", 5, 10),
            ("control", "add_consumer", "more"),
            ("control", "pool_grow", 2),
            ("control", "pool_shrink", 1),
            ("control", "revoke", "called-back"),
            ("control", "enable_events"),
            ("control", "disable_events"),
            ("control", "rate_limit", "none", "50/s"),
            ("control", "autoscale", 3, 1),
        )
        assert [one.get("ok") for one in got[:8]] == [
            "new rate limit set successfully",
            "time limits set successfully",
            "add consumer more",
            "pool will grow",
            "pool will shrink",
            "tasks {'called-back'} flagged as revoked",
            "task events enabled",
            "task events disabled",
        ]
        assert got[8] == {"error": "unknown task"}
        assert "no such command" in got[9]["error"]
        assert app.send_task("add", (1,), queue="more").get(DEADLINE_S) == 2
        handle = app.send_task("add", (1,), task_id="called-back")
        assert handle.wait(DEADLINE_S).state is State.REVOKED
        assert app.tasks["add"].options.time_limit == 10.0
        (left,) = ask(guest, ("control", "cancel_consumer", "more"))
        assert left == {"ok": "no longer consuming from more"}
        (stopped,) = ask(guest, ("control", "shutdown"))
        assert stopped == {"ok": "shutting down"}
        wait_until(worker._stops.stopping.is_set, "it does not stop")


def test_flower_asks_our_worker_and_changes_it(app: TaskApp, guest: Guest) -> None:
    guest.environment["FLOWER_UNAUTHENTICATED_API"] = "true"
    app.task(name="add")(lambda a: a + 1)
    with working(app, name=NAME, events=True, sync_workers=2) as worker:
        flower = Flower(guest)
        got: dict[str, Any] = {}

        def is_answered() -> bool:
            worker.extension(WorkerEvents).heartbeat()
            found = flower.ask(f"/api/workers?refresh=true&workername={NAME}") or {}
            got.update(found.get(NAME, {}))
            return {"stats", "conf"} <= got.keys()

        wait_until(is_answered, "Flower is not answered")
        grow = urllib.request.Request(
            f"{flower.url}/api/worker/pool/grow/{NAME}?n=2", method="POST", data=b""
        )
        with urllib.request.urlopen(grow, timeout=START_S) as answer:
            assert answer.status == 200
    assert {*got} >= {
        "stats", "active_queues", "registered", "scheduled", "active", "reserved", "revoked",
        "conf",
    }  # fmt: skip
    assert got["registered"] == ["add"]
    assert got["stats"]["pool"]["max-concurrency"] == 2
    assert got["active_queues"][0]["name"] == "tests"
    assert worker.pools.sizes.sync_workers == 4
