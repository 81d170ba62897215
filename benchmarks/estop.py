"""How long until an emergency stop is confirmed, under load: `python -m benchmarks.estop`.

A simulated ship on a full stack; a client that sends an emergency stop again and again and waits
for its confirmation. One JSON line a load; exit status 1 if p99 is above 0.3 s in any:

- idle: nothing else.
- flooded: 10,000 messages wait in the ship's queue when its worker goes on, and more come.
- restarting: the worker is killed (SIGKILL) and restarted all the time.
- mailbox: another program keeps the flight process's mailbox socket full.
- emergencies: the same with the socket of the emergency stops.

`--links` measures over slow links instead, simulated by a proxy beside the broker: the seconds from
the press until the ship had stopped, by a new `ground estop`, by a new client, and by one that is
connected; and in the same run what a bare PING takes on a new connection and on one that is there.
Exit status 1 if one took more round trips than the goal, or was not confirmed.

`--deaths` kills the broker instead, again and again. It comes back with what it had or empty, its
clock up to a day off, and somebody harms the stream of the stops. A stop is pressed as soon as it
answers. Exit status 1 if one is lost, if the broadcast does not arrive, or if p99 is above 1 s.
"""

import contextlib
import itertools
import json
import os
import random
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import exit_status, make_parser, print_progress, spread
from blimp.config import signing_keys_from_environment
from blimp.link.paths import RuntimePaths, emergency_socket
from blimp.service.stack.stack_process import StackProcess
from blimp.tasks.client import VehicleClient
from tests.faults.harm import HARMS, harm
from tests.faults.stepped import stepped_server
from tests.tcp_link import TcpLink

VEHICLE = "bench"
LIMIT_S = 0.3
FLOOD = 10_000
PAUSE_S = 0.05


class Ship:
    """A running stack; `background` runs a load until the measurement is over."""

    def __init__(self, stack: StackProcess, paths: RuntimePaths) -> None:
        self.paths = paths
        self.stack = stack
        ready = stack.wait_until_ready()
        self.broker: str = ready["broker"]
        self.pids: dict[str, int] = ready["pids"]
        self.worker = self.pids["worker"]
        self.begun = threading.Event()
        self.over = threading.Event()

    def flood(self) -> None:
        with VehicleClient(self.broker, VEHICLE) as client:
            os.kill(self.worker, signal.SIGSTOP)
            for _ in range(FLOOD):
                client.send("ping", ttl_s=300.0).close()
            os.kill(self.worker, signal.SIGCONT)
            self.begun.set()
            while not self.over.is_set():
                client.send("ping", ttl_s=300.0).close()

    def restart_worker(self) -> None:
        self.begun.set()
        while not self.over.is_set():
            events = len(self.stack.events)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.worker, signal.SIGKILL)
            while not self.over.wait(0.1):
                new = [e for e in self.stack.events[events:] if e.get("process") == "worker"]
                if new:
                    self.worker = new[0]["pid"]
                    self.over.wait(0.5)  # `up` gives up on nine deaths in ten seconds
                    break

    def fill_mailbox(self) -> None:
        self._fill(self.paths.flight, b'{"type":"hello","link":true}')

    def fill_emergencies(self) -> None:
        self._fill(emergency_socket(self.paths.flight), b"garbage")

    def _fill(self, path: Path, datagram: bytes) -> None:
        self.begun.set()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.settimeout(0.1)
            while not self.over.is_set():
                with contextlib.suppress(OSError):
                    stranger.sendto(datagram, str(path))


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Ship]:
    with (
        tempfile.TemporaryDirectory(prefix="blimp-bench-") as directory,
        tempfile.TemporaryFile() as log,
    ):
        paths = RuntimePaths(Path(directory) / "run")
        stack = StackProcess(
            arguments=["--vehicle", VEHICLE, "--runtime-dir", str(paths.directory), *arguments],
            paths=paths,
            vehicles=[VEHICLE],
            log=log,
        )
        try:
            yield Ship(stack, paths)
        finally:
            stack.end()


def measure(name: str, load: Callable[[Ship], None] | None, *, times: int) -> dict[str, Any]:
    keys = signing_keys_from_environment()
    with running() as ship, VehicleClient(ship.broker, VEHICLE, signing_key=keys) as client:
        client.estop()
        background = threading.Thread(target=load, args=(ship,)) if load else None
        if background is not None:
            background.start()
            ship.begun.wait()
        taken_s, states = [], []
        for _ in range(times):
            began_s = time.monotonic()
            states.append(client.estop(timeout_s=5.0).state)
            taken_s.append(time.monotonic() - began_s)
            time.sleep(PAUSE_S)
        ship.over.set()
        if background is not None:
            background.join()
    unconfirmed, taken = sum(state != "SUCCESS" for state in states), spread(taken_s)
    return {
        "ok": unconfirmed == 0 and taken["p99_s"] <= LIMIT_S,
        "load": name,
        "signed": bool(keys),
        "simulated": True,
        "times": times,
        "unconfirmed": unconfirmed,
        **taken,
    }


# --- slow links -------------------------------------------------------------------------------

ROUND_TRIPS_S = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
LOSS = 0.2
COLD_GOAL, WARM_GOAL = 2.5, 1.0  # in round trips
SLACK_S = 0.1  # of two shared cores: the ship's own reaction is 10 ms


def measure_link(ship: Ship, round_trip_s: float, *, loss: float, times: int) -> dict[str, Any]:
    path = ship.broker.removeprefix("redis+socket://").partition("?")[0]
    rows: dict[str, list[float]] = {
        name: [] for name in ("ping_cold", "ping", "cli", "cold", "warm")
    }
    interpreter_s = []
    unconfirmed = 0
    for seed in range(times):
        with TcpLink(
            server=path, delay_s=round_trip_s / 2, handshake=True, loss=loss, seed=seed
        ) as link:
            began_s = time.monotonic()
            with socket.create_connection(("127.0.0.1", link.port)) as plain:
                for name in ("ping_cold", "ping"):
                    plain.sendall(b"PING\r\n")
                    plain.recv(100)
                    now_s = time.monotonic()
                    rows[name].append(now_s - began_s)
                    began_s = now_s
            url = f"redis://127.0.0.1:{link.port}/0"
            ground = [str(Path(sys.executable).with_name("ground")), "--broker", url]
            began_s = time.monotonic()
            subprocess.run([*ground, "--help"], stdout=subprocess.DEVNULL, check=True)
            interpreter_s.append(time.monotonic() - began_s)
            began_s = time.monotonic()
            words = [*ground, "--vehicle", VEHICLE, "--json", "estop"]
            found = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=False).stdout)
            unconfirmed += found["state"] != "SUCCESS"
            if found["result"]:
                rows["cli"].append(found["result"]["accepted_s"] - began_s)
            with VehicleClient(url, VEHICLE) as client:
                for name in ("cold", "warm"):
                    began_s = time.monotonic()
                    reply = client.estop()
                    unconfirmed += reply.state != "SUCCESS"
                    if reply.result:
                        rows[name].append(reply.result["accepted_s"] - began_s)
    seconds = {name: round(statistics.median(taken), 3) for name, taken in rows.items()}
    start_s = statistics.median(interpreter_s)
    return {
        "round_trip_s": round_trip_s,
        "loss": loss,
        "times": times,
        "simulated": True,
        "seconds": seconds | {"interpreter": round(start_s, 3)},
        "unconfirmed": unconfirmed,
        "ok": unconfirmed == 0
        and (
            loss > 0.0
            or (
                seconds["cli"] - start_s <= COLD_GOAL * round_trip_s + SLACK_S
                and seconds["warm"] <= WARM_GOAL * round_trip_s + SLACK_S
            )
        ),
    }


def measure_links(*, times: int) -> int:
    with running() as ship:
        rows = (
            measure_link(ship, round_trip_s, loss=loss, times=times)
            for loss, round_trip_s in itertools.product((0.0, LOSS), ROUND_TRIPS_S)
        )
        return max([exit_status("benchmarks.estop", row) for row in rows])


# --- deaths of the broker ------------------------------------------------------------------------

STREAMS = (f"blimp:fanout:blimp.{VEHICLE}.emergency", f"blimp:queue:blimp.{VEHICLE}:level:0")
DAY_S = 86_400.0
BACK_S = 1.0
ALL_ROADS_S = 5.0


def measure_deaths(*, times: int, seed: int) -> int:
    chance = random.Random(seed)
    with stepped_server() as server:
        os.environ["BLIMP_BROKER_URL"] = server.url
        with running() as ship, VehicleClient(server.url, VEHICLE) as warm:
            assert warm.estop().state == "SUCCESS"
            taken_s, lost, deaf = [], 0, 0
            for number in range(times):
                offset_s = chance.uniform(-DAY_S, DAY_S)
                server.die(offset_s=offset_s, keeps_data=chance.random() < 0.5)
                answers_s = time.monotonic()
                what = chance.choice(HARMS)
                for stream in STREAMS[: chance.choice((1, 1, 2))]:
                    harm(server.client, what, stream, ahead_s=offset_s + chance.uniform(1.0, DAY_S))
                with contextlib.ExitStack() as ends:
                    fresh = VehicleClient(server.url, VEHICLE)
                    client = ends.enter_context(fresh) if number % 2 else warm
                    reply = client.estop(timeout_s=10.0, hear_all_s=0.0)
                    taken_s.append(time.monotonic() - answers_s)
                    lost += reply.state != "SUCCESS"
                    if reply.state != "SUCCESS" or "broadcast" not in reply.roads_ms:
                        again = client.estop(timeout_s=10.0, hear_all_s=ALL_ROADS_S)
                        deaf += "broadcast" not in again.roads_ms
                if number % 50 == 49:
                    print_progress(f"{number + 1} deaths: {lost} lost, {deaf} deaf")
        del os.environ["BLIMP_BROKER_URL"]
        assert ship is not None
    taken = spread(taken_s)
    is_ok = not lost and not deaf and taken["p99_s"] <= BACK_S
    figures = {
        "ok": is_ok, "deaths": times, "seed": seed, "lost": lost, "deaf": deaf, "simulated": True,
        **taken,
    }  # fmt: skip
    return exit_status("benchmarks.estop", figures)


LOADS: dict[str, Callable[[Ship], None] | None] = {
    "idle": None,
    "flooded": Ship.flood,
    "restarting": Ship.restart_worker,
    "mailbox": Ship.fill_mailbox,
    "emergencies": Ship.fill_emergencies,
}


def main() -> int:
    parser = make_parser("benchmarks.estop", __doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--load", choices=[*LOADS, "all"], default="all")
    parser.add_argument("--signed", action="store_true", help="with a key on both sides")
    parser.add_argument("--links", action="store_true", help="over slow links; times: 5 is enough")
    parser.add_argument(
        "--deaths", type=int, metavar="N", help="of the broker, with harmed streams"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.deaths:
        return measure_deaths(times=options.deaths, seed=options.seed)
    if options.links:
        return measure_links(times=options.times)
    if options.signed:
        os.environ["BLIMP_SIGNING_KEY"] = secrets.token_hex(32)
    names = list(LOADS) if options.load == "all" else [options.load]
    rows = (measure(name, LOADS[name], times=options.times) for name in names)
    return max([exit_status("benchmarks.estop", row) for row in rows])


if __name__ == "__main__":
    sys.exit(main())
