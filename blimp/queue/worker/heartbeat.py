"""One live worker per name, and the heartbeat that renews it.

The messages that a worker has not acknowledged belong to its name. So the name is a lease in
Redis. If its holder is known to be dead, because it ran on this machine and is gone, the lease is
taken over at once; otherwise when it expires. redis-py's Lock cannot do that: it has a random
token, and nothing that says who the holder was.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError, TaskError
from blimp.queue.redis.clock import READ_CLOCK, monotonic_words
from blimp.queue.redis.fleet import Member
from blimp.queue.redis.keys import fleet_key, worker_key
from blimp.queue.redis.scripts import Script

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.app import TaskApp
    from blimp.queue.retry import Outage

LEASE_MS = 5_000
CLOCK_KEEP_MS = 30 * 86_400_000  # of a name that is not used any more
AGAIN_S = 0.2

# KEYS: the lease; its clock (see redis/clock.py), with the holder and until when it is; the fleet.
# ARGV: ours, milliseconds, the dead holder's to be replaced ("" for none), our monotonic clock, ms
# to keep the clock, the worker.
# Returns 1 when it is ours, 2 if the fleet lacks the worker, otherwise the holder's. The key alone
# would lapse, or stay, when the server's clock steps.
# A full server allows it: or no worker could empty it.
_TAKE = Script(f"""#!lua flags=allow-oom
{READ_CLOCK}
local steady = read_clock(KEYS[2], ARGV[4], false).steady
local kept = redis.call('HMGET', KEYS[2], 'holder', 'until')
local held, until_us = redis.call('GET', KEYS[1]), tonumber(kept[2])
if until_us and steady < until_us then
  held = held or kept[1]
elseif until_us and held == kept[1] then
  held = false
end
redis.call('PEXPIRE', KEYS[2], ARGV[5])
if not held or held == ARGV[1] or held == ARGV[3] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  redis.call('HSET', KEYS[2], 'holder', ARGV[1], 'until',
    string.format('%.0f', steady + ARGV[2] * 1000))
  return 2 - redis.call('HEXISTS', KEYS[3], ARGV[6])
end
return held
""")
_LEAVE = Script("""
local held = redis.call('GET', KEYS[1]) or redis.call('HGET', KEYS[2], 'holder')
return held == ARGV[1] and redis.call('HDEL', KEYS[3], ARGV[2])
  + redis.call('DEL', KEYS[1], KEYS[2])
""")


class NameInUse(TaskError):
    """Another worker has the name. certain: it is known to run still."""

    def __init__(self, reason: str, *, certain: bool) -> None:
        super().__init__(reason)
        self.certain = certain


class NameLock:
    """The lease of worker `worker` of `app`. Methods raise LinkError without a broker.

    queues: returns what it consumes. That, and its tasks, are written for others when they change.
    """

    def __init__(
        self, *, app: TaskApp, worker: str, queues: Callable[[], Sequence[str]] = tuple
    ) -> None:
        self._app = app
        self._link = app.broker_link
        lease = worker_key(app.name, worker)
        self._keys = [lease, f"{lease}:clock", fleet_key(app.name)]
        self._worker = worker
        self._queues = queues
        self._announced: Member | None = None
        self._own = json.dumps({"token": uuid.uuid4().hex, **process_identity(os.getpid())})

    def take(self) -> None:
        """Take or renew the name. Raises NameInUse naming the worker that has it."""
        holder = self._take(replacing="")
        if holder is not None and _lives(holder) is False:
            holder = self._take(replacing=holder)
        if holder is not None:
            raise NameInUse(
                f"worker name {self._worker!r} is in use by {_describe(holder)}",
                certain=_lives(holder) is True,
            )

    def wait(self, *, clock: Clock, outage: Outage, stopping: threading.Event) -> None:
        """Take the name; wait for the broker, and for the lease of a dead namesake to expire.

        Raises NameInUse if a worker keeps it.
        """
        first_refused_s: float | None = None
        while not stopping.is_set():
            try:
                self.take()
                outage.over()
                return
            except LinkError as error:
                stopping.wait(outage.failed(error))
            except NameInUse as error:
                now_s = clock.now_s()
                first_refused_s = first_refused_s or now_s
                # A process that is being killed lives on for a moment.
                patience_s = 1.0 if error.certain else LEASE_MS / 1000.0 + 1.0
                if now_s - first_refused_s > patience_s:
                    raise
                stopping.wait(AGAIN_S)

    def leave(self) -> None:
        """Give the name up; without a broker, the lease expires by itself."""
        with contextlib.suppress(LinkError), self._link.link():
            _LEAVE.run(self._link.client, self._keys, [self._own, self._worker])

    def _take(self, *, replacing: str) -> str | None:
        with self._link.link():
            args = [self._own, LEASE_MS, replacing, monotonic_words(), CLOCK_KEEP_MS]
            answer = _TAKE.run(self._link.client, self._keys, [*args, self._worker])
        if answer in (1, 2):
            member = Member(tuple(self._queues()), self._app.versions())
            if answer == 2 or member != self._announced:
                self._app.fleet.announce(self._worker, member)
                self._announced = member
            return None
        if not isinstance(answer, bytes):
            raise LinkError(f"worker name {self._worker!r}: the broker answered {answer!r}")
        return answer.decode()


def process_identity(pid: int) -> dict[str, Any]:
    """Return what identifies a process, a boot and a machine; a reused pid differs."""
    return {
        "host": socket.gethostname(),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "pid": pid,
        "started": _start_time(pid),
    }


def _lives(holder: str) -> bool | None:
    """Return whether the holder still runs; None if that was on another machine."""
    try:
        was = json.loads(holder)
        now = process_identity(int(was["pid"]))
    except (ValueError, KeyError, TypeError):
        return None
    if was.get("host") != now["host"]:
        return None
    return bool(was.get("boot") == now["boot"] and was.get("started") == now["started"])


def _describe(holder: str) -> str:
    try:
        was = json.loads(holder)
        return f"process {was['pid']} on {was['host']}"
    except (ValueError, KeyError, TypeError):
        return f"{holder!r:.80}"


def _start_time(pid: int) -> str:
    """Return the start time of `pid` (proc(5), stat field 22), "" if there is none."""
    stat = _read(f"/proc/{pid}/stat")
    fields = stat.rpartition(")")[2].split()  # the name before may hold anything
    if not fields or fields[0] in ("Z", "X"):
        return ""
    return fields[19]


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


PERIOD_S = 1.0
QUIET_PERIOD_S = 1.5  # without link watchers; a name's lease is three times as long
WAKE_S = 0.05


class Heartbeat:
    """A thread of its own: the consumer may be waiting for an unreachable broker.

    period_s: between two beats.
    beat: asks the broker; raises LinkError if it does not answer, NameInUse.
    on_lost_name: called once, when another live worker has taken the name.
    stopping, wake: when the one is set, the other is called until the heartbeat is closed, so
        that a consumer blocked in the server sees it at once.
    """

    def __init__(
        self,
        *,
        beat: Callable[[], None],
        watchers: Iterable[Callable[[bool], None]],
        on_lost_name: Callable[[str], None],
        stopping: threading.Event,
        wake: Callable[[], None],
        log: Any,
        period_s: float = PERIOD_S,
    ) -> None:
        self._ask = beat
        self._watchers = tuple(watchers)
        self._on_lost_name = on_lost_name
        self._stopping = stopping
        self._wake = wake
        self._log = log
        self._period_s = period_s
        self._has_lost_name = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=PERIOD_S)

    def _serve(self) -> None:
        while not self._closed.is_set():
            alive = self._beat()
            for watcher in self._watchers:
                try:
                    watcher(alive)
                except Exception:
                    self._log.exception("link watcher")
            if self._stopping.wait(self._period_s):
                with contextlib.suppress(LinkError):
                    self._wake()
                self._closed.wait(WAKE_S)

    def _beat(self) -> bool:
        try:
            self._ask()
        except LinkError:
            return False
        except NameInUse as error:
            if not self._has_lost_name:  # it goes on while the worker stops
                self._has_lost_name = True
                self._on_lost_name(str(error))
        return True
