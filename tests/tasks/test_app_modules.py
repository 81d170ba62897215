"""How much of the queue a ship's worker loads: it has the memory of a small computer."""

import signal
import subprocess
import sys
from pathlib import Path

from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S
from tests.tasks.ship import FlightSide

MOST = 73
WORKER = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, sep="\\n"))
from blimp.__main__ import main
main()
"""
# What no ship uses.
NEVER = (
    "brokers.kombu_consumer", "canvas", "control.command", "events", "kombu_transport",
    "publish.publisher", "results.handle", "results.sql", "scheduler", "testing", "timetable",
)  # fmt: skip


def test_a_ships_worker_loads_what_it_uses(url: str, ship: FlightSide, directory: Path) -> None:
    options = ["worker", "--broker", url, "--runtime-dir", str(directory)]
    with (
        subprocess.Popen(
            [sys.executable, "-c", WORKER, *options], stdout=subprocess.PIPE, text=True
        ) as worker,
        VehicleClient(url, "twin") as ground,
    ):
        try:
            for name in ("arm", "land", "disarm"):
                reply = ground.send(name, ttl_s=DEADLINE_S).wait(DEADLINE_S)
                assert reply.state == "SUCCESS"
        finally:
            worker.send_signal(signal.SIGTERM)
        names, _ = worker.communicate(timeout=DEADLINE_S)
    loaded = sorted(name for name in names.split() if name.partition("blimp.queue")[1])
    rooms = [name.removeprefix("blimp.queue.") for name in loaded]
    assert "brokers.streams.consumer" in rooms
    assert [one for one in rooms if f"{one}.".startswith(tuple(f"{no}." for no in NEVER))] == []
    assert len(loaded) <= MOST, f"{len(loaded)} modules, the limit is {MOST}: {loaded}"
