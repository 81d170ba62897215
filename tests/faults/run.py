"""One workload with at most one kill, and where such runs take place."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_

import redis

from tests.faults.ground import Ground, proving_ground, until
from tests.faults.motor import Heard
from tests.faults.proxy import Command, Proxy
from tests.faults.server_side import Finals, ServerSide
from tests.faults.shot import Point, Shot
from tests.faults.tasks import APP, make_app
from tests.faults.workload import LEASE_S, Workload, describe
from tests.faults.zygote import Forked, Zygote

DONE_S = 15.0  # a run takes a second at most
ALONE = {"sync_workers": 1, "loop_concurrency": 1, "prefetch": 1}  # one after the other
CROWD = {"sync_workers": 4, "loop_concurrency": 4, "prefetch": 16}  # ends are written in batches
BASELINES = 3
TRIES = 4
# How many of these there are depends on the clock, or on how many connections are open at once:
# numbered last, in this order.
TIMED = ("take", "XREAD", "XREADGROUP", "renew", "CLIENT SETINFO")
NEVER = "never reached"


class Range:
    """Where the runs take place: one server, one proxy, one motor for all of them."""

    def __init__(self, ground: Ground, zygote: Zygote, *, options: dict[str, int]) -> None:
        self.ground = ground
        self.options = options
        self.door = ground.directory / "p"
        self.proxy = Proxy(path=self.door, upstream=ground.directory / "b" / "broker.sock")
        self.app = make_app(ground.url)
        self.side = ServerSide(ground.url, queue=APP)
        self._zygote = zygote
        self._finals: Finals | None = None
        self._count = 0
        self._workers: list[Forked] = []

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self.proxy.close()
        if self._finals is not None:
            self._finals.close()
        self.side.close()
        self.app.close()

    def number(self) -> list[Command]:
        """Return the commands that every run has in which nothing happens, in a fixed order."""
        self._new_run(None).play()  # the first one meets a server that knows no script
        counts: list[Counter[str]] = []
        for _ in range(BASELINES):
            complaints = self._new_run(None).play()
            if complaints:
                raise RuntimeError(f"without a fault: {complaints}")
            counts.append(Counter(command.kind for command in self.proxy.commands))
        least = reduce(and_, counts)  # the smallest of each
        kinds = sorted(set(least) - set(TIMED)) + [kind for kind in TIMED if kind in least]
        return [
            Command(kind=kind, ordinal=ordinal)
            for kind in kinds
            for ordinal in range(1, least[kind] + 1)
        ]

    def run(self, point: Point) -> list[str]:
        """Return what must not be and is; again where the point was not reached in time."""
        for _ in range(TRIES):
            complaints = self._new_run(point).play()
            if complaints[:1] != [NEVER]:
                break
        return complaints

    def _new_run(self, point: Point | None) -> Run:
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self.proxy.restart()
        self.side.client.flushall()
        if point is not None and point.target == "server" and self._finals is not None:
            self._finals.close()
            self._finals = None
        self._count += 1
        return Run(self, point, name=str(self._count))

    def finals(self) -> Counter[str]:
        """Return the count of what is published; its subscription is one server's life."""
        if self._finals is None:
            self._finals = Finals(self.ground.url)
        return self._finals.count

    def fork(self) -> Forked:
        worker = self._zygote.fork(
            broker=f"redis+socket://{self.door}?virtual_host=0",
            motor=self.ground.socket,
            name="w",
            log=self.ground.directory / "w.log",
            lease_s=LEASE_S,
            **self.options,
        )
        self._workers.append(worker)
        return worker

    @property
    def log(self) -> str:
        """What the workers of the last runs said."""
        text = (self.ground.directory / "w.log").read_text()
        return "\n".join(text.splitlines()[-40:])


class Run:
    """One workload with at most one kill."""

    def __init__(self, runs: Range, point: Point | None, *, name: str) -> None:
        self._runs = runs
        self._point = point
        self._server_dies = point is not None and point.target == "server"
        self._journal = runs.ground.journal
        self._journal.read()
        self._seen = len(self._journal.heard)
        self._work = Workload(app=runs.app, side=runs.side, run=name)
        self._finals = Counter[str]() if self._server_dies else runs.finals()
        self._worker: Forked | None = None
        self._shot: Shot | None = None

    def play(self) -> list[str]:
        """Return what must not be and is."""
        self._work.send()
        if self._point is not None:
            kill = self._kill_server if self._server_dies else self._kill_worker
            self._shot = Shot(command=self._point.command, side=self._point.side, kill=kill)
        self._runs.proxy.restart(self._shot)
        self._worker = self._runs.fork()
        complaints: list[str] = []
        try:
            until(self._work_to_the_end(), "not done", within_s=DONE_S)
        except TimeoutError as error:
            complaints.append(str(error))
        if self._shot is not None and not self._shot.fired.is_set():
            complaints.insert(0, NEVER)
        if not self._server_dies:
            with contextlib.suppress(TimeoutError):
                until(self._is_published, "no publications", within_s=2.0)
        # What was in hand at the kill, and the two that may have been let go to be ended.
        in_hand = self._runs.options["prefetch"] + 2
        may_run_twice = 0 if self._point is None else 1 if self._server_dies else in_hand
        complaints += self._work.complaints(self._heard(), self._finals, runs_twice=may_run_twice)
        return [*complaints, describe(self._heard())] if complaints else []

    def _work_to_the_end(self) -> Callable[[], bool]:
        """Return what says whether all is over; it starts again what was killed.

        Where nothing was killed by the time that the work is done the worker is stopped, for
        its end has boundaries too.
        """
        worker, recovered, stopping = self._worker, False, False
        assert worker is not None

        def is_over() -> bool:
            nonlocal recovered, stopping
            if not recovered and self._has_fired():
                self._recover()
                recovered = True
            done = self._is_done()
            if recovered:
                return done
            if done and not stopping:
                worker.send(signal.SIGTERM)
                stopping = True
            if stopping and worker.wait(0.0):
                self._runs.proxy.settle()  # it may be dying of the shot
                return not self._has_fired()
            return False

        return is_over

    def _has_fired(self) -> bool:
        return self._shot is not None and self._shot.fired.is_set()

    def _is_done(self) -> bool:
        try:
            return self._work.is_done(self._heard())
        except (redis.RedisError, OSError):
            return False  # the server is dead

    def _is_published(self) -> bool:
        return all(self._finals[id] for name, id in self._work.ids.items() if name != "silent")

    def _heard(self) -> Sequence[Heard]:
        self._journal.read()
        return self._journal.heard[self._seen :]

    def _recover(self) -> None:
        if self._server_dies:
            self._runs.ground.broker.start()
        else:
            self._runs.fork()

    def _kill_server(self) -> None:
        broker = self._runs.ground.broker
        os.kill(broker.pid, signal.SIGKILL)
        until(lambda: broker.poll() is not None, "the server outlived SIGKILL")

    def _kill_worker(self) -> None:
        until(lambda: self._worker is not None, "there is no worker")
        assert self._worker is not None
        self._worker.kill()


@contextlib.contextmanager
def range_of_runs(options: dict[str, int] = ALONE) -> Iterator[Range]:
    with proving_ground(appendfsync="always") as ground, Zygote() as zygote:
        runs = Range(ground, zygote, options=options)
        try:
            yield runs
        finally:
            runs.close()
