"""A program that publishes, as the process under test: what it sends, and what was confirmed.

It sends one of each kind of message and appends the name of a step to its log as soon as the
call returned: that send is confirmed. A step that is not in the log may or may not have
happened.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from blimp.errors import LinkError
from blimp.queue import Signature, State, TaskApp, chord, group
from blimp.queue.protocol.record import Record
from tests.faults import tasks
from tests.faults.motor import Heard

LATER_S = 0.05
DUE_S = 0.3  # the revocation comes before


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the client, and the tasks that it makes run.

    tasks: the last parts of their ids. final: the states that each may end in once the call is
    confirmed. effects: how often the motor may move for each then.
    """

    name: str
    tasks: tuple[str, ...]
    final: tuple[State, ...] = (State.SUCCESS,)
    effects: tuple[int, ...] = (1,)


CALLS = (
    Call(name="plain", tasks=("plain",)),
    Call(name="urgent", tasks=("urgent",)),
    Call(name="later", tasks=("later",)),
    Call(name="unguarded", tasks=("unguarded",)),
    Call(name="coalesced", tasks=("coalesced",)),
    Call(name="linked", tasks=("first", "link")),
    Call(name="chain", tasks=("head", "tail")),
    Call(name="group", tasks=("left", "right")),
    Call(name="chord", tasks=("part", "other_part", "body")),
    Call(
        name="scheduled",
        tasks=("scheduled",),
        final=(State.SUCCESS, State.REVOKED),
        effects=(0, 1),
    ),
    Call(name="revoked", tasks=("scheduled",), final=(State.REVOKED,), effects=(0,)),
    Call(name="last", tasks=("last",)),
)


def calls(app: TaskApp, run: str) -> dict[str, Callable[[], object]]:
    """Return what the client does for each of `CALLS`, in their order."""

    def turn(name: str) -> Signature:
        return app.get_task("turn").si().set(task_id=f"{run}-{name}")

    def send(task: str, name: str, **options: object) -> Callable[[], object]:
        return lambda: app.get_task(task).apply_async(task_id=f"{run}-{name}", **options)  # type: ignore[arg-type]

    return {
        "plain": send("turn", "plain"),
        "urgent": send("turn", "urgent", priority=0),
        "later": send("turn", "later", countdown=LATER_S),
        "unguarded": send("step", "unguarded"),
        "coalesced": send("steer", "coalesced"),
        "linked": lambda: turn("first").apply_async(link=turn("link")),
        "chain": lambda: (turn("head") | turn("tail")).apply_async(),
        "group": lambda: group(turn("left"), turn("right")).apply_async(),
        "chord": lambda: chord([turn("part"), turn("other_part")], turn("body"))(),
        "scheduled": send("turn", "scheduled", countdown=DUE_S),
        "revoked": lambda: app.revoke(f"{run}-scheduled"),
        "last": send("turn", "last"),
    }


def send_all(*, broker: str, run: str, confirmed: str) -> int:
    """Make every call; return 0. A call whose broker stays unreachable is not confirmed."""
    log = os.open(confirmed, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with tasks.make_app(broker, retry_policy={"max_retries": 50}) as app:
        for name, call in calls(app, run).items():
            try:
                call()
            except LinkError:
                continue
            os.write(log, f"{name}\n".encode())
    return 0


def confirmed_calls(log: Path) -> set[str]:
    """Return the names of the calls that returned."""
    return set(log.read_text().split()) if log.exists() else set()


def is_done(run: str, log: Path, records: Mapping[str, Record]) -> bool:
    """Say whether every task of a confirmed call has ended."""
    names = confirmed_calls(log)
    ids = [f"{run}-{task}" for call in CALLS if call.name in names for task in call.tasks]
    return all(id in records and records[id].final for id in ids)


def complaints(
    run: str,
    log: Path,
    *,
    heard: Sequence[Heard],
    records: Mapping[str, Record],
    finals: Mapping[str, int],
    is_late: bool = False,
) -> list[str]:
    """Return what must not be: a confirmed call that has not run exactly once, and any call,
    confirmed or not, that moved the motor twice or has two results.

    is_late: the server was restarted meanwhile, and a revocation may come after what it revokes.
    """
    names = confirmed_calls(log) - ({"revoked"} if is_late else set())
    moved = Counter(one.id for one in heard if one.applied)
    found = []
    for task in sorted({task for call in CALLS for task in call.tasks}):
        id = f"{run}-{task}"
        if moved[id] > 1:
            found.append(f"{task}: the motor moved {moved[id]} times")
        if finals.get(id, 0) > 1:
            found.append(f"{task}: {finals[id]} final results published")
    for call in CALLS:
        for task in call.tasks if call.name in names else ():
            id = f"{run}-{task}"
            record = records.get(id)
            if record is None or record.state not in call.final:
                found.append(f"{task}: {call.name} was confirmed, it is {record and record.state}")
            elif moved[id] not in call.effects:
                found.append(
                    f"{task}: {call.name} was confirmed, the motor moved {moved[id]} times"
                )
    return found
