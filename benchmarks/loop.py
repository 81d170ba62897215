"""How punctual the flight loop is while the worker runs flat out: `python -m benchmarks.loop`.

Beside a full stack (simulated world, broker, worker, flight process at 100 Hz) an empty loop
at the same rate runs in a process of its own: the machine's floor in the same minute.
"""

import argparse
import json
import multiprocessing
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from blimp.control.timing import Timing
from blimp.link.paths import RuntimePaths
from blimp.link.telemetry import TelemetryReader
from blimp.service.show.observer import percentile
from blimp.service.stack.stack_process import StackProcess
from blimp.tasks.client import VehicleClient

RATE_HZ = 100.0
VEHICLE = "bench"


def empty_loop(seconds: float, result: Connection) -> None:
    timing = Timing(rate_hz=RATE_HZ)
    deadline_s = time.monotonic()
    end_s = deadline_s + seconds
    while deadline_s < end_s:
        time.sleep(max(0.0, deadline_s - time.monotonic()))
        woke_s = time.monotonic()
        late_s = woke_s - deadline_s
        timing.cycles += 1
        timing.add(wakeup_error_s=late_s, step_s=0.0, overrun=late_s > 1.0 / RATE_HZ)
        deadline_s = max(deadline_s + 1.0 / RATE_HZ, woke_s)
    result.send(msgspec.to_builtins(timing.status()))


def flood(broker: str, stop: threading.Event, latencies_ms: list[float]) -> None:
    """Keep the worker busy, one ping after the other, and time each to the mailbox."""
    with VehicleClient(broker, VEHICLE) as client:
        while not stop.is_set():
            sent_s = time.monotonic()
            reply = client.ping()
            if reply.state == "SUCCESS":
                latencies_ms.append(1000.0 * (reply.result["accepted_s"] - sent_s))


def measure(seconds: float, floods: int) -> dict[str, Any]:
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
            broker = stack.wait_until_ready()["broker"]
            receiver, sender = multiprocessing.Pipe(duplex=False)
            floor = multiprocessing.Process(target=empty_loop, args=(seconds, sender))
            stop, latencies_ms = threading.Event(), list[float]()
            pingers = [
                threading.Thread(target=flood, args=(broker, stop, latencies_ms))
                for _ in range(floods)
            ]
            for thread in pingers:
                thread.start()
            floor.start()
            empty = receiver.recv()
            floor.join()
            stop.set()
            for thread in pingers:
                thread.join()
            with TelemetryReader(broker, VEHICLE) as telemetry:
                latest = telemetry.latest()
        finally:
            stack.end()
    return {
        "flight": None if latest is None else msgspec.to_builtins(latest[0].loop),
        "empty": empty,
        "commands": len(latencies_ms),
        "command_to_mailbox_ms": {
            "p50": percentile(latencies_ms, 0.50),
            "p99": percentile(latencies_ms, 0.99),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loop", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--floods", type=int, default=2, help="threads that send commands")
    options = parser.parse_args()
    print(json.dumps(measure(options.seconds, options.floods), indent=2))


if __name__ == "__main__":
    main()
