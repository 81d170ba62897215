"""Tasks and canvases that several tests use."""

from collections.abc import Callable
from typing import Any

from blimp.queue import (
    TaskApp,
    chain,
    chord,
    group,
)
from tests.inbox import Inbox


class Sums:
    """An app's tasks, and what its errbacks have heard."""

    def __init__(self, app: TaskApp) -> None:
        self.app = app
        self._called = Inbox[Any]()
        self.heard = self._called.items
        self.add = app.task(name="add")(lambda a, b: a + b)
        self.total = app.task(name="total")(lambda numbers: sum(numbers))
        self.same = app.task(name="same")(lambda value: value)
        self.fail = app.task(name="fail")(self._fail)
        self.bad = app.task(name="bad", ignore_result=True)(self._hear)
        self.good = app.task(name="good", ignore_result=True)(self._hear)

    @staticmethod
    def _fail(*args: Any) -> None:
        raise ValueError("no")

    def _hear(self, *args: Any) -> None:
        self._called.add(args)

    def wait(self, count: int = 1) -> list[Any]:
        self._called.wait_for(lambda: len(self.heard) >= count)
        return self.heard


CANVASES: dict[str, tuple[Callable[[Sums], Any], Any]] = {
    "one": (lambda s: s.add.s(2, 2), 4),
    "immutable": (lambda s: s.add.s(2, 2) | s.add.si(5, 5), 10),
    "chain": (lambda s: s.add.s(2, 2) | s.add.s(4) | s.add.s(8), 16),
    "chain of chains": (
        lambda s: chain(s.add.s(1, 1) | s.add.s(1), chain(s.add.s(1), s.add.s(1))), 5),
    "group": (lambda s: group(s.add.s(n, n) for n in range(5)), [0, 2, 4, 6, 8]),
    "group in a group": (
        lambda s: group(s.same.s(1), group(s.same.s(2), group(s.same.s(3)))), [1, 2, 3]),
    "chains in a group": (
        lambda s: group(s.add.s(1, 1) | s.add.s(1), s.same.s(9)), [3, 9]),
    "chain into a group": (
        lambda s: s.add.s(1, 1) | group(s.add.s(1), s.add.s(2)), [3, 4]),
    "chord": (lambda s: chord([s.add.s(n, n) for n in range(10)], s.total.s()), 90),
    "group, then a task": (lambda s: group(s.same.s(1), s.same.s(2)) | s.total.s(), 3),
    "group of one, then a task": (lambda s: group(s.same.s(1)) | s.total.s(), 1),
    "chain of a group of one": (lambda s: chain(group([s.same.s(1)]), s.same.s()), [1]),
    "task, group of one, task": (lambda s: s.same.s(1) | group(s.same.s()) | s.same.s(), [1]),
    "task, group of one": (lambda s: s.same.s(1) | group(s.same.s()), 1),
    "group of one at the end of a chain in a chain": (
        lambda s: chain(chain(s.same.s(1), group(s.same.s())), s.same.s()), [1]),
    "the same with options": (
        lambda s: chain(chain(s.same.s(1), group(s.same.s())).set(priority=3), s.same.s()), [1]),
    "group of a group of one": (lambda s: group(group(s.same.s(1))) | s.same.s(), [1]),
    "group of one chain": (lambda s: group(s.same.s(1) | s.same.s()) | s.same.s(), [1]),
    "group of one, group, task": (
        lambda s: group(s.same.s(1)) | group(s.same.s(), s.same.s()) | s.same.s(), [[1], [1]]),
    "group of one, group of one, task": (
        lambda s: group(s.same.s(1)) | group(s.same.s()) | s.same.s(), [[1]]),
    "group of one, chord": (
        lambda s: group(s.same.s(1)) | chord([s.same.s()], s.same.s()), [[1]]),
    "group of one in a part": (
        lambda s: chord([group(s.same.s(1)) | s.same.s(), s.same.s(2)], s.same.s()), [[1], 2]),
    "group of one in a body": (
        lambda s: chord([s.same.s(1)], group(s.same.s()) | s.same.s()), [[1]]),
    "group of none, then a task": (lambda s: group([]) | s.total.s(), 0),
    "chain of a group of none": (lambda s: chain(group([]), s.same.s()), []),
    "task, group of none, task": (lambda s: s.same.s(1) | group([]) | s.same.s(), []),
    "task, group of none": (lambda s: s.same.s(1) | group([]), 1),
    "task, group of a group of none, task": (
        lambda s: s.same.s(1) | group(group([])) | s.same.s(), []),
    "group of none at the end of a chain in a chain": (
        lambda s: chain(chain(s.same.s(1), group([])), s.same.s()), []),
    "group of none, group, task": (
        lambda s: group([]) | group(s.same.s(), s.total.s()) | s.same.s(), [[], 0]),
    "group of none in a body": (
        lambda s: chord([s.same.s(1)], group([]) | s.same.s()), []),
    "order": (lambda s: chord([s.same.s(n) for n in range(12)], s.same.s()), list(range(12))),
    "empty header": (lambda s: chord([], s.total.s()), 0),
    "body is a chain": (
        lambda s: chord([s.same.s(1), s.same.s(2)], s.total.s() | s.add.s(1)), 4),
    "body is a group": (
        lambda s: chord([s.same.s(1), s.same.s(2)], group(s.total.s(), s.same.s())), [3, [1, 2]]),
    "body is a chord": (
        lambda s: chord(
            [s.same.s(1), s.same.s(2)], chord([s.total.s(), s.total.s()], s.total.s())), 6),
    "two groups": (
        lambda s: group(s.same.s(1), s.same.s(2)) | group(s.total.s(), s.total.s()) | s.total.s(),
        6),
    "group, task, group, task": (
        lambda s: group(s.same.s(1), s.same.s(2)) | s.total.s() | s.add.s(1)
        | group(s.add.s(1), s.add.s(2)) | s.total.s(), 11),
    "chord in a chain": (
        lambda s: s.add.s(1, 1) | chord([s.add.s(1), s.add.s(2)], s.total.s()) | s.add.s(10), 17),
    "chains in a header": (
        lambda s: chord([s.add.s(1, 1) | s.add.s(1), s.same.s(2)], s.same.s()), [3, 2]),
    "a group at the end of a part": (
        lambda s: chord([s.same.s(1) | group(s.add.s(1), s.add.s(2)), s.same.s(9)], s.same.s()),
        [[2, 3], 9]),
    "chord in a header": (
        lambda s: chord(
            [chord([s.same.s(1), s.same.s(2)], s.total.s()), s.same.s(4)], s.same.s()), [3, 4]),
    "chord with a chain in a header": (
        lambda s: chord(
            [chord([s.same.s(1), s.same.s(2)], s.total.s() | s.add.s(1)), s.same.s(4)],
            s.same.s()), [4, 4]),
    "two chords side by side": (
        lambda s: group(chord([s.same.s(1)], s.total.s()), chord([s.same.s(2)], s.total.s())),
        [1, 2]),
}  # fmt: skip


def part(gid: str, index: object, *, id: str = "part", **embed: Any) -> dict[str, Any]:
    """Return what a part of the chord `gid` is published as."""
    body = {"task": "total", "args": [], "kwargs": {}, "options": {"task_id": "body"}}
    return {"id": id, "task": "same", "args": (1,), "queue": "tests", "group_id": gid,
            "group_index": index, "chord": body, **embed}  # fmt: skip
