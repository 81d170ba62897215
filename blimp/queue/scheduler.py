"""Sends tasks at their ticks: a thread of every worker, and the server lets one of them through.

A tick is a publish whose stamp has the schedule's key and the tick's time. The server puts a stamp
only if it is newer than the last one of its key, in the same step as the message: so each tick is
sent once, wherever a worker is killed, and none comes again when a clock goes back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import BlimpError, ConfigError, LinkError, UnknownName
from blimp.queue.brokers.streams.envelope import Stamp
from blimp.queue.extensions import Extension
from blimp.queue.publish.publisher import send
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


class Timetable:
    """The schedules of an app's tasks, and what the broker knows of them."""

    def __init__(self, app: TaskApp) -> None:
        self.app = app
        self._keys = Keys()

    def tasks(self) -> Iterator[tuple[Task, Schedule]]:
        for task in self.app.tasks.values():
            if task.options.schedule is not None:
                yield task, task.options.schedule

    def states(self) -> list[State]:
        """Return how each stands now. Raises LinkError."""
        now_s = self.app.broker_clock.now_s()
        return [
            State(
                name=task.name,
                schedule=str(schedule),
                next_s=schedule.next_s(now_s),
                last_s=self.last_s(task.name),
                is_paused=self.is_paused(task.name),
            )
            for task, schedule in self.tasks()
        ]

    def last_s(self, name: str) -> float | None:
        """Return the newest tick that was sent, or from which they are counted."""
        found = self.app.broker_link.ask(lambda client: client.get(self._key(name)))
        return None if found is None else int(found) / 1e3

    def begin(self, name: str, schedule: Schedule, *, now_s: float) -> float:
        """Return the newest tick that needs no sending: of a new schedule, the one before now."""
        last_s = schedule.last_s(now_s)
        self.app.broker_link.ask(
            lambda client: client.set(self._key(name), _ms(last_s), px=KEEP_MS, nx=True)
        )
        found_s = self.last_s(name)
        return last_s if found_s is None else found_s

    def send(self, task: Task, schedule: Schedule, *, tick_s: float, now_s: float) -> None:
        """Send it unless this tick or a later one was sent. Raises LinkError.

        What has not begun when the next tick is due is not run: that one is.
        """
        expires = datetime.fromtimestamp(schedule.next_s(max(tick_s, now_s)), UTC)
        stamp = Stamp(self._key(task.name), _ms(tick_s), KEEP_MS)
        kwargs = dict(schedule.kwargs)
        send(self.app, task.name, schedule.args, kwargs, {"expires": expires}, stamp=stamp)

    def pause(self, name: str) -> None:
        """Have no worker send it. Raises LinkError, ConfigError."""
        self._check(name)
        self.app.broker_link.ask(lambda client: client.sadd(self._paused, name))

    def resume(self, name: str) -> None:
        """Have it sent again from its next tick on. Raises LinkError, ConfigError."""
        schedule = self._check(name)
        last_s = schedule.last_s(self.app.broker_clock.now_s())
        self.app.broker_link.ask(
            lambda client: client.set(self._key(name), _ms(last_s), px=KEEP_MS)
        )
        self.app.broker_link.ask(lambda client: client.srem(self._paused, name))

    def run(self, name: str) -> Any:
        """Send it now, besides its ticks; return its handle. Raises LinkError, ConfigError."""
        schedule = self._check(name)
        return self.app.send_task(name, schedule.args, dict(schedule.kwargs))

    def is_paused(self, name: str) -> bool:
        return bool(self.app.broker_link.ask(lambda client: client.sismember(self._paused, name)))

    def _check(self, name: str) -> Schedule:
        for task, schedule in self.tasks():
            if task.name == name:
                return schedule
        known = ", ".join(task.name for task, _ in self.tasks()) or "none"
        raise UnknownName(f"no schedule of task {name!r:.80}; there are: {known}")

    @property
    def _paused(self) -> str:
        return self._keys.paused(self.app.name)

    def _key(self, name: str) -> str:
        return self._keys.sender(f"schedule:{self.app.name}:{name}")


class Schedules(Extension):
    """The thread of one worker. Raises ConfigError for a broker that puts a tick twice."""

    observes_jobs = False

    def __init__(self, worker: Any) -> None:
        self._app: TaskApp = worker.app
        self._log = worker.log
        if not self._app.capabilities.keeps_stamps:
            raise ConfigError(
                f"app {self._app.name!r}: schedules need a Redis or Valkey broker, which sends "
                f"each tick once; transport {self._app.transport!r} does not"
            )
        self._timetable = Timetable(self._app)
        self._sent_s: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="schedules", daemon=True)

    def consuming(self) -> None:
        if not self._thread.is_alive() and not self._ended.is_set():
            self._thread.start()

    def stopping(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0 * self._app.timeout_s)

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
        for task, schedule in self._timetable.tasks():
            name = task.name
            if name not in self._sent_s:
                self._sent_s[name] = self._timetable.begin(name, schedule, now_s=now_s)
            tick_s = schedule.last_s(now_s)
            if tick_s > self._sent_s[name]:
                self._send(task, schedule, tick_s=tick_s, now_s=now_s)
                self._sent_s[name] = tick_s
            next_s = min(next_s, schedule.next_s(now_s))
        return max(0.0, next_s - now_s)

    def _send(self, task: Task, schedule: Schedule, *, tick_s: float, now_s: float) -> None:
        """Send a tick unless it is missed or paused. One that no message can hold is left out."""
        is_missed = schedule.missed == "skip" and now_s - tick_s > LATE_S
        if is_missed or self._timetable.is_paused(task.name):
            return
        try:
            self._timetable.send(task, schedule, tick_s=tick_s, now_s=now_s)
        except LinkError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._log.error("schedule not sent", task=task.name, reason=reason)


def _ms(at_s: float) -> int:
    return round(1e3 * at_s)
