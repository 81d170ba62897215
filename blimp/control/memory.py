"""The last outcomes by command id: what makes a redelivered command harmless."""

from collections import OrderedDict

import msgspec

from blimp.types import Outcome

CAPACITY = 512  # commands that are known if they come again


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

    def get(self, command_id: str) -> Seen | None:
        seen = self._seen.get(command_id)
        if seen is not None:
            self._seen.move_to_end(command_id)
        return seen

    def put(self, outcome: Outcome, *, name: str, fence: int) -> None:
        """Remember `outcome` of the command `name`; the newest fence of its id is kept."""
        before = self._seen.get(outcome.id)
        newest = fence if before is None else max(fence, before.fence)
        self._seen[outcome.id] = Seen(name=name, fence=newest, outcome=outcome)
        self._seen.move_to_end(outcome.id)
        while len(self._seen) > self._capacity:
            self._seen.popitem(last=False)

    def __len__(self) -> int:
        return len(self._seen)
