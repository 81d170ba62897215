"""Canvases between Celery and us: its client with our worker, our client with its worker."""

from typing import Any

from blimp.queue import TaskApp, TaskContext, chord, group
from tests.interop.guest import Guest, find_guest
from tests.queue.canvas.sums import CANVASES, Sums
from tests.queue.conftest import DEADLINE_S, working

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
    "map": [1, 2],
    "starmap": [3, 7],
    "map in a chain": 3,
    "starmap in a chord": [[3], 9],
    "chunks": [[3, 7], [11]],
    "chunks in a chain": [[3, 7], [11]],
    "replaced": 3,
    "replaced by a chain": 6,
    "replaced by a group": [1, 2],
    "replaced in a chain": 7,
    "replaced by a group in a chain": 3,
    "replaced in a chord": [3, 9],
    "replaced by a chord in a chord": [3, 9],
    "replaced twice": 3,
    "cleanup": None,
}


MAPS: dict[str, Any] = {
    "map": (lambda s: s.same.map([1, 2]), [1, 2]),
    "starmap": (lambda s: s.add.starmap([(1, 2), (3, 4)]), [3, 7]),
    "map in a chain": (lambda s: s.same.map([1, 2]) | s.total.s(), 3),
    "chunks": (lambda s: s.add.chunks([(1, 2), (3, 4), (5, 6)], 2), [[3, 7], [11]]),
    "starmap in a chord": (
        lambda s: chord([s.add.starmap([(1, 2)]), s.same.s(9)], s.same.s()), [[3], 9]),
    "maps in a group": (lambda s: group(s.same.map([1]), s.same.map([2])), [[1], [2]]),
}  # fmt: skip


def test_a_celery_client_sends_its_canvases_to_our_worker(app: TaskApp, guest: Guest) -> None:
    Sums(app)

    @app.task(name="become", bind=True)
    def become(context: TaskContext, plain: dict[str, Any]) -> None:
        context.replace(plain)

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
    canvases = CANVASES | MAPS
    sent = {name: make(sums).apply_async() for name, (make, _) in canvases.items()}
    found = {name: handle.get(timeout=2 * DEADLINE_S) for name, handle in sent.items()}
    assert found == {name: expected for name, (_, expected) in canvases.items()}
