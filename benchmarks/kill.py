"""Workers killed with SIGKILL under load: `python -m benchmarks.kill --kills N --tasks N`.

A real server, four workers, tasks of every kind, and a motor and an actuator outside of all of
them. Which worker dies, after how many task bodies, and whether it comes back under its name or
another worker takes over, is drawn from the seed; so is where the kill is aimed:

- random: at any moment.
- before_effect, after_effect, before_ack: in the body of a task that moves the motor. The motor
  itself kills the worker: when it hears that the body begins, when it has moved and not answered
  yet, when it hears that the body ends.
- ship: the motor dies, after it has moved and before it answers; another one, without its memory
  and with another boot, takes its place. The worker lives on.

--aim chooses some of these. One JSON object at the end, the progress before it on stderr.

recovery_s: from the kill to the first body of a task that was in flight in the killed worker,
the same name restarted at once. recovery_other_s: the same if no worker of that name comes
back. recovery_each_task_s: until each task in flight ran, both kinds of kill; one that is killed
again before that counts from each. lost, ran_twice, effects_twice: see tests/faults/tally.py;
effects are counted by the actuator. inside_a_body: of the kills of each aim, those at which the
victim had begun a body and not ended it.

--memory: one worker lives through it all, every kill is random and the tasks are quick. growth is
the median of its memory in the last quarter by that in the second one; 1.0 is flat.

Exit status: 1 if a task was lost, an effect was there twice, something was left, an aim never hit,
or memory grew: the worker's by a tenth, the server's by 3 MB from before the first task until
all results were taken off.
"""

from __future__ import annotations

import os
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

import msgspec

from benchmarks.figures import make_parser, print_figures, spread
from blimp.queue.redis.keys import result_key
from tests.faults.ground import Ground, WorkerUnderFire, proving_ground
from tests.faults.load import MIX, QUICK_MIX, Sender, draw_orders
from tests.faults.motor import EFFECTS, Aim, Heard, MotorLink, What
from tests.faults.server_side import Finals, ServerSide
from tests.faults.tally import Tally, count
from tests.faults.tasks import APP, make_app
from tests.repeating import until

WORKERS = 4
MORE = 1  # tasks that are let through each 2 ms, until one is hit
AIM_S = 10.0  # for a body to come by; a kill that finds none falls at random
OPTIONS = "--sync-workers 16 --loop-concurrency 16 --prefetch 16"  # what is taken runs at once
AHEAD = 3  # tasks are sent this many kills ahead
AIMS = ("random", "before_effect", "after_effect", "before_ack", "ship")
MOVING = ("turn", "step")
SAME_NAME = 0.8  # share of the kills after which the same name comes back
QUIET_S = 20.0  # without a body or a result for so long, what is missing is lost
SAMPLE_S = 2.0  # between two looks at the memory
FLAT = 1.1
LEAK_MB = 3.0  # scripts and clients take one; 20 bytes a task would be 4


WORDS = {
    "before_effect": (What.BEGAN,),
    "after_effect": EFFECTS,
    "before_ack": (What.ENDED,),
    "ship": (What.TURN,),
}
NOWHERE = Aim(at=(), tasks=())


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One kill as it was done."""

    number: int
    victim: str
    at_s: float
    same_name: bool
    in_flight: frozenset[str]
    aim: str
    inside_a_body: bool


class Memory(Thread):
    """The resident memory of a process over time, in MB."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._status = Path(f"/proc/{pid}/status")
        self._over = Event()
        self._mb: list[float] = []

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            kilobytes = int(self._status.read_text().partition("VmRSS:")[2].split()[0])
            self._mb.append(round(kilobytes / 1024.0, 1))

    def report(self) -> dict[str, Any]:
        """End, and return what was seen. growth: 0 where there is too little to say."""
        self._over.set()
        self.join()
        quarter = len(self._mb) // 4
        second, last = self._mb[quarter : 2 * quarter], self._mb[-quarter:]
        growth = round(median(last) / median(second), 3) if quarter else 0.0
        return {"growth": growth, "mb": self._mb[:: max(1, len(self._mb) // 60)]}


class Campaign:
    """Kills by task count: the n-th when n shares of the tasks have begun."""

    def __init__(
        self, ground: Ground, *, kills: int, tasks: int, seed: int, aims: Sequence[str] = AIMS,
        memory: bool = False,
    ) -> None:  # fmt: skip
        self._ground = ground
        self._aims = aims
        self._looks_at_memory = memory
        self._motor = MotorLink(str(ground.socket))
        self._missed: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._planned = kills
        self._tasks = tasks
        self._share = max(1, tasks // (kills + 1))
        self._app = make_app(ground.url)
        orders = draw_orders(tasks, seed=seed, mix=QUICK_MIX if memory else MIX)
        self._sender = Sender(app=self._app, orders=orders)
        self._side = ServerSide(ground.url, queue=APP)
        self._finals = Finals(ground.url)
        self._workers: dict[int, WorkerUnderFire] = {}
        self._kills: list[Kill] = []

    def run(self) -> dict[str, Any]:
        began_s = time.monotonic()
        for place in range(WORKERS):
            self._workers[place] = self._ground.worker(f"w{place}", options=OPTIONS)
            self._workers[place].start()
        self._until_all_ready()
        memory, before_mb = Memory(self._workers[WORKERS - 1].pid), self._side.used_mb()
        if self._looks_at_memory:
            memory.start()
        self._sender.start()
        for number in range(self._planned):
            self._sender.allow((number + AHEAD) * self._share)
            self._kill_one((number + 1) * self._share)
        self._sender.join()
        self._until_quiet()
        took_s = time.monotonic() - began_s
        found = memory.report() if self._looks_at_memory else {}
        for worker in self._workers.values():
            worker.end()
        report = self._report(took_s)
        if self._looks_at_memory:
            grown_mb = self._data_mb() - before_mb
            report |= {"memory": found | {"server_grown_mb": round(grown_mb, 1)}}
        return report

    def _data_mb(self) -> float:
        """Take all results off the server; return the memory that it says it uses then."""
        for order in self._sender.sent:
            self._side.client.unlink(result_key(order.id), f"blimp-began-{order.id}-0")
        return self._side.used_mb()

    def close(self) -> None:
        self._finals.close()
        self._side.close()
        self._app.close()

    def _kill_one(self, bodies: int) -> None:
        place = self._chance.randrange(WORKERS - self._looks_at_memory)
        same_name = self._chance.random() < SAME_NAME
        fuse_s = self._chance.uniform(0.0, 0.05)
        aim = self._chance.choice(self._aims)
        victim = self._workers[place]
        self._until_all_ready()
        journal = self._ground.journal
        until(lambda: journal.read_bodies() >= bodies, f"not {bodies} bodies")
        time.sleep(fuse_s)
        hit = None if aim == "random" else self._aim(aim)
        if hit is None:
            pid, at_s = victim.pid, victim.kill()
        elif aim == "ship":
            self._kills.append(self._ship_killed(hit))
            return
        else:  # whichever worker came by
            pid, at_s = hit.pid, hit.at_s
            place, victim = next(
                (place, worker) for place, worker in self._workers.items() if worker.pid == pid
            )
            victim.reap()
        journal.read()
        if same_name:
            victim.start()
        else:
            number = int(victim.name.partition("-")[2] or 0) + 1
            name = f"w{place}-{number}"
            self._workers[place] = self._ground.worker(name, options=OPTIONS)
            self._workers[place].start()
        self._kills.append(
            Kill(
                number=len(self._kills),
                victim=victim.name,
                at_s=at_s,
                same_name=same_name,
                in_flight=frozenset(self._side.held_by(f"{APP}.{victim.name}")),
                aim=aim,
                inside_a_body=bool(open_bodies(journal.heard, pid)),
            )
        )
        if len(self._kills) % 50 == 0:
            print(f"{len(self._kills)} kills", file=sys.stderr, flush=True)

    def _aim(self, aim: str) -> Heard | None:
        """Have the motor kill at that point of the next body; return the word at which it did."""
        journal = self._ground.journal
        seen = len(journal.heard)
        self._motor.aim(Aim(at=WORDS[aim], tasks=MOVING, itself=aim == "ship"))

        def hit() -> Heard | None:
            self._sender.allow_more(MORE)  # what was let through may all have run by now
            journal.read()
            return next((one for one in journal.heard[seen:] if one.killed), None)

        try:
            return until(hit, f"no {aim} came by", within_s=AIM_S)
        except TimeoutError:
            self._motor.aim(NOWHERE)
            self._missed[aim] += 1
            return hit()  # in the meantime

    def _ship_killed(self, hit: Heard) -> Kill:
        until(lambda: not self._ground.motor_is_running(), "the motor outlived itself")
        self._ground.restart_motor()
        return Kill(
            number=len(self._kills),
            victim="ship",
            at_s=hit.at_s,
            same_name=True,
            in_flight=frozenset(),
            aim="ship",
            inside_a_body=True,
        )

    def _until_all_ready(self) -> None:
        until(lambda: all(one.is_ready() for one in self._workers.values()), "not all ready")

    def _until_quiet(self) -> None:
        """Wait until everything has ended, or nothing has happened for long."""
        wanted = {order.id for order in self._sender.sent}
        silent = {order.id for order in self._sender.sent if order.task == "silent"}
        moved_s = time.monotonic()
        while time.monotonic() < moved_s + QUIET_S:
            if self._ground.journal.read():
                moved_s = time.monotonic()
            ended = {one.id for one in self._ground.journal.heard if one.what is What.ENDED}
            final = self._finals.once_or_more() | (ended & silent)
            if final >= wanted and self._side.messages_left() == 0:
                return
            time.sleep(0.1)

    def _report(self, took_s: float) -> dict[str, Any]:
        self._ground.journal.read()
        heard = self._ground.journal.heard
        tally: Tally = count(
            self._sender.sent,
            heard=heard,
            records=self._side.records(order.id for order in self._sender.sent),
            finals=self._finals.count,
            moved=self._ground.effects(),
        )
        again = recoveries(self._kills, heard)
        each = [s for _, seconds in again for s in seconds]
        strange = self._side.strange_keys()
        return {
            "kills": len(self._kills),
            "sent": tally.sent,
            "lost": len(tally.lost),
            "ran_twice": tally.ran_twice,
            "effects": tally.effects,
            "effects_twice": tally.effects_twice,
            "effects_unseen": tally.effects_unseen,
            "kills_by_aim": {
                aim: {
                    "kills": sum(kill.aim == aim for kill in self._kills),
                    "inside_a_body": sum(
                        kill.aim == aim and kill.inside_a_body for kill in self._kills
                    ),
                    "missed": self._missed[aim],
                }
                for aim in self._aims
            },
            "recovery_s": spread([min(s) for kill, s in again if kill.same_name]),
            "recovery_other_s": spread([min(s) for kill, s in again if not kill.same_name]),
            "recovery_each_task_s": spread(each),
            "left_in_broker": self._side.messages_left() + len(strange),
            "strange_keys": strange[:20],
            "lost_ids": tally.lost[:20],
            "asked_twice": tally.asked_twice,
            "states": tally.states,
            "took_s": round(took_s, 1),
            "moved_twice": moved_twice(self._ground),
            "workers": WORKERS,
            "server": self._server(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python "
            f"{platform.python_version()}",
        }

    def _server(self) -> str:
        info = self._side.client.info("server")
        name = info.get("server_name", "redis")
        return f"{name} {info.get(f'{name}_version', info.get('redis_version'))}"


def open_bodies(heard: Sequence[Heard], pid: int) -> set[tuple[str, int]]:
    """Return the tries whose body process `pid` had begun and not ended, by what was heard.

    The word at which it was killed ends nothing: it got no answer.
    """
    began, ended = set(), set()
    for one in heard:
        if one.pid == pid and one.what is What.BEGAN:
            began.add((one.id, one.retries))
        elif one.pid == pid and one.what is What.ENDED and not one.killed:
            ended.add((one.id, one.retries))
    return began - ended


def moved_twice(ground: Ground) -> dict[str, Any]:
    """Return the story of each effect that is there twice."""
    ids = [id for id, times in ground.effects().items() if times > 1][:10]
    return {
        id: [msgspec.to_builtins(one) for one in ground.journal.heard if one.id == id] for id in ids
    }


def is_bad(report: Mapping[str, Any]) -> bool:
    """Say whether anything that must hold did not."""
    wrong = ("lost", "effects_twice", "effects_unseen", "left_in_broker")
    aims = report["kills_by_aim"].values()
    memory = report.get("memory", {"growth": 1.0, "server_grown_mb": 0.0})
    return (
        any(report[name] for name in wrong)
        or any(one["kills"] and one["missed"] >= one["kills"] for one in aims)
        or not 0.0 < memory["growth"] <= FLAT
        or memory["server_grown_mb"] > LEAK_MB
    )


def recoveries(kills: Sequence[Kill], heard: Sequence[Heard]) -> list[tuple[Kill, list[float]]]:
    """Return each kill with the seconds until each task of its victim ran, where one did.

    A victim may have held nothing, or only what had ended or may not run again.
    """
    bodies: dict[str, list[float]] = {}
    for one in heard:
        if one.what is What.BEGAN:
            bodies.setdefault(one.id, []).append(one.at_s)
    found = []
    for kill in kills:
        after = [
            min(later)
            for id in kill.in_flight
            if (later := [s - kill.at_s for s in bodies.get(id, ()) if s > kill.at_s])
        ]
        if after:
            found.append((kill, after))
    return found


def campaign(
    *, kills: int, tasks: int, seed: int, aims: Sequence[str] = AIMS, memory: bool = False
) -> dict[str, Any]:
    """Run one campaign on a server of its own; return the report."""
    with proving_ground() as ground:
        campaign = Campaign(ground, kills=kills, tasks=tasks, seed=seed, aims=aims, memory=memory)
        try:
            return campaign.run() | {"seed": seed}
        finally:
            campaign.close()


def main() -> int:
    parser = make_parser("benchmarks.kill", __doc__)
    parser.add_argument("--kills", type=int, default=50, help="default 50")
    parser.add_argument("--tasks", type=int, help="default: 60 for each kill")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--aim", choices=AIMS, action="append", help="may be repeated; all")
    parser.add_argument("--memory", action="store_true", help="of a worker that lives through it")
    parser.add_argument("--json", action="store_true", help="on one line")
    options = parser.parse_args()
    report = campaign(
        kills=options.kills,
        tasks=options.tasks or 60 * options.kills,
        seed=options.seed,
        aims=("random",) if options.memory else options.aim or AIMS,
        memory=options.memory,
    )
    print_figures("benchmarks.kill", report, one_line=options.json)
    return int(is_bad(report))


if __name__ == "__main__":
    sys.exit(main())
