"""Photographs over a bad link, with what is killed meanwhile: `python -m benchmarks.photos WHAT`.

Real processes: a Valkey, `blimp worker`, `blimp camera` with the simulated picamera2 in the world
of a `blimp sim`, and `ground photo watch` behind a proxy that is the link. One JSON line.

- kills: `--photos` are taken, each under one command id that is sent again until it is
  acknowledged, while `--kills` times one of camera, worker, broker, ground and link is killed (-9),
  cut or frozen. The kills wait for photographs, and photographs for kills, so that as many travel
  before each tenth of the kills. Exit status 1 if a photograph that was acknowledged is missing, or
  there twice, or is not what the camera wrote, one is left on the ship, or none came for `STUCK_S`.
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
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.figures import exit_status, print_progress, spread
from blimp.clock import SystemClock
from blimp.errors import BlimpError
from blimp.link.paths import RuntimePaths
from blimp.processes import Child
from blimp.tasks.client import VehicleClient
from ground_station.photos import PhotoFetcher, PhotoFiles
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.tcp_link import TcpLink

VEHICLE = "bench"
LIMIT = 1.2
ASKERS = 8  # commands at once: a thousand in two minutes, and a fifth of the link
LATE_S = 300.0  # for all photographs to arrive after the last kill
TAKERS = 3
# A ground that is killed keeps its turn for 3 s on a fast link, in which nothing travels.
VICTIMS = {"camera": 5, "worker": 5, "broker": 5, "link": 10, "ground": 1}
AHEAD = 6  # photographs that are taken before their share of the kills
STUCK_S = 180.0  # a ship that is not killed sends one in three
MBIT = 125_000.0
FRAMES = "rate_hz = 10.0"  # of the airframe; drawing and searching them would fill a core


class Bench:
    """All processes of a ship and its ground, each to be killed and started again."""

    def __init__(self, directory: Path, *, link: dict[str, float]) -> None:
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
        airframe = str(directory / "eye.toml")
        text = (resources.files("blimp.airframes") / "gtmab-eye.toml").read_text("utf-8")
        assert FRAMES in text
        Path(airframe).write_text(text.replace(FRAMES, "rate_hz = 4.0"), "utf-8")
        python = [sys.executable, "-m"]
        there = ["--runtime-dir", str(self.runtime)]
        ship = ["--vehicle", VEHICLE, "--broker", self.broker.url]
        self.commands = {
            "world": [*python, "blimp", "sim", "--airframe", airframe, *there],
            "camera": [*python, "blimp", "camera", "--sim", "--airframe", airframe, *there, *ship],
            "worker": [*python, "blimp", "worker", *there, *ship],
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

    def here(self) -> int:
        """Return how many photographs are on the ground, whole."""
        return sum(self.files.path(one.name) is not None for one in self.files.photos())

    def close(self) -> None:
        for child in self.children.values():
            child.close()
        self.broker.stop()


@contextlib.contextmanager
def bench(*processes: str, link: dict[str, float]) -> Iterator[Bench]:
    with socket_directory() as directory:
        made = Bench(directory, link=link)
        try:
            with made.link:
                made.start("world")
                while not RuntimePaths(made.runtime).world.exists():
                    time.sleep(0.01)
                for name in processes:
                    made.start(name)
                yield made
        finally:
            made.close()


class Taker:
    """Takes photographs by several connections, each until it is acknowledged."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self.allowed = threading.Semaphore(AHEAD)
        self.taken: dict[str, str] = {}  # the name of the photograph by the command's id
        self.again = 0
        self._left = iter(range(count))
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(TAKERS)]
        for one in self._threads:
            one.start()

    def is_alive(self) -> bool:
        return any(one.is_alive() for one in self._threads)

    def _run(self) -> None:
        for _ in self._left:
            self.allowed.acquire()
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
                if id not in self.taken:
                    self.again += 1
                    time.sleep(0.5)


def kills(*, photos: int, count: int, seed: int) -> dict[str, Any]:
    """Kill `count` times while `photos` are taken and fetched; return what became of them."""
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    began_s = time.monotonic()
    slow = {"delay_s": 0.005, "bytes_per_s": 8 * MBIT}
    here, came_s, stuck = 0, began_s, 0
    with bench("camera", "worker", "ground", link=slow) as all:
        taker = Taker(all.url, photos)
        while done.total() < count:
            time.sleep(chance.uniform(0.5, 3.0))
            if (found := all.here()) > here:
                here, came_s = found, time.monotonic()
            if here < done.total() * photos / count - AHEAD:
                if time.monotonic() - came_s < STUCK_S:
                    continue  # they travel before this kill, not after the last one
                stuck, came_s = stuck + 1, time.monotonic()
            (victim,) = chance.choices(list(VICTIMS), list(VICTIMS.values()))
            done[victim] += 1
            if done.total() * photos // count > (done.total() - 1) * photos // count:
                taker.allowed.release()
            if victim == "link":
                chance.choice((all.link.cut, all.link.freeze))()
                time.sleep(chance.uniform(0.05, 1.0))
                all.link.mend()
            else:
                all.kill(victim)
            if done.total() % 20 == 0:
                print_progress(f"{done.total()} kills, {len(taker.taken)} taken, {here} here")
        before = all.here()
        over_s = time.monotonic() + LATE_S
        while time.monotonic() < over_s:
            waits = list(all.photos.glob("*Z-????????????????.jpg"))
            if not taker.is_alive() and not waits:
                break
            time.sleep(0.2)
        figures = _judged(all, taker) | {"kills": dict(done), "photos": photos, "seed": seed}
        figures |= {"here_before_last_kill": before, "stuck": stuck}
    figures["took_s"] = round(time.monotonic() - began_s)
    bad = ("lost", "doubled", "broken", "left_on_ship", "not_taken", "stuck")
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
    with bench("camera", "worker", link=bad) as all:
        with VehicleClient(all.broker.url, VEHICLE) as near:
            while megabytes > 0.0:
                reply = near.send("photo", ttl_s=60.0).wait(60.0)
                if reply.state == "SUCCESS":  # the first ones may be too early for the camera
                    megabytes -= 1e-6 * reply.result["bytes"]
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
        "photo_megabytes": round(1e-6 * sent[0], 1), "photo_bytes_per_s": round(sent[0] / half_s),
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
    parser.add_argument("what", choices=("kills", "link"))
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--photos", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--megabytes", type=float, default=100.0)
    options = parser.parse_args()
    if options.what == "kills":
        figures = kills(photos=options.photos, count=options.kills, seed=options.seed)
    else:
        figures = link(seconds=options.seconds, megabytes=options.megabytes, turns=options.turns)
    return exit_status("benchmarks.photos", figures)


if __name__ == "__main__":
    sys.exit(main())
