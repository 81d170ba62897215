"""What other clients cost, and how quick they are: `python -m benchmarks.clients [--seconds N]`.

One simulated ship on a full stack. In one run:

- `ground_station.Ship`: the processor's time of a program that streams velocities at 20 Hz, and how
  long a command takes beside `ping` of `ground`'s own client, in turns.
- `blimp mavlink`: its processor's time and memory with one station that asks for ArduPilot's usual
  stream rates, overruns of the flight process beside as long without it, and how long an emergency
  stop by it takes until it is confirmed.

One JSON line; exit status 1 if one is beyond its goal.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.estop import VEHICLE, running
from benchmarks.figures import print_figures, print_progress, spread
from benchmarks.queue.usage import processor_s
from blimp.tasks.client import VehicleClient
from ground_station.ship import Ship as ConnectedShip
from tests.ground_station.mavlink.test_gateway import Station

HZ = 20.0
GOALS = {
    "stream_percent": 3.0, "command_ratio": 1.2, "mavlink_percent": 5.0, "mavlink_mb": 60.0,
    "mavlink_stop_p99_ms": 100.0,
}  # fmt: skip
# Message id and rate in Hz: what Mission Planner asks of ArduPilot for its SR0 streams.
RATES = {30: 10, 33: 3, 32: 3, 74: 10, 1: 2, 24: 2, 147: 2, 242: 1, 230: 3, 245: 2}
STOPS = 100


def overruns(broker: str) -> int:
    async def look() -> int:
        async with ConnectedShip.connect(VEHICLE, broker=broker) as ship:
            return (await ship.state()).loop.overruns

    return asyncio.run(look())


def median_ms(call: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        began_s = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - began_s))
    return statistics.median(taken)


async def measure_api(broker: str, *, seconds: float) -> dict[str, float]:
    with VehicleClient(broker, VEHICLE) as client:
        async with ConnectedShip.connect(VEHICLE, broker=broker) as ship:
            pings, commands = [], []
            for _ in range(10):
                pings.append(median_ms(lambda: client.ping(timeout_s=5.0), 20))
                for _ in range(20):
                    began_s = time.perf_counter()
                    await ship.disarm()
                    commands.append(1e3 * (time.perf_counter() - began_s))
            await ship.arm()
            await ship.takeoff(1.5)
            before_s, began_s = processor_s([os.getpid()]), time.monotonic()
            async with ship.velocities() as fly:
                for step in range(int(seconds * HZ)):
                    await fly(0.05 if step % 80 < 40 else -0.05, 0.0, 0.0)
                    await asyncio.sleep(max(0.0, began_s + (step + 1) / HZ - time.monotonic()))
            streamed = (
                100.0 * (processor_s([os.getpid()]) - before_s) / (time.monotonic() - began_s)
            )
            await ship.land()
    ping_ms = statistics.median(pings)
    return {
        "stream_percent": round(streamed, 2),
        "ping_ms": round(ping_ms, 2),
        "command_ratio": round(statistics.median(commands) / ping_ms, 2),
    }


def measure_mavlink(broker: str, *, seconds: float) -> dict[str, float]:
    before = overruns(broker)
    time.sleep(seconds)
    without = overruns(broker) - before
    command = [sys.executable, "-m", "blimp", "mavlink", "--listen", "udp:127.0.0.1:0"]
    gateway = subprocess.Popen(
        [*command, "--broker", broker, "--vehicle", VEHICLE], stderr=subprocess.PIPE, text=True
    )
    try:
        assert gateway.stderr is not None
        port = int(gateway.stderr.readline().split()[-1])
        with closing(Station(port)) as station:
            station.get("HEARTBEAT")
            for message, hz in RATES.items():
                assert station.command(511, message, 1e6 / hz) == 0
            before, used_s, began_s = overruns(broker), processor_s([gateway.pid]), time.monotonic()
            while time.monotonic() < began_s + seconds:
                station.get("HEARTBEAT")
                station.beat()
            share = 100.0 * (processor_s([gateway.pid]) - used_s) / (time.monotonic() - began_s)
            beside = overruns(broker) - before
            status = Path(f"/proc/{gateway.pid}/status").read_text()
            rss_kb = int(status.partition("VmRSS:")[2].split()[0])
            stops = []
            for _ in range(STOPS):
                stop_s = time.perf_counter()
                assert station.command(185, 1) == 0
                stops.append(time.perf_counter() - stop_s)
    finally:
        gateway.kill()
        gateway.communicate()
    taken = spread(stops)
    return {
        "mavlink_percent": round(share, 2),
        "mavlink_mb": round(rss_kb / 1000, 1),
        "overruns_without": without,
        "overruns_beside": beside,
        "mavlink_stop_p50_ms": round(1e3 * taken["p50_s"], 1),
        "mavlink_stop_p99_ms": round(1e3 * taken["p99_s"], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    options = parser.parse_args()
    with running() as ship:
        print_progress("the Python API")
        found = asyncio.run(measure_api(ship.broker, seconds=options.seconds))
        print_progress("MAVLink")
        found |= measure_mavlink(ship.broker, seconds=options.seconds)
    beyond = [name for name, goal in GOALS.items() if found[name] > goal]
    print_figures("benchmarks.clients", {"simulated": True, **found, "beyond": beyond})
    return int(bool(beyond))


if __name__ == "__main__":
    sys.exit(main())
