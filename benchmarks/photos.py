"""Photographs over a bad link, with what is killed meanwhile: `python -m benchmarks.photos WHAT`.

Real processes: a Valkey, `blimp worker`, the camera's photographer on its control socket with a
source that draws noise, and `ground photo watch` behind a proxy that is the link. One JSON line.

- kills: `--photos` are taken, each under one command id that is sent again until it is
  acknowledged, while `--kills` times one of camera, worker, broker, ground and link is killed (-9),
  cut or frozen. Exit status 1 if a photograph that was acknowledged is missing, or there twice, or
  is not what the camera wrote, or one is left on the ship.
- link: `ping` through the queue over 1 Mbit/s, 200 ms there and back and 5 % loss (simulated by the
  proxy: what is lost comes after a retransmission timeout), idle and while `--megabytes` travel, in
  turns; exit status 1 if the slowest hundredth takes over 1.2 times as long. `--seconds` of each.
"""

import argparse
import contextlib
import hashlib
import io
import os
import random
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.figures import print_figures, print_progress, spread
from blimp.camera.frame import Frame
from blimp.clock import SystemClock
from blimp.errors import BlimpError
from blimp.link.camera_control import ControlServer
from blimp.link.paths import RuntimePaths
from blimp.processes import Child
from blimp.service.camera import photograph_answer
from blimp.tasks.client import VehicleClient
from ground_station.photos import PhotoFetcher, PhotoFiles
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.tcp_link import TcpLink

VEHICLE = "bench"
LIMIT = 1.2
ASKERS = 8  # commands at once: a thousand in two minutes, and a fifth of the link
LATE_S = 300.0  # for all photographs to arrive after the last kill
MBIT = 125_000.0


class Noise:
    """A camera whose stills are noise. kilobytes: of a JPEG, about."""

    def __init__(self, kilobytes: float) -> None:
        side = max(64, int((kilobytes * 1000.0 / 1.2) ** 0.5) // 2 * 2)
        self.size = (side, side)
        self._chance = np.random.default_rng()
        self._count = 0

    def still(self) -> Frame:
        self._count += 1
        pixels = self._chance.integers(0, 255, (*self.size, 3), dtype=np.uint8)
        now_s = time.monotonic()
        return Frame(sequence=self._count, t_s=now_s, exposure_s=0.01, gain=1.0, pixels=pixels)


def camera(runtime: Path, kilobytes: float) -> None:
    """Be the camera's process, as far as photographs go, until it is killed."""
    answers = {"photo": photograph_answer(Noise(kilobytes))}
    with ControlServer(RuntimePaths(runtime).camera_control, answers):
        print("ready", flush=True)
        signal.pause()


class Bench:
    """All processes of a ship and its ground, each to be killed and started again."""

    def __init__(self, directory: Path, *, link: dict[str, float], kilobytes: float) -> None:
        self.runtime = directory / "run"
        self.runtime.mkdir(mode=0o700)
        self.photos = directory / "photos" / VEHICLE
        self.state = directory / "state"
        self._environment = os.environ | {
            "BLIMP_PHOTO_DIR": str(self.photos.parent), "XDG_STATE_HOME": str(self.state),
            "XDG_RUNTIME_DIR": str(directory),
        }  # fmt: skip
        self.broker = EmbeddedBroker(directory=directory / "b")
        self.broker.start()
        self.link = TcpLink(server=str(directory / "b" / "broker.sock"), **link)  # type: ignore[arg-type]
        self.url = f"redis://127.0.0.1:{self.link.port}/0"
        self.files = PhotoFiles(self.state / "blimp" / "photos" / VEHICLE)
        python = [sys.executable, "-m"]
        self.commands = {
            "camera": [*python, "benchmarks.photos", "camera", str(self.runtime), f"{kilobytes}"],
            "worker": [
                *python, "blimp", "worker", "--vehicle", VEHICLE, "--broker", self.broker.url,
                "--runtime-dir", str(self.runtime),
            ],
            "ground": [
                *python, "ground_station", "--broker", self.url, "--vehicle", VEHICLE, "--json",
                "photo", "watch",
            ],
        }  # fmt: skip
        self.children: dict[str, Child] = {}

    def start(self, name: str) -> None:
        """Start a process, or start it again; from the main thread."""
        if name in self.children:
            self.children[name].close()
        with open(self.runtime.parent / f"{name}.log", "ab") as log:
            self.children[name] = Child(
                name=name, arguments=self.commands[name], environment=self._environment,
                stdout=log.fileno(), stderr=log,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        if name == "broker":
            os.kill(self.broker.pid, signal.SIGKILL)
            while self.broker.poll() is None:
                time.sleep(0.001)
            self.broker.start()
        else:
            os.kill(self.children[name].pid, signal.SIGKILL)
            self.start(name)

    def close(self) -> None:
        for child in self.children.values():
            child.close()
        self.broker.stop()


@contextlib.contextmanager
def bench(*processes: str, link: dict[str, float], kilobytes: float) -> Iterator[Bench]:
    with socket_directory() as directory:
        made = Bench(directory, link=link, kilobytes=kilobytes)
        try:
            with made.link:
                for name in processes:
                    made.start(name)
                yield made
        finally:
            made.close()


class Taker(threading.Thread):
    """Takes photographs, one after the other, each until it is acknowledged."""

    def __init__(self, url: str, count: int) -> None:
        super().__init__(daemon=True)
        self._url, self._count = url, count
        self.taken: dict[str, str] = {}  # the name of the photograph by the command's id
        self.again = 0

    def run(self) -> None:
        while len(self.taken) < self._count:
            id = str(uuid.uuid4())
            while id not in self.taken:
                with contextlib.suppress(BlimpError), VehicleClient(self._url, VEHICLE) as client:
                    with client.send("photo", id=id, ttl_s=20.0) as sent:
                        reply = sent.wait(8.0)
                    if reply.state == "SUCCESS":
                        self.taken[id] = reply.result["name"]
                    elif reply.state in ("REFUSED", "EXPIRED", "FAILURE"):
                        # That id has its end: a person would ask for another photograph.
                        id = str(uuid.uuid4())
                self.again += id not in self.taken


def kills(*, photos: int, count: int, seed: int) -> dict[str, Any]:
    """Kill `count` times while `photos` are taken and fetched; return what became of them."""
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    began_s = time.monotonic()
    slow = {"delay_s": 0.005, "bytes_per_s": 8 * MBIT}
    with bench("worker", "camera", "ground", link=slow, kilobytes=60.0) as all:
        taker = Taker(all.url, photos)
        taker.start()
        while done.total() < count:
            time.sleep(chance.uniform(0.5, 3.0))  # a Python process starts in one or two
            victim = chance.choice(("camera", "worker", "broker", "ground", "link", "link"))
            done[victim] += 1
            if victim == "link":
                chance.choice((all.link.cut, all.link.freeze))()
                time.sleep(chance.uniform(0.05, 1.0))
                all.link.mend()
            else:
                all.kill(victim)
            if done.total() % 20 == 0:
                here = len(all.files.photos())
                print_progress(f"{done.total()} kills, {len(taker.taken)} taken, {here} here")
        over_s = time.monotonic() + LATE_S
        while time.monotonic() < over_s:
            waits = list(all.photos.glob("*Z-????????????????.jpg"))
            if not taker.is_alive() and not waits:
                break
            time.sleep(0.2)
        figures = _judged(all, taker) | {"kills": dict(done), "photos": photos, "seed": seed}
    figures["took_s"] = round(time.monotonic() - began_s)
    bad = ("lost", "doubled", "broken", "left_on_ship", "not_taken")
    return figures | {"ok": not any(figures[name] for name in bad)}


def _judged(all: Bench, taker: Taker) -> dict[str, Any]:
    from PIL import Image

    here = {one.name: one for one in all.files.photos() if all.files.path(one.name)}
    ids = Counter(one.id for one in here.values())
    broken = 0
    for name, one in here.items():
        path = all.files.path(name)
        assert path is not None
        data = path.read_bytes()
        try:
            with Image.open(io.BytesIO(data)) as image:
                image.load()
                unique = msgspec.json.decode(image.getexif().get_ifd(0x8769)[0x9286][8:])
            is_right = unique["command"] == one.id
        except Exception:
            is_right = False
        broken += not is_right or hashlib.sha256(data).hexdigest() != one.sha256
    return {
        "acknowledged": len(taker.taken),
        "asked_again": taker.again,
        "lost": sum(name not in here for name in taker.taken.values()),
        "doubled": sum(number - 1 for number in ids.values()),
        "broken": broken,
        "left_on_ship": len(list(all.photos.glob("*Z-????????????????.jpg"))),
        "not_taken": taker.is_alive(),
    }


def link(*, seconds: float, megabytes: float, turns: int) -> dict[str, Any]:
    """Measure commands beside photographs; return the figures."""
    bad = {"delay_s": 0.1, "loss": 0.05, "bytes_per_s": MBIT}
    took: dict[str, list[float]] = {"idle": [], "sending": []}
    lost: Counter[str] = Counter()
    sent = [0]
    sizes: list[int] = []
    with bench("worker", "camera", link=bad, kilobytes=4000.0) as all:
        with VehicleClient(all.broker.url, VEHICLE) as near:
            for _ in range(max(1, round(megabytes / 4.0))):
                reply = near.send("photo", ttl_s=60.0).wait(60.0)
                assert reply.state == "SUCCESS", reply.reason
        for _ in range(turns):
            _measure(all.url, took["idle"], lost, seconds=seconds / turns)
            wanted = threading.Event()
            wanted.set()
            fetching = threading.Thread(target=_fetch, args=(all, wanted, sent, sizes), daemon=True)
            fetching.start()
            _measure(all.url, took["sending"], lost, seconds=seconds / turns)
            wanted.clear()
            fetching.join()
    idle, sending = spread(took["idle"]), spread(took["sending"])
    ratio = round(sending["p99_s"] / idle["p99_s"], 3)
    half_s = seconds
    return {
        "idle": idle, "sending": sending, "ratio_p99": ratio, "limit": LIMIT,
        "commands": {name: len(found) for name, found in took.items()}, "no_answer": dict(lost),
        "photo_bytes_per_s": round(sent[0] / half_s),
        "piece_bytes": sorted(sizes)[len(sizes) // 2] if sizes else 0,
        "ok": ratio <= LIMIT,
    }  # fmt: skip


def _measure(url: str, took: list[float], lost: Counter[str], *, seconds: float) -> None:
    """Send commands, as a person at the page does, by several connections that are there."""
    until_s = time.monotonic() + seconds

    def ask() -> None:
        with VehicleClient(url, VEHICLE, timeout_s=10.0) as client:
            client.send("photo_stop").wait(30.0)  # connects
            while time.monotonic() < until_s:
                began_s = time.monotonic()
                reply = client.send("photo_stop", ttl_s=30.0).wait(30.0)
                if reply.state == "SUCCESS":
                    took.append(time.monotonic() - began_s)
                else:
                    lost[reply.state] += 1

    askers = [threading.Thread(target=ask, daemon=True) for _ in range(ASKERS)]
    for one in askers:
        one.start()
    for one in askers:
        one.join()


def _fetch(all: Bench, wanted: threading.Event, sent: list[int], sizes: list[int]) -> None:
    with (
        VehicleClient(all.url, VEHICLE, timeout_s=10.0) as client,
        PhotoFetcher(client, all.files, clock=SystemClock(), is_wanted=wanted.is_set) as fetcher,
    ):
        last = [0]

        def on_bytes(count: int) -> None:
            if count > last[0]:
                sent[0] += count - last[0]
                sizes.append(count - last[0])
            last[0] = count

        while wanted.is_set():
            for one in reversed(fetcher.waiting()):
                part = all.files.directory / f"{one.name}.jpg.part"
                last[0] = part.stat().st_size if part.exists() else 0
                with contextlib.suppress(BlimpError):
                    fetcher.fetch(one, on_bytes=on_bytes)
                if not wanted.is_set():
                    break


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("kills", "link", "camera"))
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--photos", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--megabytes", type=float, default=100.0)
    options = parser.parse_args()
    if options.what == "camera":
        camera(Path(options.rest[0]), float(options.rest[1]))
        return 0
    if options.what == "kills":
        figures = kills(photos=options.photos, count=options.kills, seed=options.seed)
    else:
        figures = link(seconds=options.seconds, megabytes=options.megabytes, turns=options.turns)
    print_figures("benchmarks.photos", figures)
    return int(not figures["ok"])


if __name__ == "__main__":
    sys.exit(main())
