"""Count the arrows between the rooms of the queue, by its import graph; imports for types count.

    python -m benchmarks.arrows          the rooms as they are
    python -m benchmarks.arrows core     the core as one room, beside its neighbours
    python -m benchmarks.arrows ends     a room for senders, one for workers, one for both

An arrow is a room that imports another; after it, by how many imports. Needs grimp, which
import-linter brings.
"""

from __future__ import annotations

import sys
from collections import Counter

import grimp

QUEUE = "blimp.queue."
NEIGHBOURS = ("celery", "extras", "django", "kombu_transport")
# Where a part would stand if it were sorted by who uses it; what is not here, both do.
WORKER = """
    worker broadcast scheduler extensions dependencies context celery.events celery.control
    celery.kombu_consumer extras.processes extras.observability
"""
SENDER = """
    app task settings publish results canvas resources cli operations testing pytest_plugin
    timetable located extras.sql extras.django extras.page django kombu_transport
    celery.kombu_transport
"""
ENDS = {"worker": WORKER.split(), "sender": SENDER.split()}


def room_of(module: str, draft: str) -> str:
    """Return the room of a module, by its name after `blimp.queue.`."""
    top = module.partition(".")[0]
    if draft == "core":
        return top if top in NEIGHBOURS else "core"
    if draft == "ends":
        found = [
            room
            for room, parts in ENDS.items()
            if any(f"{module}.".startswith(f"{part}.") for part in parts)
        ]
        return found[0] if found else "both"
    return top


def main(draft: str = "") -> None:
    graph = grimp.build_graph("blimp")
    own = [name for name in sorted(graph.modules) if name.startswith(QUEUE)]
    arrows: Counter[tuple[str, str]] = Counter()
    for importer in own:
        for imported in graph.find_modules_directly_imported_by(importer):
            if imported.startswith(QUEUE):
                ends = [room_of(one.removeprefix(QUEUE), draft) for one in (importer, imported)]
                if ends[0] != ends[1]:
                    arrows[ends[0], ends[1]] += 1
    for (one, other), imports in sorted(arrows.items()):
        print(f"{one:16} -> {other:16} {imports:4}")
    mutual = sum((other, one) in arrows for one, other in arrows) // 2
    print(
        f"{len(arrows)} arrows of {sum(arrows.values())} imports, {mutual} pairs in both directions"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
