"""The last outcomes by command id: what makes a redelivered command harmless."""

from collections import OrderedDict

import msgspec

from blimp.types import Outcome

CAPACITY = 512  # commands that are known if they come again
# Of stops: a copy of one that is forgotten stops a ship that was armed since. A queue and a stream
# keep each for 10 s; one program presses 550 times a second at most (600 threads, by broker and
# socket, two processors). Chosen: three times that. Memory, full: 9 MB.
STOPS = 16_384


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The newest fence and the present outcome of one command id, and the command's name."""

    name: str
    fence: int
    outcome: Outcome


class OutcomeMemory:
    """Bounded; what was touched longest ago is forgotten first."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._stops: OrderedDict[str, Seen] = OrderedDict()  # no flood of them forgets the others

    def get(self, command_id: str) -> Seen | None:
        for kept in (self._stops, self._seen):
            if command_id in kept:
                kept.move_to_end(command_id)
                return kept[command_id]
        return None

    def put(self, outcome: Outcome, *, name: str, fence: int) -> None:
        """Remember `outcome` of the command `name`; the newest fence of its id is kept."""
        is_stop = name == "estop"
        kept, capacity = (self._stops, STOPS) if is_stop else (self._seen, self._capacity)
        before = kept.get(outcome.id)
        newest = fence if before is None else max(fence, before.fence)
        kept[outcome.id] = Seen(name=name, fence=newest, outcome=outcome)
        kept.move_to_end(outcome.id)
        while len(kept) > capacity:
            kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._seen) + len(self._stops)
