"""What became of what was sent, counted from the journal, the records and the publications."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from blimp.queue.protocol.record import Record
from tests.faults.load import Order
from tests.faults.motor import EFFECTS, Heard, What


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """lost: ids that were sent, confirmed, and have not exactly one final result (where
        results are off: that never ended). ran_twice: tries whose body began more than once.
    effects_twice: ids that the actuator moved for more than once, by its own count.
    effects_unseen: ids whose journal and actuator disagree. asked_twice: ids that the motor was
        asked for again and did not apply: what its memory was for.
    """

    sent: int
    lost: tuple[str, ...]
    ran_twice: int
    effects: int
    effects_twice: int
    effects_unseen: int
    asked_twice: int
    states: dict[str, int]


def count(
    sent: Sequence[Order],
    *,
    heard: Sequence[Heard],
    records: Mapping[str, Record],
    finals: Mapping[str, int],
    moved: Mapping[str, int],
) -> Tally:
    began = Counter((one.id, one.retries) for one in heard if one.what is What.BEGAN)
    ended = {one.id for one in heard if one.what is What.ENDED}
    effects = [one for one in heard if one.what in EFFECTS]
    applied = Counter(one.id for one in effects if one.applied)
    asked = Counter(one.id for one in effects)
    return Tally(
        sent=len(sent),
        lost=tuple(
            order.id
            for order in sent
            if not (order.id in ended if order.task == "silent" else is_final(order.id, records))
            or finals.get(order.id, 0) > 1
        ),
        ran_twice=sum(times > 1 for times in began.values()),
        effects=sum(moved.values()),
        effects_twice=sum(times > 1 for times in moved.values()),
        effects_unseen=sum(moved.get(id, 0) != applied[id] for id in {*moved, *applied}),
        asked_twice=sum(times > applied[id] for id, times in asked.items()),
        states=dict(Counter(record.state.value for record in records.values())),
    )


def is_final(id: str, records: Mapping[str, Record]) -> bool:
    return id in records and records[id].final
