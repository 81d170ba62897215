"""What a server that is killed loses, counted: `python -m tests.faults.server_kills`.

Under load the server is killed and started again on its file, with each `appendfsync` in turn
(`always`, `everysec`, which this project's own server has, and `no`), and by each kind of end:

- kill: SIGKILL. What the server wrote is in the kernel's memory and survives.
- power: the power fails. What was not synchronised with the disk is gone. Nothing here can cut
  the power; instead the append-only file is cut to the length that it had when the server last
  said (WAITAOF) that everything written before was on the disk. With `no` nobody knows what is
  on the disk, and with `always` the file is never ahead of the disk: neither is tried.

A send counts as confirmed when the call returned. lost: confirmed sends that had not run at
the end and are not in the queue either. effects_twice: commands that moved the actuator twice;
not_final: confirmed sends that ran and whose result was lost.

By `kill` nothing may be lost and no effect be there twice: exit status 1 otherwise, and if less
was confirmed than there were ends. One exception: with `everysec` the server answers for up to two
seconds without writing while the disk is still busy with its last fsync (flushAppendOnlyFile in
its aof.c), so that sends of these two seconds may be lost. They, and what `power` costs, are
counted, and documented in docs/faults.md. One JSON line at the end, the progress before it on
stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import redis

from blimp.errors import LinkError
from blimp.queue.redis.client import open_redis
from tests.faults.ground import Ground, proving_ground
from tests.faults.motor import What
from tests.faults.server_side import ServerSide
from tests.faults.tasks import APP, make_app
from tests.repeating import until

POLICIES = ("always", "everysec", "no")
ENDS = ("kill", "power")
TRIED = (("always", "kill"), ("everysec", "kill"), ("everysec", "power"), ("no", "kill"))
SENDERS = 4
UP_S = (0.3, 1.2)  # how long a server works before its end
QUIET_S = 30.0
OPTIONS = "--sync-workers 8 --loop-concurrency 8 --prefetch 16"
TASKS = ("turn", "turn", "step", "noop")
POSTPONED_S = 2.5  # the server's two seconds, and the way of a confirmation to its sender


class Count(msgspec.Struct, frozen=True, kw_only=True):
    appendfsync: str
    end: str
    ends: int
    confirmed: int
    unconfirmed: int
    lost: int
    not_final: int
    effects: int
    effects_twice: int
    ran_twice: int
    twice_by_task: dict[str, int]
    sends_per_s: float
    lost_per_end_max: int
    longest_loss_s: (
        float  # to a server's end, from the oldest confirmation whose send or result went
    )
    took_s: float
    lost_ids: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no promise was broken: what was postponed may be gone, before or after it ran."""
        is_whole = not (self.lost or self.not_final or self.effects_twice)
        was_postponed = self.appendfsync == "everysec" and 0.0 < self.longest_loss_s <= POSTPONED_S
        return self.confirmed > self.ends and (is_whole or was_postponed or self.end == "power")


class Senders:
    """Threads that send until stopped. confirmed: when each call returned, by id."""

    def __init__(self, url: str, *, seed: int) -> None:
        self.confirmed: dict[str, float] = {}
        self.unconfirmed: set[str] = set()
        self._url = url
        self._seed = seed
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(number,), daemon=True)
            for number in range(SENDERS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _send(self, place: int) -> None:
        chance = random.Random(f"{self._seed} {place}")
        with make_app(self._url, timeout_s=5.0) as app:
            number = 0
            while not self._stopped.is_set():
                task = chance.choice(TASKS)
                id = f"{task}-{place}.{number}"
                number += 1
                try:
                    app.send_task(task, task_id=id)
                    self.confirmed[id] = time.monotonic()
                except LinkError:
                    self.unconfirmed.add(id)
                    self._stopped.wait(0.02)
                self._stopped.wait(0.001)


class Disk:
    """How much of the append-only file is on the disk for certain, by the server's word.

    It writes a key, waits until the server says that this write is synchronised, and takes
    the length that the file had before.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._stopped = threading.Event()
        self._safe: tuple[Path, int] | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Cut the file of a server that has ended to what is certain."""
        self._stopped.set()
        self._thread.join()
        if self._safe is None:
            raise RuntimeError("the server never said that anything is on the disk")
        path, length = self._safe
        if path != self._file():
            raise RuntimeError(f"{path} was rewritten meanwhile")
        os.truncate(path, length)

    def _file(self) -> Path:
        (path,) = (self._ground.directory / "b" / "appendonlydir").glob("*.incr.aof")
        return path

    def _watch(self) -> None:
        client: Any = open_redis(self._ground.url, timeout_s=10.0)
        with contextlib.suppress(redis.RedisError, OSError):
            while not self._stopped.is_set():
                # Its own write waits in the same buffer, behind all that is in the file now.
                path = self._file()
                length = path.stat().st_size
                client.set("blimp.worker.disk", "1")
                if client.execute_command("WAITAOF", 1, 0, 5000)[0]:
                    self._safe = (path, length)
        client.close()


class Campaign:
    def __init__(self, ground: Ground, *, appendfsync: str, end: str, ends: int, seed: int) -> None:
        self._ground = ground
        self._appendfsync = appendfsync
        self._end = end
        self._ends = ends
        self._chance = random.Random(seed)
        self._senders = Senders(ground.url, seed=seed)
        self._ended_s: list[float] = []

    def run(self) -> Count:
        began_s = time.monotonic()
        workers = [self._ground.worker(f"w{number}", options=OPTIONS) for number in range(2)]
        for worker in workers:
            worker.start()
        until(lambda: all(worker.is_ready() for worker in workers), "not all ready")
        self._senders.start()
        for number in range(self._ends):
            disk = Disk(self._ground) if self._end == "power" else None
            time.sleep(self._chance.uniform(*UP_S) + (1.5 if disk else 0.0))
            self._kill_server()
            if disk is not None:
                disk.cut()
            self._ground.broker.start()
            if (number + 1) % 10 == 0:
                print(f"{self._appendfsync} {self._end}: {number + 1}", file=sys.stderr, flush=True)
        time.sleep(0.5)
        self._senders.stop()
        return self._count(time.monotonic() - began_s)

    def _kill_server(self) -> None:
        broker = self._ground.broker
        os.kill(broker.pid, signal.SIGKILL)
        self._ended_s.append(time.monotonic())
        until(lambda: broker.poll() is not None, "the server outlived SIGKILL")

    def _count(self, took_s: float) -> Count:
        side, journal = ServerSide(self._ground.url, queue=APP), self._ground.journal
        try:
            moved_s = time.monotonic()
            while side.messages_left() and time.monotonic() < moved_s + QUIET_S:
                if journal.read():
                    moved_s = time.monotonic()
                time.sleep(0.05)
            journal.read()
            records = side.records(self._senders.confirmed)
        finally:
            side.close()
        ended = {one.id for one in journal.heard if one.what is What.ENDED}
        tries = [(one.id, one.retries) for one in journal.heard if one.what is What.BEGAN]
        effects = self._ground.effects()
        confirmed = self._senders.confirmed
        final = {id for id, record in records.items() if record.final}
        gone = {id: at_s for id, at_s in confirmed.items() if id not in final}
        # Each belongs to the first end after its confirmation.
        ends = {
            id: min((s for s in self._ended_s if s >= at_s), default=at_s)
            for id, at_s in gone.items()
        }
        lost = [id for id in gone if id not in ended]
        return Count(
            appendfsync=self._appendfsync,
            end=self._end,
            ends=len(self._ended_s),
            confirmed=len(confirmed),
            unconfirmed=len(self._senders.unconfirmed),
            lost=len(lost),
            not_final=len(gone) - len(lost),
            effects=sum(effects.values()),
            effects_twice=sum(times > 1 for times in effects.values()),
            twice_by_task=dict(
                Counter(id.partition("-")[0] for id, times in effects.items() if times > 1)
            ),
            ran_twice=len(tries) - len(set(tries)),
            sends_per_s=round(len(confirmed) / took_s, 1),
            lost_per_end_max=max(Counter(ends[id] for id in lost).values(), default=0),
            longest_loss_s=round(max((ends[id] - gone[id] for id in gone), default=0.0), 3),
            took_s=round(took_s, 1),
            lost_ids=tuple(sorted(lost)[:10]),
        )


def campaign(*, appendfsync: str, end: str, ends: int, seed: int) -> Count:
    """Run one campaign on a server of its own."""
    # A rewritten file would have no length to be cut to.
    options = {"appendfsync": appendfsync, "auto-aof-rewrite-percentage": "0"}
    with proving_ground(**options) as ground:
        return Campaign(ground, appendfsync=appendfsync, end=end, ends=ends, seed=seed).run()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.server_kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=50, help="of each kind; default 50")
    parser.add_argument("--appendfsync", choices=POLICIES, action="append", help="default: all")
    parser.add_argument("--end", choices=ENDS, action="append", help="default: both")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    options = parser.parse_args(arguments)
    counts = [
        campaign(appendfsync=appendfsync, end=end, ends=options.kills, seed=options.seed)
        for appendfsync, end in TRIED
        if appendfsync in (options.appendfsync or POLICIES) and end in (options.end or ENDS)
    ]
    print(json.dumps({
        "command": " ".join(["python -m tests.faults.server_kills", *sys.argv[1:]]),
        "ok": all(count.ok for count in counts),
        "counts": msgspec.to_builtins(counts),
    }))  # fmt: skip
    return int(not all(count.ok for count in counts))


if __name__ == "__main__":
    sys.exit(main())
