"""What a camera costs a ship that flies: `python -m benchmarks.camera [--seconds N] [--turns N]`.

`twin` with the camera of `gtmab-eye`, its process looking for tags in each frame, and without it,
in turns, each holding its place in the air: overruns of the flight loop, processor time and memory
of the camera's process, with the drawing of the simulated frames.
The processor time of one small picture, and of one look at light and focus, of 640 x 480 pixels.

One JSON line; exit status 1 if there was more than one overrun more with the camera.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.estop import VEHICLE, running
from benchmarks.figures import print_figures, print_progress
from benchmarks.queue.usage import processor_s
from blimp import airframe as airframes
from blimp.ability import camera_of
from blimp.camera.frame import Frame
from blimp.camera.look import Look
from blimp.camera.picture import small_jpeg
from blimp.link.camera_control import camera_status
from blimp.link.telemetry import TelemetryReader
from tests.queue.conftest import wait_until

TIMES = 200


def picture_ms() -> dict[str, float]:
    """Return the medians, of rough squares and noise as a sensor has it."""
    chance = np.random.default_rng(1)
    squares = np.kron(chance.integers(40, 200, (24, 32, 3)), np.ones((20, 20, 1)))
    pixels = np.clip(squares + chance.normal(0.0, 3.0, squares.shape), 0, 255).astype(np.uint8)
    frame = Frame(sequence=1, t_s=0.0, exposure_s=0.01, gain=1.0, pixels=pixels)
    found = {}
    for name, call in (("jpeg_ms", small_jpeg), ("look_ms", Look().take)):
        taken = []
        for _ in range(TIMES):
            began_s = time.thread_time()
            call(frame)
            taken.append(1e3 * (time.thread_time() - began_s))
        found[name] = round(sorted(taken)[TIMES // 2], 2)
    return found


def fly(airframe: Path, seconds: float, *, has_camera: bool) -> dict[str, Any]:
    """Return what the flight loop and the camera's process did in so many seconds of hovering."""
    found: dict[str, Any] = {}
    with running("--airframe", str(airframe)) as ship:
        for words in (["arm"], ["takeoff", "2"]):
            subprocess.run(
                [sys.executable, "-m", "ground_station", "--yes", *words, "--vehicle", VEHICLE],
                env=os.environ | {"BLIMP_BROKER_URL": ship.broker}, stdout=subprocess.DEVNULL,
                check=True,
            )  # fmt: skip
        control = ship.paths.camera_control
        if has_camera:
            wait_until(lambda: camera_status(control).frames > 0, "the camera gives no frame")
            pid = _owner(control)
            before_s = processor_s([pid])
        with TelemetryReader(ship.broker, VEHICLE) as reader:
            (first, _), began_s = reader.latest() or _silent(), time.monotonic()
            time.sleep(seconds)
            (last, _), took_s = reader.latest() or _silent(), time.monotonic() - began_s
        found["cycles"] = last.loop.cycles - first.loop.cycles
        found["overruns"] = last.loop.overruns - first.loop.overruns
        if has_camera:
            status = camera_status(control)
            found["camera_percent"] = round(100.0 * (processor_s([pid]) - before_s) / took_s, 1)
            rss_kb = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]
            found["camera_mb"] = round(int(rss_kb) / 1024, 1)
            found["camera_hz"], found["problem"] = status.rate_hz, status.problem
    return found


def _owner(control: Path) -> int:
    """Return the process that answers there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.connect(str(control))
        peer = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(peer[:4], sys.byteorder)


def at(number: int) -> str:
    """Return the place of a tag in a grid of a metre."""
    return f"north_m = {number // 5 - 2}\neast_m = {number % 5 - 2}"


def _silent() -> Any:
    raise SystemExit("no snapshot of the ship")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--turns", type=int, default=1)
    options = parser.parse_args()
    blind, camera = airframes.load("twin"), camera_of(airframes.load("gtmab-eye"))
    assert camera is not None
    figures: dict[str, Any] = picture_ms()
    overruns = {"with": 0, "without": 0}
    with tempfile.TemporaryDirectory() as directory:
        room = Path(directory) / "room.toml"
        room.write_text("".join(f"[[tag]]\nid = {n}\nsize_m = 0.2\n{at(n)}\n" for n in range(25)))
        row = msgspec.structs.replace(
            camera, required=False, options=camera.options | {"tags": str(room)}
        )
        seeing = msgspec.structs.replace(blind, device=(*blind.device, row))
        files = {}
        for name, ship in (("with", seeing), ("without", blind)):
            files[name] = Path(directory) / f"{name}.json"
            files[name].write_bytes(msgspec.json.encode(ship))
        for turn in range(options.turns):
            for name in ("without", "with") if turn % 2 == 0 else ("with", "without"):
                found = fly(files[name], options.seconds, has_camera=name == "with")
                print_progress(f"{name} camera: {found}")
                overruns[name] += found["overruns"]
                figures |= {f"{name}_{key}": value for key, value in found.items()}
    figures |= {f"{name}_overruns": count for name, count in overruns.items()}
    print_figures("benchmarks.camera", figures)
    return int(overruns["with"] > overruns["without"] + 1)


if __name__ == "__main__":
    sys.exit(main())
