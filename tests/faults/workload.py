"""One of everything that a queue does with a message, and what must have become of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from blimp.queue import Signature, State, TaskApp, chord
from blimp.queue.brokers.base import MOST_DELIVERIES
from blimp.queue.protocol.record import Record
from blimp.queue.redis.keys import GROUP, Keys
from tests.faults.motor import Heard, What
from tests.faults.server_side import ServerSide
from tests.faults.tasks import APP, STUMBLES

LONG_S = 0.15  # of the body that must be renewed, with leases of `LEASE_S`
LEASE_S = 0.4
LONG_DEAD_MS = 1_000_000


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One message, by the name that its id ends with.

    final: the states it may end in; none where results are off. bodies: how many tries run
        where nothing goes wrong. effects: how often the motor must have moved for it.
    """

    name: str
    task: str
    args: tuple[Any, ...] = ()
    countdown_s: float | None = None
    final: tuple[State, ...] = (State.SUCCESS,)
    bodies: int = 1
    effects: tuple[int, ...] = (0,)


STEPS = (
    Step(name="noop", task="noop"),
    Step(name="silent", task="silent", final=()),
    Step(name="long", task="breathe", args=(LONG_S,)),
    Step(name="stumble", task="stumble", bodies=STUMBLES + 1),
    Step(name="eta", task="turn", countdown_s=0.05, effects=(1,)),
    Step(name="turn", task="turn", effects=(1,)),
    # Cut off after it began, it is not run again: it has moved once, or not at all.
    Step(name="step", task="step", final=(State.SUCCESS, State.INTERRUPTED), effects=(0, 1)),
    Step(name="fail", task="fail", final=(State.FAILURE,)),
    Step(name="reject", task="reject", final=(State.FAILURE,)),
    Step(name="put_back", task="put_back", bodies=2),
    Step(name="progress", task="progress"),
    Step(name="older", task="steer", final=(State.SUPERSEDED,), bodies=0),
    Step(name="newer", task="steer", effects=(1,)),
    Step(name="revoked", task="turn", final=(State.REVOKED,), bodies=0),
    Step(name="parent", task="parent"),
    Step(name="child", task="", effects=(1,)),  # sent by its parent, by way of the worker
    # A chord of one task and a chain of two, and its body; and one whose part fails.
    Step(name="part", task=""),
    Step(name="link", task=""),
    Step(name="last", task=""),
    Step(name="body", task="", effects=(1,)),
    Step(name="failed_part", task="", final=(State.FAILURE,)),
    Step(name="failed_body", task="", final=(State.FAILURE,), bodies=0),
    Step(name="errback", task="", effects=(1,)),
)
UNKNOWN, POISON = "unknown", "poison"  # dead letters both: of no task, and delivered too often
MAY_BE_DEAD = ("reject",)


class Workload:
    """The steps under ids of their own."""

    def __init__(self, *, app: TaskApp, side: ServerSide, run: str) -> None:
        self._app = app
        self._side = side
        self._run = run
        self.ids = {step.name: f"{run}-{step.name}" for step in STEPS}

    def send(self) -> None:
        """Queue everything; no worker may run yet."""
        for step in STEPS:
            if step.task:
                args = (self.ids["child"],) if step.name == "parent" else step.args
                self._app.get_task(step.task).apply_async(
                    args, task_id=self.ids[step.name], countdown=step.countdown_s
                )
        self._send_chords()
        self._app.revoke(self.ids["revoked"])
        self._app.send_task("nobody_knows", task_id=f"{self._run}-{UNKNOWN}")
        self._send_poison()

    def _send_chords(self) -> None:
        def one(task: str, name: str) -> Signature:
            return self._app.get_task(task).si().set(task_id=self.ids[name])

        chord(
            [one("noop", "part"), one("noop", "link") | one("noop", "last")], one("turn", "body")
        )()
        failed = one("noop", "failed_body").on_error(one("turn", "errback"))
        chord([one("fail", "failed_part")], failed)()

    def _send_poison(self) -> None:
        """Send one that a dead worker has had as often as the limit allows."""
        self._app.send_task("noop", task_id=f"{self._run}-{POISON}", priority=1)
        level, client = Keys().queue(APP).levels[0], self._side.client
        client.xgroup_create(level, GROUP, id="0", mkstream=True)
        entry = client.xreadgroup(GROUP, "dead", {level: ">"}, count=1)[0][1][0][0]
        client.xclaim(
            level, GROUP, "dead", 0, [entry],
            idle=LONG_DEAD_MS, retrycount=MOST_DELIVERIES, justid=True,
        )  # fmt: skip

    def is_done(self, heard: Sequence[Heard]) -> bool:
        """Say whether everything has ended and nothing but dead letters is left."""
        final = {step.name for step in STEPS if step.final}
        records = self._side.records(self.ids[name] for name in final)
        return (
            len(records) == len(final)
            and all(record.final for record in records.values())
            and any(one.id == self.ids["silent"] and one.what is What.ENDED for one in heard)
            and len(dead := self._side.dead_ids()) >= 2
            and self._side.messages_left() == len(dead)
        )

    def complaints(
        self, heard: Sequence[Heard], finals: Counter[str], *, runs_twice: int
    ) -> list[str]:
        """Return everything that must not be. runs_twice: bodies that may have run again."""
        records = self._side.records(self.ids.values())
        found = [
            complaint
            for step in STEPS
            for complaint in _complaints(
                step, self.ids[step.name], heard, records.get(self.ids[step.name]), finals
            )
        ]
        extra = sum(_ran_again(step, self.ids[step.name], heard) for step in STEPS)
        if extra > runs_twice:
            found.append(f"{extra} bodies ran again, {runs_twice} may")
        dead = Counter(self._side.dead_ids())
        must = {f"{self._run}-{UNKNOWN}", f"{self._run}-{POISON}"}
        may = {self.ids[name] for name in MAY_BE_DEAD}
        if set(dead) - may != must or max(dead.values()) > 1:
            found.append(f"dead letters {dict(dead)}")
        if left := self._side.messages_left() - dead.total():
            found.append(f"{left} messages left")
        if strange := self._side.strange_keys():
            found.append(f"keys left: {strange}")
        return found


def _ran_again(step: Step, id: str, heard: Sequence[Heard]) -> int:
    """Return how many bodies ran past one for each try."""
    tries = [one.retries for one in heard if one.what is What.BEGAN and one.id == id]
    return max(0, len(tries) - max(step.bodies, len(set(tries))))


def _complaints(
    step: Step, id: str, heard: Sequence[Heard], record: Record | None, finals: Counter[str]
) -> list[str]:
    found = []
    if step.final and (record is None or record.state not in step.final):
        found.append(f"{step.name}: lost, it is {record and record.state}")
    if not step.final and not any(one.id == id and one.what is What.ENDED for one in heard):
        found.append(f"{step.name}: lost, it never ended")
    if finals[id] > 1:
        found.append(f"{step.name}: {finals[id]} final results published")
    effects = sum(one.applied for one in heard if one.id == id)
    if effects not in step.effects:
        found.append(f"{step.name}: the motor moved {effects} times")
    if step.task == "step" and record and record.state is State.SUCCESS and effects != 1:
        found.append(f"{step.name}: succeeded without an effect")
    return found


def describe(heard: Sequence[Heard]) -> str:
    """Return what the motor heard, one line each, for a report."""
    return "\n".join(json.dumps(msgspec.to_builtins(one)) for one in heard)
