"""What the flight log costs and what it survives: `python -m benchmarks.flight_log`.

record: a stack in real time that hovers, with and without a recorder in turns: its processor time,
bytes an hour, overruns. cuts: a log cut at random bytes. replay: reading, as the page does.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from blimp.link.paths import RuntimePaths
from blimp.link.telemetry import TelemetryReader
from blimp.recording.recording import open_recording
from blimp.recording.recover import recover
from blimp.recording.ring import Ring
from blimp.recording.tape import Session, Tape
from blimp.service.stack.stack_process import StackProcess
from blimp.ship import Lockstep
from blimp.tasks.client import VehicleClient
from blimp.types import Setpoint, VehicleState

VEHICLE = "bench"
_TICKS = os.sysconf("SC_CLK_TCK")


def record(seconds: float) -> dict[str, Any]:
    """Hover for `seconds` without a recorder, then with one."""
    return {name: _hover(seconds, megabytes) for name, megabytes in (("off", 0), ("on", 1000))}


def _hover(seconds: float, megabytes: int) -> dict[str, Any]:
    with ExitStack() as exits:
        directory = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="blimp-bench-")))
        output = exits.enter_context(tempfile.TemporaryFile())
        logs = directory / "logs"
        os.environ |= {"BLIMP_LOG_DIR": str(logs), "BLIMP_LOG_MB": str(megabytes)}
        paths = RuntimePaths(directory / "run")
        arguments = ["--vehicle", VEHICLE, "--runtime-dir", str(paths.directory), "--wind", "0.2"]
        stack = StackProcess(arguments=arguments, paths=paths, vehicles=[VEHICLE], log=output)
        exits.callback(stack.end)
        ready = stack.wait_until_ready()
        with VehicleClient(ready["broker"], VEHICLE) as client:
            for name, values in (("arm", {}), ("takeoff", {"altitude_m": 2.0})):
                reply = client.send(name, values).wait(60.0)
                assert reply.state == "SUCCESS", reply
        recorder = _recorder(stack.pid)
        flight = ready["pids"]["flight"]
        with TelemetryReader(ready["broker"], VEHICLE) as telemetry:
            before, used = telemetry.latest(), {pid: _used(pid) for pid in (recorder, flight)}
            size = _size(logs)
            time.sleep(seconds)
            after = telemetry.latest()
        assert before is not None
        assert after is not None
        shares = {pid: (_used(pid) - used[pid]) / seconds for pid in used}
        return {
            "recorder_cpu_percent": round(100 * shares[recorder], 2) if recorder else None,
            "recorder_rss_mb": _memory_mb(recorder) if recorder else None,
            "flight_cpu_percent": round(100 * shares[flight], 2),
            "mb_an_hour": round((_size(logs) - size) / seconds * 3600 / 1e6, 1),
            "cycles": after[0].loop.cycles - before[0].loop.cycles,
            "overruns": after[0].loop.overruns - before[0].loop.overruns,
            "step_ms": after[0].loop.step_ms,
        }


def _recorder(up: int) -> int:
    for pid in Path(f"/proc/{up}/task/{up}/children").read_text().split():
        if b"\0log\0record\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return int(pid)
    return 0


def _used(pid: int) -> float:
    """Return the processor time of a process, s."""
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory_mb(pid: int) -> float:
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(resident * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.mcap"))


def cycle_cost() -> dict[str, float]:
    """What the tape adds to a cycle of the flight process, µs of processor time."""
    session = Session(
        vehicle="twin", boot_id="b", simulated=True, rate_hz=100.0, epoch_s=0.0,
        actuators=("left", "right", "tail", "tilt", "elevator", "rudder"), servos=(), airframe={},
    )  # fmt: skip

    class Loop:
        state = VehicleState(t_s=1.5, position_ned_m=(1.1, 2.2, -3.3))
        setpoint = Setpoint(position_ned_m=(1.0, 2.0, -3.0), yaw_rad=0.1)
        armed = True

    values = dict.fromkeys(session.actuators, 0.25)
    count = 100_000
    with tempfile.TemporaryDirectory() as directory, Ring(Path(directory) / "ring") as ring:
        tape, loop = Tape(session, write=ring.write), Loop()
        took_s = 0.0
        for _ in range(count // 1000):
            began_s = time.process_time()
            for number in range(1000):
                tape.cycle(loop, values, number=number, step_s=0.001)
            took_s += time.process_time() - began_s
            while ring.read() is not None:
                pass
            ring.release()
    return {"us_a_cycle": round(1e6 * took_s / count, 2)}


def fly(path: Path, seconds: float) -> None:
    """Record a flight in lockstep."""
    with Lockstep("twin", seed=1, wind_mps=0.3, log=path) as ship:
        ship.command("arm")
        ship.command("takeoff", altitude_m=3.0)
        ship.step(20.0)
        ship.command("goto", north_m=10.0, east_m=0.0, altitude_m=3.0)
        ship.step(seconds - 20.0)


def cuts(count: int) -> dict[str, Any]:
    """Cut a log of a minute at `count` random bytes; compare with what is whole by the format."""
    with tempfile.TemporaryDirectory() as directory:
        path, cut, out = (Path(directory) / name for name in ("whole.mcap", "cut", "out.mcap"))
        fly(path, 60.0)
        data = path.read_bytes()
        with open_recording(path) as log:
            ends = [chunk.offset + chunk.length for _, chunk in log.chunks]
        chance, wrong = random.Random(1), []
        for _ in range(count):
            at = chance.randrange(len(data))
            cut.write_bytes(data[:at])
            out.unlink(missing_ok=True)
            found = recover(cut, out).chunks
            if found != sum(end <= at for end in ends):
                wrong.append(at)
        return {"bytes": len(data), "chunks": len(ends), "cuts": count, "wrong": wrong}


def replay() -> dict[str, float]:
    """Read a log of two minutes, as the page does: every snapshot, event and command."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "flight.mcap"
        fly(path, 120.0)
        with open_recording(path) as log:
            began_s = time.process_time()
            shown = sum(1 for _ in log.snapshots())
            shown += sum(1 for _ in log.entries({"/command", "/outcome", "/event", "/fault"}))
            took_s = time.process_time() - began_s
            began_s = time.process_time()
            for second in range(0, 120, 3):
                log.at(float(second))
            seek_ms = 1e3 * (time.process_time() - began_s) / 40
            began_s = time.process_time()
            every = sum(1 for _ in log.entries())
            all_s = time.process_time() - began_s
        return {
            "flight_s": 120.0, "shown": shown, "times_real_time": round(120.0 / took_s),
            "messages": every, "times_real_time_of_all": round(120.0 / all_s),
            "seek_ms": round(seek_ms, 2),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flight_log", description=__doc__)
    parser.add_argument("what", nargs="*", default=["cycle", "cuts", "replay", "record"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--cuts", type=int, default=1000)
    options = parser.parse_args()
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "cycle": cycle_cost,
        "cuts": lambda: cuts(options.cuts),
        "replay": replay,
        "record": lambda: record(options.seconds),
    }
    for name in options.what:
        print(json.dumps({name: msgspec.to_builtins(runs[name]())}), flush=True)


if __name__ == "__main__":
    main()
