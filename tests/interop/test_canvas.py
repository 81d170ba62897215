"""Canvases between Celery and us: its client with our worker, our client with its worker."""

from typing import Any

from blimp.queue import TaskApp
from tests.interop.guest import Guest, find_guest
from tests.queue.conftest import DEADLINE_S, working
from tests.queue.test_canvas import CANVASES, Sums

find_guest()

EXPECTED: dict[str, Any] = {
    "chain": 16,
    "group": [0, 2, 4, 6],
    "chord": 90,
    "order": list(range(12)),
    "group, then a task": 4,
    "chain into a group": [3, 4],
    "chord in a chain": 17,
    "a group at the end of a part": [[2, 3], 9],
    "chains in a header": [3, 2],
    "chord in a header": [3, 4],
    "body is a chain": 4,
    "body is a group": [3, [1, 2]],
    "restored": [4, True, [0, 2, 4, 6]],
    "children": [True, [3, 4]],
    "group_id": True,
}


def test_a_celery_client_sends_its_canvases_to_our_worker(app: TaskApp, guest: Guest) -> None:
    Sums(app)
    with working(app):
        found = guest.run("canvases.py")
    failed = {name: found.pop(name) for name in list(found) if name.startswith("failed")}
    assert found == EXPECTED
    assert failed["failed link"] == "builtins.ValueError: no"
    for name in ("failed part", "failed chord in a header"):
        assert failed[name].startswith("celery.exceptions.ChordError: Dependency ")


def test_a_celery_worker_runs_our_canvases(app: TaskApp, guest: Guest) -> None:
    sums = Sums(app)
    guest.start("-m", "celery", "-A", "sums", "worker", "-P", "solo", "-l", "ERROR")
    sent = {name: make(sums).apply_async() for name, (make, _) in CANVASES.items()}
    found = {name: handle.get(timeout=2 * DEADLINE_S) for name, handle in sent.items()}
    assert found == {name: expected for name, (_, expected) in CANVASES.items()}
