"""What the page costs, and how fast its emergency stop is: `python -m benchmarks.page`.

A simulated ship on a full stack, `ground page` in a process of its own, and viewers in another.

- stop: from the press (a POST) until no motor is driven in the simulated world, each time with a
  motor that turns. Exit status 1 if p99 is above 0.15 s.
- viewers: three of them, as often as the ship publishes; the processor that the page takes, and the
  flight loop's overruns with and without it in turns, each turn in the other order than the last.
  Exit status 1 above a tenth of a processor.
- strangers: 20,000 connections without a token, in each way and on each address in turn, while the
  page may have 1,024 files; from the press until no motor is driven. Exit status 1 if p99 is above
  0.15 s, or if the page writes more than 20 kB to its standard error.
- readers: a thousand connections that ask for the socket and never read, opened again when the page
  drops them; emergency stops meanwhile. Exit status 1 if one is not confirmed.
- frames: the ship's picture in Chromium, which is asked for 30 a second: how many come, and how
  long each takes. Without a graphics card it is drawn in software, for which the page asks for 5 a
  second. Exit status 1 if a picture takes longer than a 30th of a second.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import sync_playwright
from websockets.sync.client import connect

from benchmarks.estop import VEHICLE, Ship, running
from benchmarks.figures import print_figures
from benchmarks.page_strangers import KINDS
from blimp.link.telemetry import TelemetryReader
from blimp.sim.remote import RemoteWorld
from tests.browser import CHROMIUM, OPTIONS

STOP_LIMIT_S = 0.15
FILES = 1024  # of a normal login
MOST_LOG_BYTES = 20_000
PLACES = ("audience", "operator")
SHARE_LIMIT = 0.10
SETTLE_S = 2.0
VIEWERS = 3
DRIVEN = 0.01
FRAMES_HZ = 30
# The picture is finished before its time is taken: a pixel is read back.
FRAMES = """async ([hz, seconds]) => {
  const scene = page.mounted.find((one) => one.renderer);
  const gl = scene.renderer.getContext();
  const draw = scene.draw.bind(scene);
  const [began, took] = [[], []];
  scene.drawEveryS = 1 / hz;
  scene.draw = (nowS) => {
    began.push(performance.now());
    draw(nowS);
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
    took.push(performance.now() - began.at(-1));
  };
  await new Promise((done) => setTimeout(done, 1000 * seconds));
  const { calls, triangles } = scene.renderer.info.render;
  const known = gl.getExtension("WEBGL_debug_renderer_info");
  const { width, height } = scene.canvas;
  const by = gl.getParameter(known.UNMASKED_RENDERER_WEBGL);
  return { began, took, calls, triangles, size: [width, height], by };
}"""
VIEW = """
import sys, threading
from websockets.sync.client import connect

seen = []

def look(url):
    with connect(url) as socket:
        for text in socket:
            if text.startswith('{"kind":"state"'):
                seen.append(None)

for url in sys.argv[1:]:
    threading.Thread(target=look, args=(url,), daemon=True).start()
for _ in sys.stdin:
    print(len(seen), flush=True)
"""

# Each connection asks for the socket in a small window and reads nothing, not even that.
READERS = """
import resource, select, socket, sys
host, port, token, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 64), hard))
asking = (
    f"GET /api/socket?token={token} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nUpgrade: websocket\\r\\n"
    "Connection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n\\r\\n"
).encode()
ended = select.POLLRDHUP | select.POLLHUP | select.POLLERR
poll, readers, opened = select.poll(), {}, 0
while True:
    while len(readers) < count:
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            one.settimeout(10.0)
            one.connect((host, port))
            one.sendall(asking)
        except OSError:
            one.close()
            break
        readers[one.fileno()] = one
        poll.register(one, ended)
        opened += 1
    print(len(readers), opened, flush=True)
    for number, _ in poll.poll(500):
        poll.unregister(number)
        readers.pop(number).close()
"""


class ServedPage:
    """A running `ground page`, with the files of a normal login."""

    def __init__(self, broker: str, *options: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = subprocess.Popen(
            [sys.executable, "-m", "ground_station", "--json", "--broker", broker,
             "--vehicle", VEHICLE, "page", "--port", "0", *options],
            stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        resource.prlimit(self._child.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        assert self._child.stdout is not None
        event = json.loads(self._child.stdout.readline())
        self.address, self.token = address_and_token(event["url"])
        if "read_only_url" in event:
            self.view_address, self.view_token = address_and_token(event["read_only_url"])
        self._headers = {"Authorization": f"Bearer {self.token}"}
        self._kept = threading.local()  # a connection, as a browser keeps some
        self._open = contextlib.ExitStack()
        self.road = self._open.enter_context(
            connect(f"ws://{self.address}/api/stop", additional_headers=self._headers)
        )

    def log_bytes(self) -> int:
        return os.fstat(self._log.fileno()).st_size

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        for attempt in range(5):
            link = getattr(self._kept, "link", None) or http.client.HTTPConnection(
                self.address, timeout=30.0
            )
            self._kept.link = None
            try:
                link.request("POST", f"/api/{path}", json.dumps(body).encode(), self._headers)
                found: dict[str, Any] = json.loads(link.getresponse().read())
            except (OSError, http.client.HTTPException):
                link.close()
                if attempt == 4:
                    raise
            else:
                self._kept.link = link
                return found
        raise AssertionError

    def memory_mb(self) -> float:
        with open(f"/proc/{self._child.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu_s(self) -> float:
        with open(f"/proc/{self._child.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._open.close()
        self._child.terminate()
        self._child.wait()
        self._log.close()


def address_and_token(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return f"127.0.0.1:{parts.port}", parse_qs(parts.query)["token"][0]


@contextlib.contextmanager
def served(broker: str, *options: str) -> Iterator[ServedPage]:
    with contextlib.closing(ServedPage(broker, *options)) as page:
        yield page


def measure_stops(*, times: int) -> dict[str, Any]:
    with running() as ship, served(ship.broker) as page, RemoteWorld(ship.paths.world) as world:
        found = press_to_stopped(page, world, is_over=lambda pressed: pressed == times)
    return {"simulated": True} | found


def measure_strangers(
    *, count: int, seconds: float, kinds: Sequence[str], places: Sequence[str]
) -> dict[str, Any]:
    """Press the stop while each kind of stranger is at each address; the worst of it counts."""
    rows: dict[str, Any] = {}
    with running() as ship, RemoteWorld(ship.paths.world) as world:
        for kind in kinds:
            for where in places:
                for addresses in (1, 200):
                    with (
                        served(ship.broker, "--read-only") as page,
                        strangers(
                            page.view_address if where == "audience" else page.address,
                            kind, count, addresses=addresses, token=page.view_token,
                        ) as counts,
                    ):  # fmt: skip
                        until_s = time.monotonic() + seconds

                        def is_over(_: int, until_s: float = until_s) -> bool:
                            return time.monotonic() > until_s

                        found = press_to_stopped(page, world, is_over=is_over)
                        found["log_bytes"] = page.log_bytes()
                        found["opened"] = counts[1]
                        found["ok"] = found["ok"] and found["log_bytes"] <= MOST_LOG_BYTES
                    rows[f"{kind} {where} {addresses}"] = found
                    print_figures(f"benchmarks.page {kind} {where} {addresses}", found)
    return {
        "ok": all(one["ok"] for one in rows.values()),
        "simulated": True,
        "times": sum(one["times"] for one in rows.values()),
        "press_to_stopped_p99_s": max(one["press_to_stopped_p99_s"] for one in rows.values()),
    }


def press_to_stopped(
    page: "ServedPage", world: RemoteWorld, *, is_over: Callable[[int], bool]
) -> dict[str, Any]:
    """Turn a motor and stop it, again and again. is_over: of how many presses."""
    taken_s: list[float] = []
    confirmed = 0
    motor = "left"
    while not is_over(len(taken_s)):
        done(page.post("command/arm", {}))
        done(page.post("command/mode", {"name": "MANUAL"}))
        turn = {"name": motor, "percent": 20, "seconds": 20}
        turning = threading.Thread(target=page.post, args=("command/motor", turn))
        turning.start()
        while abs(world.outputs()[motor]) < DRIVEN:
            time.sleep(0.002)
        stopped = StopPress(page)
        while abs(world.outputs()[motor]) >= DRIVEN:
            pass
        taken_s.append(time.monotonic() - stopped.began_s)
        confirmed += stopped.state() == "SUCCESS"
        turning.join()
    taken_s.sort()
    times = len(taken_s)
    p99_s = taken_s[min(times - 1, int(0.99 * times))]
    return {
        "ok": p99_s <= STOP_LIMIT_S and confirmed == times,
        "times": times,
        "confirmed": confirmed,
        "press_to_stopped_p50_s": round(taken_s[times // 2], 4),
        "press_to_stopped_p99_s": round(p99_s, 4),
        "press_to_stopped_max_s": round(taken_s[-1], 4),
    }


@contextlib.contextmanager
def strangers(
    address: str, kind: str, count: int, *, addresses: int, token: str
) -> Iterator[list[int]]:
    """Yield how many connections of strangers stand, and how many were opened."""
    host, _, port = address.partition(":")
    command = [sys.executable, "-m", "benchmarks.page_strangers", host, port, kind, str(count)]
    command += ["--addresses", str(addresses), f"--token={token}"]
    counts = [0, 0]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        lines = child.stdout

        def count_them() -> None:
            for line in lines:
                counts[:] = map(int, line.split())

        while counts[1] < min(count, FILES):
            counts[:] = map(int, lines.readline().split())
        counting = threading.Thread(target=count_them)
        counting.start()
        try:
            yield counts
        finally:
            child.terminate()
            counting.join()


class StopPress:
    """One press, on the road that the page keeps open; its answer is awaited beside the world."""

    def __init__(self, page: ServedPage) -> None:
        self._page = page
        self.began_s = time.monotonic()
        page.road.send(json.dumps({"id": 1, "vehicle": VEHICLE}))

    def state(self) -> str:
        return str(json.loads(self._page.road.recv(timeout=30.0))["outcome"]["state"])


def measure_viewers(*, seconds: float, rounds: int) -> dict[str, Any]:
    without: list[int] = []
    with_page: list[int] = []
    shares, updates = [], []
    with running() as ship:
        for number in range(rounds):
            for is_served in (False, True) if number % 2 else (True, False):
                if not is_served:
                    time.sleep(SETTLE_S)
                    before = overruns(ship)
                    time.sleep(seconds)
                    without.append(overruns(ship) - before)
                    continue
                with served(ship.broker) as page, viewers(page) as seen:
                    time.sleep(SETTLE_S)
                    before, cpu_s, began_s, count = (
                        overruns(ship),
                        page.cpu_s(),
                        time.monotonic(),
                        seen(),
                    )
                    time.sleep(seconds)
                    with_page.append(overruns(ship) - before)
                    took_s = time.monotonic() - began_s
                    updates.append((seen() - count) / took_s / VIEWERS)
                    shares.append((page.cpu_s() - cpu_s) / took_s)
    more = sum(a > b for a, b in zip(with_page, without, strict=True))
    fewer = sum(a < b for a, b in zip(with_page, without, strict=True))
    return {
        "ok": max(shares) <= SHARE_LIMIT,
        "simulated": True,
        "updates_hz": round(statistics.median(updates), 1),
        "viewers": VIEWERS,
        "seconds": seconds * rounds,
        "share_of_a_processor": round(statistics.median(shares), 4),
        "share_at_most": round(max(shares), 4),
        "overruns_without": without,
        "overruns_with": with_page,
        "overruns_without_sum": sum(without),
        "overruns_with_sum": sum(with_page),
        "rounds_with_more": more,
        "rounds_with_fewer": fewer,
    }


def measure_readers(*, readers: int, seconds: float) -> dict[str, Any]:
    taken_s, confirmed = [], 0
    with running() as ship, served(ship.broker) as page, slow_readers(page, readers) as counts:
        memory_mb, cpu_s, began_s = page.memory_mb(), page.cpu_s(), time.monotonic()
        while time.monotonic() - began_s < seconds:
            pressed_s = time.monotonic()
            confirmed += page.post("estop", {})["state"] == "SUCCESS"
            taken_s.append(time.monotonic() - pressed_s)
            time.sleep(0.5)
        lasted_s = time.monotonic() - began_s
        share = (page.cpu_s() - cpu_s) / lasted_s
        grown_mb = page.memory_mb() - memory_mb
    taken_s.sort()
    return {
        "ok": confirmed == len(taken_s),
        "simulated": True,
        "readers": counts[0],
        "connections": counts[1],
        "seconds": round(lasted_s, 1),
        "stops": len(taken_s),
        "confirmed": confirmed,
        "press_to_confirmed_p50_s": round(taken_s[len(taken_s) // 2], 4),
        "press_to_confirmed_max_s": round(taken_s[-1], 4),
        "share_of_a_processor": round(share, 4),
        "grown_mb": round(grown_mb, 1),
    }


def measure_frames(*, seconds: float) -> dict[str, Any]:
    with running() as ship, served(ship.broker) as page, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        window = browser.new_page(viewport={"width": 1920, "height": 1080})
        window.goto(f"http://{page.address}/?token={page.token}#present")
        window.wait_for_function("() => window.page?.mounted.find((one) => one.renderer)?.at")
        found = window.evaluate(FRAMES, [FRAMES_HZ, seconds])
        browser.close()
    took_ms, began_ms = sorted(found["took"]), found["began"]
    gaps_ms = sorted(b - a for a, b in itertools.pairwise(began_ms))
    return {
        "ok": took_ms[len(took_ms) // 2] <= 1e3 / FRAMES_HZ,
        "simulated": True,
        "drawn_by": found["by"],
        "picture_px": found["size"],
        "frames_hz": round(1e3 * len(gaps_ms) / sum(gaps_ms), 1),
        "between_frames_p50_ms": round(gaps_ms[len(gaps_ms) // 2], 1),
        "between_frames_p95_ms": round(gaps_ms[int(0.95 * len(gaps_ms))], 1),
        "frame_p50_ms": round(took_ms[len(took_ms) // 2], 1),
        "frame_p95_ms": round(took_ms[int(0.95 * len(took_ms))], 1),
        "draw_calls": found["calls"],
        "triangles": found["triangles"],
        "load": os.getloadavg()[0],
    }


@contextlib.contextmanager
def slow_readers(page: ServedPage, count: int) -> Iterator[list[int]]:
    """Yield how many connections stand, and how many were opened, as it is by then."""
    host, _, port = page.address.partition(":")
    counts = [0, 0]
    command = [sys.executable, "-c", READERS, host, port, page.token, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = child.stdout

        def count_them() -> None:
            for line in lines:
                counts[:] = map(int, line.split())

        while counts[0] < count:
            counts[:] = map(int, lines.readline().split())
        counting = threading.Thread(target=count_them)
        counting.start()
        try:
            yield counts
        finally:
            child.terminate()
            counting.join()


@contextlib.contextmanager
def viewers(page: ServedPage) -> Iterator[Callable[[], int]]:
    """Let viewers look; yield what returns how many states all of them have seen."""
    url = f"ws://{page.address}/api/socket?token={page.token}"
    command = [sys.executable, "-c", VIEW, *[url] * VIEWERS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        asking, answering = child.stdin, child.stdout

        def seen() -> int:
            asking.write("\n")
            asking.flush()
            return int(answering.readline())

        try:
            yield seen
        finally:
            child.terminate()


def overruns(ship: Ship) -> int:
    with TelemetryReader(ship.broker, VEHICLE) as reader:
        found = reader.latest()
    assert found is not None
    return found[0].loop.overruns


def done(answer: dict[str, Any]) -> None:
    if answer["state"] != "SUCCESS":
        raise SystemExit(f"{answer['task']}: {answer['state']} {answer['reason']}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", choices=("stop", "viewers", "strangers", "readers", "frames"), help="else all"
    )
    parser.add_argument("--times", type=int, default=200, help="emergency stops")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each look")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--readers", type=int, default=1000, help="connections that never read")
    parser.add_argument("--reading", type=float, default=60.0, help="seconds that they last")
    parser.add_argument("--strangers", type=int, default=20_000, help="connections of strangers")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of stranger; else all")
    parser.add_argument("--at", choices=PLACES, action="append", help="whose address; else both")
    parser.add_argument("--staying", type=float, default=5.0, help="seconds of each kind")
    options = parser.parse_args()
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "stop": lambda: measure_stops(times=options.times),
        "viewers": lambda: measure_viewers(seconds=options.seconds, rounds=options.rounds),
        "strangers": lambda: measure_strangers(
            count=options.strangers,
            seconds=options.staying,
            kinds=options.kind or list(KINDS),
            places=options.at or list(PLACES),
        ),
        "readers": lambda: measure_readers(readers=options.readers, seconds=options.reading),
        "frames": lambda: measure_frames(seconds=options.seconds),
    }
    is_ok = True
    for name in [options.only] if options.only else list(measures):
        found = measures[name]()
        print_figures("benchmarks.page", found)
        is_ok = is_ok and found["ok"]
    return int(not is_ok)


if __name__ == "__main__":
    sys.exit(main())
