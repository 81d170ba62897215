"""One workload with at most one kill, and where such runs take place."""

from __future__ import annotations

import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import reduce
from operator import and_
from pathlib import Path

import redis

from blimp.errors import LinkError
from blimp.queue.protocol.record import Record
from tests.faults import client
from tests.faults.ground import Ground, proving_ground
from tests.faults.motor import Heard
from tests.faults.proxy import Command, Proxy
from tests.faults.server_side import Finals, ServerSide
from tests.faults.shot import Point, Shot
from tests.faults.tasks import APP, make_app
from tests.faults.workload import LEASE_S, Workload, describe
from tests.faults.zygote import Forked, Zygote
from tests.repeating import until

DONE_S = 60.0  # a run takes a second at most
ALONE = {"sync_workers": 1, "loop_concurrency": 1, "prefetch": 1}  # one after the other
CROWD = {"sync_workers": 4, "loop_concurrency": 4, "prefetch": 16}  # ends are written in batches
BASELINES = 3
TRIES = 4
# How many of these there are depends on the clock, or on how many connections are open at once:
# numbered last, in this order.
TIMED = (
    "take",
    "look",
    "PUBLISH",
    "XREADGROUP",
    "renew",
    "CLIENT SETINFO",
    "CLIENT ID",
    "CLIENT UNBLOCK",
)
NEVER = "never reached"


class Runs:
    """Where the runs take place: one server, one proxy, one motor for all of them.

    disarmed: kinds of commands at which nothing is killed, to see that a campaign notices.
    """

    def __init__(
        self,
        ground: Ground,
        zygote: Zygote,
        *,
        options: dict[str, int],
        disarmed: Collection[str] = (),
    ) -> None:
        self.ground = ground
        self.options = options
        self.disarmed = disarmed
        self.door = ground.directory / "p"
        self.proxy = Proxy(path=self.door, upstream=ground.directory / "b" / "broker.sock")
        self.app = make_app(ground.url)
        self.side = ServerSide(ground.url, queue=APP)
        self._zygote = zygote
        self._finals: Finals | None = None
        self._count = 0
        self._forked: list[Forked] = []

    def close(self) -> None:
        for process in self._forked:
            process.close()
        self.proxy.close()
        if self._finals is not None:
            self._finals.close()
        self.side.close()
        self.app.close()

    def number(self, *, clients: bool = False) -> list[Command]:
        """Return the commands that every run without a fault has, in a fixed order.

        clients: those of a publishing client, else those of a worker.
        """
        self._play(None, clients=clients)  # the first one meets a server that knows no script
        counts: list[Counter[str]] = []
        for _ in range(BASELINES):
            complaints, _ = self._play(None, clients=clients)
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

    def run(self, point: Point, *, tries: int = TRIES) -> tuple[list[str], bool]:
        """Return what must not be and is, and whether the kill took place.

        A run in which the point is not reached is repeated.
        """
        for _ in range(tries):
            complaints, fired = self._play(point, clients=point.is_clients)
            if fired:
                break
        return complaints, fired

    def _play(self, point: Point | None, *, clients: bool) -> tuple[list[str], bool]:
        for process in self._forked:
            process.close()
        self._forked.clear()
        self.proxy.restart()
        self.side.empty()
        if point is not None and point.kills_server and self._finals is not None:
            self._finals.close()
            self._finals = None
        self._count += 1
        run = (ClientRun if clients else WorkerRun)(self, point, name=str(self._count))
        return run.play()

    def finals(self) -> Counter[str]:
        """Return the count of what is published; its subscription is one server's life."""
        if self._finals is None:
            self._finals = Finals(self.ground.url)
        return self._finals.count

    def fork_worker(self, *, through_proxy: bool) -> Forked:
        """Fork a worker whose connections go through the proxy, or past it."""
        return self._add(self._zygote.fork(
            broker=self.proxy_url if through_proxy else self.ground.url,
            motor=self.ground.socket,
            name="w",
            log=self._log,
            lease_s=LEASE_S,
            **self.options,
        ))  # fmt: skip

    def fork_client(self, run: str) -> Forked:
        """Fork a client that publishes through the proxy; see client.py."""
        return self._add(self._zygote.fork_client(
            broker=self.proxy_url,
            motor=self.ground.socket,
            run=run,
            log=self._log,
            confirmed=self.confirmed(run),
        ))  # fmt: skip

    def confirmed(self, run: str) -> Path:
        """Return the log of the calls that returned to the client of that run."""
        return self.ground.directory / f"confirmed.{run}"

    @property
    def proxy_url(self) -> str:
        return f"redis+socket://{self.door}?virtual_host=0"

    @property
    def log(self) -> str:
        """The last lines that the forked processes logged."""
        return "\n".join(self._log.read_text().splitlines()[-40:])

    @property
    def _log(self) -> Path:
        return self.ground.directory / "w.log"

    def _add(self, process: Forked) -> Forked:
        self._forked.append(process)
        return process


class Run(ABC):
    """One workload with at most one kill: of the server, or of the process under test."""

    def __init__(self, runs: Runs, point: Point | None, *, name: str) -> None:
        self._runs = runs
        self._name = name
        self._point = point
        self._server_dies = point is not None and point.kills_server
        self._journal = runs.ground.journal
        self._journal.read()
        self._seen = len(self._journal.heard)
        self._finals = Counter[str]() if self._server_dies else runs.finals()
        self._process: Forked | None = None
        self._shot: Shot | None = None

    def play(self) -> tuple[list[str], bool]:
        """Return what must not be and is, and whether the kill took place."""
        self._prepare()
        if self._point is not None:
            self._shot = Shot(
                command=self._point.command,
                side=self._point.side,
                kill=self._kill_server if self._server_dies else self._kill_process,
                disarmed=self._runs.disarmed,
            )
        self._runs.proxy.restart(self._shot)
        self._process = self._fork()
        complaints: list[str] = []
        try:
            until(self._work_to_the_end(), "not done", within_s=DONE_S)
        except TimeoutError as error:
            complaints.append(str(error))
        fired = self._has_fired()
        complaints += self._complaints()
        if complaints:
            complaints.append(describe(self._heard()))
        if self._shot is not None and not fired:
            complaints.insert(0, NEVER)
        return complaints, fired

    @abstractmethod
    def _prepare(self) -> None:
        """Have everything there before the process under test begins."""

    @abstractmethod
    def _fork(self) -> Forked:
        """Begin the process under test."""

    @abstractmethod
    def _work_to_the_end(self) -> Callable[[], bool]:
        """Return a function that says whether all is over, and recovers from the kill."""

    @abstractmethod
    def _complaints(self) -> list[str]:
        """Return what must not be and is."""

    def _has_fired(self) -> bool:
        return self._shot is not None and self._shot.fired.is_set()

    def _heard(self) -> Sequence[Heard]:
        self._journal.read()
        return self._journal.heard[self._seen :]

    def _kill_server(self) -> None:
        broker = self._runs.ground.broker
        os.kill(broker.pid, signal.SIGKILL)
        until(lambda: broker.poll() is not None, "the server outlived SIGKILL")

    def _kill_process(self) -> None:
        until(lambda: self._process is not None, "there is no process to kill")
        assert self._process is not None
        self._process.kill()


class WorkerRun(Run):
    """A worker through the proxy, on a queue that holds one of everything."""

    def __init__(self, runs: Runs, point: Point | None, *, name: str) -> None:
        super().__init__(runs, point, name=name)
        self._work = Workload(app=runs.app, side=runs.side, run=name)
        self._has_broadcast = False

    def _prepare(self) -> None:
        self._work.send()

    def _fork(self) -> Forked:
        return self._runs.fork_worker(through_proxy=True)

    def _complaints(self) -> list[str]:
        if not self._server_dies:
            with contextlib.suppress(TimeoutError):
                until(self._is_published, "no publications", within_s=2.0)
        # What was in flight at the kill, and the two that may have been released to be ended.
        in_flight = self._runs.options["prefetch"] + 2
        may_run_twice = 0 if self._point is None else 1 if self._server_dies else in_flight
        return self._work.complaints(self._heard(), self._finals, runs_twice=may_run_twice)

    def _work_to_the_end(self) -> Callable[[], bool]:
        """Return a function that says whether all is over, and recovers from the kill.

        If nothing was killed by the time that the work is done the worker is stopped, for
        its end has boundaries too.
        """
        worker, recovered, stopping = self._process, False, False
        assert worker is not None

        def is_over() -> bool:
            nonlocal recovered, stopping
            if not recovered and self._has_fired():
                self._recover()
                recovered = True
            self._broadcast_once()
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

    def _broadcast_once(self) -> None:
        """Give the listener for broadcasts something to read: its read has an answer then."""
        if not self._has_broadcast and self._heard():
            with contextlib.suppress(LinkError):
                self._runs.app.broadcast("nothing_to_do")
                self._has_broadcast = True

    def _is_done(self) -> bool:
        try:
            return self._work.is_done(self._heard())
        except (redis.RedisError, OSError):
            return False  # the server is dead

    def _is_published(self) -> bool:
        return all(self._finals[id] for name, id in self._work.ids.items() if name != "silent")

    def _recover(self) -> None:
        if self._server_dies:
            self._runs.ground.broker.start()
        else:
            self._fork()


class ClientRun(Run):
    """A client that publishes through the proxy, and a worker past it that lives on."""

    def _prepare(self) -> None:
        self._runs.fork_worker(through_proxy=False)

    def _fork(self) -> Forked:
        return self._runs.fork_client(self._name)

    def _work_to_the_end(self) -> Callable[[], bool]:
        process, recovered = self._process, False
        assert process is not None

        def is_over() -> bool:
            nonlocal recovered
            if self._server_dies and not recovered and self._has_fired():
                self._runs.ground.broker.start()
                recovered = True
            if not process.wait(0.0):
                return False
            self._runs.proxy.settle()
            try:
                return self._runs.side.messages_left() == 0 and client.is_done(
                    self._name, self._runs.confirmed(self._name), self._records()
                )
            except (redis.RedisError, OSError):
                return False  # the server is dead

        return is_over

    def _records(self) -> dict[str, Record]:
        names = {task for call in client.CALLS for task in call.tasks}
        return self._runs.side.records(f"{self._name}-{task}" for task in names)

    def _complaints(self) -> list[str]:
        confirmed = self._runs.confirmed(self._name)
        found = client.complaints(
            self._name,
            confirmed,
            heard=self._heard(),
            records=self._records(),
            finals=self._finals,
            is_late=self._server_dies,
        )
        if self._point is None and len(client.confirmed_calls(confirmed)) != len(client.CALLS):
            found.append("without a fault, a call was not confirmed")
        if left := self._runs.side.messages_left():
            found.append(f"{left} messages left: {self._runs.side.dead_ids()} dead")
        if strange := self._runs.side.strange_keys():
            found.append(f"keys left: {strange}")
        return found


@contextlib.contextmanager
def open_runs(options: dict[str, int] = ALONE, *, disarmed: Collection[str] = ()) -> Iterator[Runs]:
    with proving_ground(appendfsync="always") as ground, Zygote() as zygote:
        runs = Runs(ground, zygote, options=options, disarmed=disarmed)
        try:
            yield runs
        finally:
            runs.close()
