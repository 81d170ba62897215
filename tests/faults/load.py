"""What a campaign sends: a mix of kinds drawn by a seed, and held to the pace of the kills."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from blimp.queue import TaskApp


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One task to be sent."""

    id: str
    task: str
    args: tuple[Any, ...] = ()
    countdown_s: float | None = None
    priority: int = 6


Range = tuple[float, float] | None
Row = tuple[float, str, Range, Range]

# Weight, task, seconds that its body may last (from, to), seconds that it may be put off.
MIX: tuple[Row, ...] = (
    (25, "noop", None, None),
    (10, "silent", None, None),
    (15, "nap", (0.05, 0.5), None),
    (15, "breathe", (0.05, 0.5), None),
    (2, "nap", (2.1, 2.5), None),  # longer than the lease: renewed, or run twice
    (8, "stumble", None, None),
    (10, "turn", None, (0.05, 1.0)),  # an ETA
    (8, "turn", None, None),
    (10, "step", None, None),
    (3, "fail", None, None),
)


# The same kinds, hardly any of which sleeps: for the number, not for what is in flight.
QUICK_MIX: tuple[Row, ...] = (
    (50, "noop", None, None),
    (15, "silent", None, None),
    (3, "nap", (0.0, 0.01), None),
    (5, "breathe", (0.0, 0.05), None),
    (0.02, "nap", (2.1, 2.5), None),
    (5, "stumble", None, None),
    (5, "turn", None, (0.05, 1.0)),
    (10, "turn", None, None),
    (4, "step", None, None),
    (3, "fail", None, None),
)


def draw_orders(count: int, *, seed: int, mix: Sequence[Row] = MIX) -> list[Order]:
    """Return `count` orders, the same for the same seed."""
    chance = random.Random(seed)
    rows = chance.choices(mix, weights=[row[0] for row in mix], k=count)
    return [
        Order(
            id=f"{task}-{number}",
            task=task,
            args=() if lasts_s is None else (round(chance.uniform(*lasts_s), 3),),
            countdown_s=None if delay_s is None else chance.uniform(*delay_s),
            priority=chance.choice((1, 4, 6, 6, 6, 9)),
        )
        for number, (_, task, lasts_s, delay_s) in enumerate(rows)
    ]


class Sender:
    """Sends orders in a thread of its own, as far as it is let. `sent`: what was confirmed."""

    def __init__(self, *, app: TaskApp, orders: Sequence[Order]) -> None:
        self._app = app
        self._orders = orders
        self._allowed = 0
        self._changed = threading.Condition()
        self.sent: list[Order] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._send_all, name="sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def allow(self, count: int) -> None:
        """Let it send up to the `count`-th order."""
        with self._changed:
            self._allowed = max(self._allowed, count)
            self._changed.notify()

    def allow_more(self, count: int) -> None:
        """Let it send so many more, if it has sent what it may."""
        if len(self.sent) >= self._allowed:
            self.allow(self._allowed + count)

    def join(self) -> None:
        """Wait for the last one. Raises what kept it from being sent."""
        self.allow(len(self._orders))
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _send_all(self) -> None:
        try:
            for number, order in enumerate(self._orders):
                with self._changed:
                    self._changed.wait_for(lambda n=number: self._allowed > n)  # type: ignore[misc]
                self._app.send_task(
                    order.task,
                    order.args,
                    task_id=order.id,
                    countdown=order.countdown_s,
                    priority=order.priority,
                    ignore_result=order.task == "silent",
                )
                self.sent.append(order)
        except BaseException as error:
            self.failure = error
