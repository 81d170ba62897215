"""What one queue must be, in a few lists: the scripts are held against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from blimp.queue.brokers.streams.store import DONE, LOST, SETTLED
from blimp.queue.redis.keys import LEVELS

State = Literal["scheduled", "turn", "ready", "held", "returned", "done", "dead"]
MOST = 4  # deliveries


class Message:
    """number: its name, and its head on the server. is_stale: its time to live is over.

    is_idle: its holder did not renew it for longer than the lease. due: None where it is not
    scheduled, else when it is, in hours from now. life: how often it came back from the dead.
    tenant: "" for none. start: its virtual start time, if it waits for a turn; place: among all
    that ever did.
    """

    def __init__(
        self, number: int, level: int, *, is_stale: bool = False, tenant: str = ""
    ) -> None:
        self.number = number
        self.level = level
        self.is_stale = is_stale
        self.tenant, self.start, self.place = tenant, 0, 0
        self.state: State = "ready"
        self.session: str | None = None
        self.count = 0
        self.is_idle = False
        self.due: int | None = None
        self.reason = ""
        self.life = 0

    def take(self, name: str) -> None:
        self.state, self.session, self.is_idle = "held", name, False
        self.count += 1

    def requeue(self, *, seen: bool = True) -> None:
        self.state, self.session, self.is_idle = "returned", None, False
        self.count -= 0 if seen else 1

    def die(self, reason: str) -> None:
        self.state, self.session, self.reason = "dead", None, reason


class QueueModel:
    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}
        self.levels: list[list[Message]] = [[] for _ in range(LEVELS)]
        self.dead: list[Message] = []
        self.next_start: dict[tuple[int, str], int] = {}  # of each tenant
        self.placed = 0  # how many have waited for a turn
        self.is_paused = False

    # --- into the queue ----------------------------------------------------------------------

    def put(self, number: int, level: int, *, is_stale: bool, due: int | None, tenant: str) -> None:
        message = Message(number, level, is_stale=is_stale, tenant=tenant)
        self.messages[number] = message
        if due is None:
            self.place(message)
        else:
            message.state, message.due = "scheduled", due

    def place(self, message: Message) -> None:
        if not message.tenant:
            message.state = "ready"
            self.levels[message.level].append(message)
            return
        starts = [one.start for one in self.turns(message.level)]
        if not starts:
            self.next_start = {
                key: start for key, start in self.next_start.items() if key[0] != message.level
            }
        self.placed += 1
        message.place = self.placed
        key = message.level, message.tenant
        message.start = max(min(starts, default=0), self.next_start.get(key, 0))
        message.state = "turn"
        self.next_start[key] = message.start + 1

    def turns(self, level: int) -> list[Message]:
        """Return what waits for its tenant's turn, in order."""
        found = [
            one for one in self.messages.values() if one.state == "turn" and one.level == level
        ]
        return sorted(found, key=lambda one: (one.start, one.place))

    def scheduled(self) -> list[Message]:
        """Return what is not due yet, in the order in which it will be."""
        found = [one for one in self.messages.values() if one.due is not None]
        return sorted(found, key=lambda one: (one.due, one.number))

    # --- out of it ---------------------------------------------------------------------------

    def deliver(self, name: str, room: int, *, early: int) -> list[tuple[int, int]]:
        """Return number and fence of what `name` is given, in order."""
        for one in self.scheduled():
            if one.due is not None and one.due <= early:
                one.due = None
                self.place(one)
        given: list[tuple[int, int]] = []
        for message in self._in_order(name):
            if len(given) == room:
                break
            if message.count >= MOST and message.state != "ready":
                self.dead_letter(
                    message, f"delivered {message.count} times without being completed"
                )
                continue
            is_suspect = message.count > MOST / 2
            if is_suspect and given:
                continue
            if message.is_stale:
                self.dead_letter(message, "expired")
            else:
                if message.state == "turn":
                    self.levels[message.level].append(message)
                message.take(name)
                given.append((message.number, message.count))
                if is_suspect:
                    break
        return given

    def _in_order(self, name: str) -> Iterator[Message]:
        for number, level in enumerate(self.levels[:1] if self.is_paused else self.levels):
            waiting = list(level)
            for one in waiting:
                abandoned = one.state == "held" and one.is_idle and one.session != name
                if one.state == "returned" or abandoned:
                    yield one
            for one in waiting:
                if one.state == "ready":
                    yield one
            yield from self.turns(number)

    # --- the end of deliveries ---------------------------------------------------------------

    def answer(self, name: str, number: int, fence: int, life: int) -> int:
        """Return how the scripts must answer who says that it has this delivery."""
        message = self.messages[number]
        if message.state in ("done", "dead") or message.life != life:
            return SETTLED
        if (message.state, message.session, message.count) == ("held", name, fence):
            return DONE
        return LOST

    def finish(self, message: Message) -> None:
        self.levels[message.level].remove(message)
        message.state, message.session = "done", None

    def dead_letter(self, message: Message, reason: str) -> None:
        self.levels[message.level].remove(message)
        message.die(reason)
        self.dead.append(message)

    # --- by hand -----------------------------------------------------------------------------

    def requeue(self, message: Message) -> None:
        """It restarts, without a time to live."""
        self.dead.remove(message)
        message.count, message.is_stale = 0, False
        message.is_idle, message.life = False, message.life + 1
        self.place(message)

    def purge(self) -> int:
        """Return how many went: all but those that are held."""
        gone = [one for level in self.levels for one in level if one.state != "held"]
        for one in gone:
            self.finish(one)
        waiting = [one for level in range(LEVELS) for one in self.turns(level)]
        waiting += self.scheduled()
        for one in waiting:
            one.state, one.due = "done", None
        return len(gone) + len(waiting)
