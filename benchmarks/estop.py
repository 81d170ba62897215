"""How long until an emergency stop is confirmed, under load: `python -m benchmarks.estop`.

A simulated ship on a full stack; a client that sends an emergency stop again and again and waits
for its confirmation. One JSON line a load; exit status 1 if p99 is above 0.3 s in any:

- idle: nothing else.
- flooded: 10,000 messages wait in the ship's queue when its worker goes on, and more come.
- restarting: the worker is killed (SIGKILL) and restarted all the time.
- mailbox: another program keeps the flight process's mailbox socket full.
- emergencies: the same with the socket of the emergency stops.
"""

import argparse
import contextlib
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import print_figures
from blimp.config import signing_keys_from_environment
from blimp.link.paths import RuntimePaths, emergency_socket
from blimp.service.stack_process import StackProcess
from blimp.tasks.client import VehicleClient

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
        self.worker: int = ready["pids"]["worker"]
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
def running() -> Iterator[Ship]:
    with (
        tempfile.TemporaryDirectory(prefix="blimp-bench-") as directory,
        tempfile.TemporaryFile() as log,
    ):
        paths = RuntimePaths(Path(directory) / "run")
        stack = StackProcess(
            arguments=["--vehicle", VEHICLE, "--runtime-dir", str(paths.directory)],
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
    taken_s.sort()

    def at(share: float) -> float:
        return round(taken_s[min(times - 1, int(share * times))], 4)

    unconfirmed = sum(state != "SUCCESS" for state in states)
    return {
        "ok": unconfirmed == 0 and at(0.99) <= LIMIT_S,
        "load": name,
        "signed": bool(keys),
        "simulated": True,
        "times": times,
        "unconfirmed": unconfirmed,
        "p50_s": at(0.5),
        "p99_s": at(0.99),
        "max_s": round(taken_s[-1], 4),
    }


LOADS: dict[str, Callable[[Ship], None] | None] = {
    "idle": None,
    "flooded": Ship.flood,
    "restarting": Ship.restart_worker,
    "mailbox": Ship.fill_mailbox,
    "emergencies": Ship.fill_emergencies,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.estop",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--load", choices=[*LOADS, "all"], default="all")
    parser.add_argument("--signed", action="store_true", help="with a key on both sides")
    options = parser.parse_args()
    if options.signed:
        os.environ["BLIMP_SIGNING_KEY"] = secrets.token_hex(32)
    is_ok = True
    for name in LOADS if options.load == "all" else [options.load]:
        figures = measure(name, LOADS[name], times=options.times)
        print_figures("benchmarks.estop", figures)
        is_ok = is_ok and figures["ok"]
    return int(not is_ok)


if __name__ == "__main__":
    sys.exit(main())
