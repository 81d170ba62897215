"""Workers killed with SIGKILL under load: `python -m benchmarks.kill --kills N --tasks N`.

A real server, four workers, tasks of every kind, and a motor outside of all of them. Which
worker dies, after how many task bodies, and whether it comes back under its name or another
worker takes over, is drawn from the seed. One JSON object at the end.

recovery_s: from the kill to the first body of a task that the killed one had in hand, the
same name restarted at once. recovery_other_s: the same where no worker of that name comes
back. recovery_each_task_s: until each task in hand ran, both kinds of kill; one that is killed
again before that counts from each. lost, ran_twice, effects_twice: see tests/faults/tally.py.

Exit status: 1 where a task was lost, an effect was there twice or something was left.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from tests.faults.ground import Ground, WorkerUnderFire, proving_ground, until
from tests.faults.load import Sender, draw_orders
from tests.faults.motor import Heard, What
from tests.faults.server_side import Finals, ServerSide
from tests.faults.tally import Tally, count
from tests.faults.tasks import APP, make_app

WORKERS = 4
OPTIONS = "--sync-workers 16 --loop-concurrency 16 --prefetch 16"  # what is taken runs at once
AHEAD = 3  # tasks are sent this many kills ahead
SAME_NAME = 0.8  # share of the kills after which the same name comes back
QUIET_S = 20.0  # without a body or a result for so long, what is missing is lost


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One kill as it was done."""

    number: int
    victim: str
    at_s: float
    same_name: bool
    in_hand: frozenset[str]


class Campaign:
    """Kills by task count: the n-th when n shares of the tasks have begun."""

    def __init__(self, ground: Ground, *, kills: int, tasks: int, seed: int) -> None:
        self._ground = ground
        self._chance = random.Random(seed)
        self._planned = kills
        self._tasks = tasks
        self._share = max(1, tasks // (kills + 1))
        self._app = make_app(ground.url)
        self._sender = Sender(app=self._app, orders=draw_orders(tasks, seed=seed))
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
        self._sender.start()
        for number in range(self._planned):
            self._sender.allow((number + AHEAD) * self._share)
            self._kill_one((number + 1) * self._share)
        self._sender.join()
        self._until_quiet()
        for worker in self._workers.values():
            worker.end()
        return self._report(time.monotonic() - began_s)

    def close(self) -> None:
        self._finals.close()
        self._side.close()
        self._app.close()

    def _kill_one(self, bodies: int) -> None:
        place = self._chance.randrange(WORKERS)
        same_name = self._chance.random() < SAME_NAME
        fuse_s = self._chance.uniform(0.0, 0.05)
        victim = self._workers[place]
        self._until_all_ready()
        journal = self._ground.journal
        until(lambda: bool(journal.read()) and journal.bodies >= bodies, f"not {bodies} bodies")
        time.sleep(fuse_s)
        at_s = victim.kill()
        if same_name:
            victim.start()
        else:
            number = int(victim.name.partition("-")[2] or 0) + 1
            name = f"w{place}-{number}"
            self._workers[place] = self._ground.worker(name, options=OPTIONS)
            self._workers[place].start()
        in_hand = frozenset(self._side.held_by(f"{APP}.{victim.name}"))
        self._kills.append(
            Kill(
                number=len(self._kills),
                victim=victim.name,
                at_s=at_s,
                same_name=same_name,
                in_hand=in_hand,
            )
        )
        if len(self._kills) % 50 == 0:
            print(f"{len(self._kills)} kills", file=sys.stderr, flush=True)

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
        )
        again = recoveries(self._kills, heard)
        each = [s for _, seconds in again for s in seconds]
        strange = self._side.strange_keys()
        return {
            "kills": len(self._kills),
            "sent": tally.sent,
            "lost": len(tally.lost),
            "ran_twice": tally.ran_twice,
            "effects_twice": tally.effects_twice,
            "recovery_s": spread([min(s) for kill, s in again if kill.same_name]),
            "recovery_other_s": spread([min(s) for kill, s in again if not kill.same_name]),
            "recovery_each_task_s": spread(each),
            "left_in_broker": self._side.messages_left() + len(strange),
            "slowest": slowest(again, kills=self._kills, same_name=True),
            "slowest_other": slowest(again, kills=self._kills, same_name=False),
            "strange_keys": strange[:20],
            "lost_ids": tally.lost[:20],
            "asked_twice": tally.asked_twice,
            "kills_with_work_in_hand": sum(bool(kill.in_hand) for kill in self._kills),
            "in_hand_at_kill": round(
                sum(len(kill.in_hand) for kill in self._kills) / max(1, len(self._kills)), 1
            ),
            "states": tally.states,
            "took_s": round(took_s, 1),
            "workers": WORKERS,
            "server": self._server(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python "
            f"{platform.python_version()}",
        }

    def _server(self) -> str:
        info = self._side.client.info("server")
        name = info.get("server_name", "redis")
        return f"{name} {info.get(f'{name}_version', info.get('redis_version'))}"


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
            for id in kill.in_hand
            if (later := [s - kill.at_s for s in bodies.get(id, ()) if s > kill.at_s])
        ]
        if after:
            found.append((kill, after))
    return found


def slowest(
    again: Sequence[tuple[Kill, list[float]]], *, kills: Sequence[Kill], same_name: bool
) -> list[dict[str, Any]]:
    """Return the five kills of one sort that took longest.

    killed_again: the later kills whose victims had some of the same tasks in hand.
    """
    alike = [(min(seconds), kill) for kill, seconds in again if kill.same_name is same_name]
    return [
        {
            "kill": kill.number,
            "victim": kill.victim,
            "in_hand": sorted(kill.in_hand)[:3],
            "of": len(kill.in_hand),
            "after_s": round(after_s, 3),
            "killed_again": [
                one.number
                for one in kills
                if one.number > kill.number and one.in_hand & kill.in_hand
            ],
        }
        for after_s, kill in sorted(alike, key=lambda one: -one[0])[:5]
    ]


def spread(seconds: Sequence[float]) -> dict[str, float | int | None]:
    """Return the median, the 99th percentile and the longest, None where there is none."""
    ordered = sorted(seconds)
    if not ordered:
        return {"p50": None, "p99": None, "max": None, "n": 0}

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)

    return {"p50": at(0.5), "p99": at(0.99), "max": round(ordered[-1], 3), "n": len(ordered)}


def campaign(*, kills: int, tasks: int, seed: int) -> dict[str, Any]:
    """Run one campaign on a server of its own; return the report."""
    with proving_ground() as ground:
        campaign = Campaign(ground, kills=kills, tasks=tasks, seed=seed)
        try:
            return campaign.run() | {"seed": seed}
        finally:
            campaign.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kill", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--kills", type=int, default=50, help="default 50")
    parser.add_argument("--tasks", type=int, help="default: 60 for each kill")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--json", action="store_true", help="on one line")
    options = parser.parse_args()
    tasks = options.tasks or 60 * options.kills
    report = campaign(kills=options.kills, tasks=tasks, seed=options.seed)
    print(json.dumps(report, indent=None if options.json else 2))
    return int(bool(report["lost"] or report["effects_twice"] or report["left_in_broker"]))


if __name__ == "__main__":
    sys.exit(main())
