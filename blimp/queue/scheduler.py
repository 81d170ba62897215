"""Sends tasks at their ticks: a thread of every worker, and the server lets one of them through.

A tick is a publish whose stamp has the schedule's key and the tick's time. The server puts a stamp
only if it is newer than the last one of its key, in the same step as the message: so each tick is
sent once, wherever a worker is killed, and none comes again when a clock goes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from blimp.errors import BlimpError, ConfigError, LinkError, UnknownName
from blimp.queue.brokers.streams.envelope import Stamp
from blimp.queue.extensions import BackgroundExtension
from blimp.queue.publish.publisher import SendOptions, send
from blimp.queue.redis.keys import Keys

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.task import Task
    from blimp.queue.timetable import Schedule

KEEP_MS = 400 * 86_400_000  # a schedule's last tick: longer than the longest interval
LATE_S = 60.0  # from when on a tick counts as missed
LONGEST_WAIT_S = 30.0  # then the broker's clock is looked at again: it may have been set
RETRY_S = 1.0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule as it stands on the broker. Times are seconds since the epoch."""

    name: str
    schedule: str
    next_s: float
    last_s: float | None
    is_paused: bool


class Row(NamedTuple):
    """A schedule of a task. name: of the task, if that has no other."""

    name: str
    task: Task
    schedule: Schedule


class Timetable:
    """The schedules of an app's tasks, and what the broker knows of them."""

    def __init__(self, app: TaskApp) -> None:
        self.app = app
        self._keys = Keys()

    def rows(self) -> Iterator[Row]:
        for task in self.app.tasks.values():
            found = task.options.schedule
            if isinstance(found, tuple):
                yield from (Row(f"{task.name} {one.name}", task, one) for one in found)
            elif found is not None:
                yield Row(task.name, task, found)

    def states(self) -> list[State]:
        """Return how each stands now. Raises LinkError."""
        now_s = self.app.broker_clock.now_s()
        return [
            State(
                name=row.name,
                schedule=str(row.schedule),
                next_s=row.schedule.next_s(now_s),
                last_s=self.last_s(row.name),
                is_paused=self.is_paused(row),
            )
            for row in self.rows()
        ]

    def last_s(self, name: str) -> float | None:
        """Return the newest tick that was sent, or from which they are counted."""
        found = self.app.broker_link.ask(lambda client: client.get(self._key(name)))
        return None if found is None else int(found) / 1e3

    def begin(self, row: Row, *, now_s: float) -> float:
        """Return the newest tick that needs no sending: of a new schedule, the one before now."""
        last_s = row.schedule.last_s(now_s)
        self.app.broker_link.ask(
            lambda client: client.set(self._key(row.name), _ms(last_s), px=KEEP_MS, nx=True)
        )
        found_s = self.last_s(row.name)
        return last_s if found_s is None else found_s

    def send(self, row: Row, *, tick_s: float, now_s: float) -> None:
        """Send it unless this tick or a later one was sent. Raises LinkError.

        What has not begun when the next tick is due is not run: that one is.
        """
        name, task, schedule = row
        expires = datetime.fromtimestamp(schedule.next_s(max(tick_s, now_s)), UTC)
        stamp = Stamp(self._key(name), _ms(tick_s), KEEP_MS)
        kwargs = dict(schedule.kwargs)
        options: SendOptions = {"expires": expires}
        send(self.app, task.name, schedule.args, kwargs, options, stamp=stamp, claims=False)

    def pause(self, name: str) -> None:
        """Have no worker send it, a schedule or all of a task. Raises LinkError, ConfigError."""
        names = [row.name for row in self._find(name)]
        self.app.broker_link.ask(lambda client: client.sadd(self._paused, *names))

    def resume(self, name: str) -> None:
        """Have it sent again from its next tick on. Raises LinkError, ConfigError."""
        rows = self._find(name)
        task = rows[0].task.name  # paused as one, it may have several by now: the others stay so
        if self._is_member(task):
            others = [row.name for row in self._find(task)]
            self.app.broker_link.ask(lambda client: client.sadd(self._paused, *others))
            if task not in others:
                self.app.broker_link.ask(partial(_remove, key=self._paused, name=task))
        for row in rows:
            last_s = row.schedule.last_s(self.app.broker_clock.now_s())
            key, value = self._key(row.name), _ms(last_s)
            self.app.broker_link.ask(partial(_set, key=key, value=value))
            self.app.broker_link.ask(partial(_remove, key=self._paused, name=row.name))

    def run(self, name: str) -> Any:
        """Send it now, besides its ticks; return its handle. Raises LinkError, ConfigError."""
        row, *more = self._find(name)
        if more:
            names = "; ".join(one.name for one in (row, *more))
            raise ConfigError(f"task {name!r} has several schedules: say which: {names}")
        return self.app.send_task(row.task.name, row.schedule.args, dict(row.schedule.kwargs))

    def is_paused(self, row: Row) -> bool:
        return any(map(self._is_member, {row.name, row.task.name}))  # one of most: they are equal

    def _is_member(self, name: str) -> bool:
        return bool(self.app.broker_link.ask(lambda client: client.sismember(self._paused, name)))

    def _find(self, name: str) -> list[Row]:
        rows = list(self.rows())
        found = [row for row in rows if name in (row.name, row.task.name)]
        if found:
            return found
        known = ", ".join(row.name for row in rows) or "none"
        raise UnknownName(f"no schedule of task {name!r:.80}; there are: {known}")

    @property
    def _paused(self) -> str:
        return self._keys.paused(self.app.name)

    def _key(self, name: str) -> str:
        return self._keys.sender(f"schedule:{self.app.name}:{name}")


class Schedules(BackgroundExtension):
    """The thread of one worker. Raises ConfigError for a broker that puts a tick twice."""

    _app: TaskApp

    def __init__(self, worker: Any) -> None:
        super().__init__(worker, name="schedules")
        if not self._app.capabilities.keeps_stamps:
            raise ConfigError(
                f"app {self._app.name!r}: schedules need a Redis or Valkey broker, which sends "
                f"each tick once; transport {self._app.transport!r} does not"
            )
        self._timetable = Timetable(self._app)
        self._sent_s: dict[str, float] = {}

    def _serve(self) -> None:
        wait_s = 0.0
        while not self._ended.wait(wait_s):
            try:
                wait_s = self._look()
            except BlimpError as error:
                self._log.warning("schedules", reason=str(error))
                wait_s = RETRY_S

    def _look(self) -> float:
        """Send what is due; return how long nothing else is. Raises LinkError."""
        now_s = self._app.broker_clock.latest_s()
        next_s = now_s + LONGEST_WAIT_S
        for row in self._timetable.rows():
            name, _, schedule = row
            if name not in self._sent_s:
                self._sent_s[name] = self._timetable.begin(row, now_s=now_s)
            tick_s = schedule.last_s(now_s)
            if tick_s > self._sent_s[name]:
                self._send(row, tick_s=tick_s, now_s=now_s)
                self._sent_s[name] = tick_s
            next_s = min(next_s, schedule.next_s(now_s))
        return max(0.0, next_s - now_s)

    def _send(self, row: Row, *, tick_s: float, now_s: float) -> None:
        """Send a tick unless it is missed or paused. One that no message can hold is left out."""
        is_missed = row.schedule.missed == "skip" and now_s - tick_s > LATE_S
        if is_missed or self._timetable.is_paused(row):
            return
        try:
            self._timetable.send(row, tick_s=tick_s, now_s=now_s)
        except LinkError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._log.error("schedule not sent", task=row.task.name, reason=reason)


def _set(client: Any, *, key: str, value: int) -> Any:
    return client.set(key, value, px=KEEP_MS)


def _remove(client: Any, *, key: str, name: str) -> Any:
    return client.srem(key, name)


def _ms(at_s: float) -> int:
    return round(1e3 * at_s)
