"""Send Celery's own canvases to the workers, and print what came of each."""

import json
import sys
from typing import Any

from celery import chain, chord, group
from celery.result import AsyncResult, GroupResult
from ground import app
from sums import add, become, fail, same, total

app.set_current()
DEADLINE_S = 60.0

CANVASES: dict[str, Any] = {
    "chain": lambda: add.s(2, 2) | add.s(4) | add.s(8),
    "group": lambda: group(add.s(n, n) for n in range(4)),
    "chord": lambda: chord([add.s(n, n) for n in range(10)], total.s()),
    "order": lambda: chord([same.s(n) for n in range(12)], same.s()),
    "group, then a task": lambda: group(same.s(1), same.s(2)) | total.s() | add.s(1),
    "chain into a group": lambda: add.s(1, 1) | group(add.s(1), add.s(2)),
    "chord in a chain": lambda: (
        add.s(1, 1) | group(add.s(1), add.s(2)) | total.s() | group(add.s(1), add.s(2)) | total.s()
    ),
    "a group at the end of a part": lambda: chord(
        [same.s(1) | group(add.s(1), add.s(2)), same.s(9)], same.s()
    ),
    "chains in a header": lambda: chord([add.s(1, 1) | add.s(1), same.s(2)], same.s()),
    "chord in a header": lambda: chord(
        [chord([same.s(1), same.s(2)], total.s()), same.s(4)], same.s()
    ),
    "body is a chain": lambda: chord([same.s(1), same.s(2)], total.s() | add.s(1)),
    "body is a group": lambda: chord([same.s(1), same.s(2)], group(total.s(), same.s())),
    "map": lambda: same.map([1, 2]),
    "starmap": lambda: add.starmap([(1, 2), (3, 4)]),
    "map in a chain": lambda: same.map([1, 2]) | total.s(),
    "starmap in a chord": lambda: chord([add.starmap([(1, 2)]), same.s(9)], same.s()),
    "chunks": lambda: add.chunks([(1, 2), (3, 4), (5, 6)], 2).group(),
    "chunks in a chain": lambda: chain(add.chunks([(1, 2), (3, 4), (5, 6)], 2), same.s()),
    "replaced": lambda: become.s(add.s(1, 2)),
    "replaced by a chain": lambda: become.s(add.s(1, 2) | add.s(3)),
    "replaced by a group": lambda: become.s(group(same.s(1), same.s(2))),
    "replaced in a chain": lambda: same.s(0) | become.si(add.s(1, 2)) | add.s(4),
    "replaced by a group in a chain": lambda: (
        same.s(0) | become.si(group(same.s(1), same.s(2))) | total.s()
    ),
    "replaced in a chord": lambda: chord([become.s(add.s(1, 2)), same.s(9)], same.s()),
    "replaced by a chord in a chord": lambda: chord(
        [become.s(chord([same.s(1), same.s(2)], total.s())), same.s(9)], same.s()
    ),
    "replaced twice": lambda: become.s(become.s(add.s(1, 2))),
    "failed link": lambda: same.s(1) | fail.s() | add.s(1),
    "failed part": lambda: chord([same.s(1), fail.s()], total.s()),
    "failed chord in a header": lambda: chord(
        [chord([fail.s(), same.s(2)], total.s()), same.s(4)], same.s()
    ),
}


def value_of(result: Any) -> Any:
    # Else it raises what a part of the header raised, without a look at the body.
    how = {} if isinstance(result, GroupResult) else {"follow_parents": False}
    try:
        return result.get(timeout=DEADLINE_S, **how)
    except Exception as error:
        return f"{type(error).__module__}.{type(error).__name__}: {error}"


def main() -> None:
    wanted = sys.argv[1:] or list(CANVASES)
    sent = {name: CANVASES[name]().apply_async() for name in wanted}
    cleaned = app.send_task("celery.backend_cleanup")
    found: dict[str, Any] = {name: value_of(result) for name, result in sent.items()}
    found["cleanup"] = cleaned.get(timeout=DEADLINE_S)
    if "group" in sent:
        saved = sent["group"]
        saved.save()
        again = GroupResult.restore(saved.id, app=app)
        found["restored"] = [
            again.completed_count(),
            again.successful(),
            [one.result for one in again],
        ]
    if "chain into a group" in sent:
        first = AsyncResult(sent["chain into a group"].parent.id, app=app)
        (child,) = first.children
        found["children"] = [
            child.id == sent["chain into a group"].id,
            [one.result for one in child],
        ]
        found["group_id"] = sent["chain into a group"][0]._get_task_meta()["group_id"] == child.id
    print(json.dumps(found))


if __name__ == "__main__":
    main()
