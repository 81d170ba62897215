"""What the page costs, and how fast its emergency stop is: `python -m benchmarks.page`.

A simulated ship on a full stack, `ground page` in a process of its own.

- stop: from the press (a POST) until no motor is driven in the simulated world, each time with a
  motor that turns. Exit status 1 if p99 is above 0.15 s.
- strangers: 20,000 connections without a token, in each way and on each address in turn, while the
  page may have 1,024 files; from the press until no motor is driven. Exit status 1 if p99 is above
  0.15 s, or if the page writes more than 20 kB to its standard error.
"""

import contextlib
import http.client
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.sync.client import connect

from benchmarks.estop import VEHICLE, running
from benchmarks.figures import exit_status, make_parser, print_figures, spread
from benchmarks.page_strangers import KINDS
from blimp.sim.remote import RemoteWorld

STOP_LIMIT_S = 0.15
FILES = 1024  # of a normal login
MOST_LOG_BYTES = 20_000
PLACES = ("audience", "operator")
DRIVEN = 0.01


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
    times, taken = len(taken_s), spread(taken_s)
    return {
        "ok": taken["p99_s"] <= STOP_LIMIT_S and confirmed == times,
        "times": times,
        "confirmed": confirmed,
        **{f"press_to_stopped_{name}": value for name, value in taken.items()},
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


def done(answer: dict[str, Any]) -> None:
    if answer["state"] != "SUCCESS":
        raise SystemExit(f"{answer['task']}: {answer['state']} {answer['reason']}")


def main() -> int:
    parser = make_parser("benchmarks.page", __doc__)
    parser.add_argument("--only", choices=("stop", "strangers"), help="else all")
    parser.add_argument("--times", type=int, default=200, help="emergency stops")
    parser.add_argument("--strangers", type=int, default=20_000, help="connections of strangers")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of stranger; else all")
    parser.add_argument("--at", choices=PLACES, action="append", help="whose address; else both")
    parser.add_argument("--staying", type=float, default=5.0, help="seconds of each kind")
    options = parser.parse_args()
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "stop": lambda: measure_stops(times=options.times),
        "strangers": lambda: measure_strangers(
            count=options.strangers,
            seconds=options.staying,
            kinds=options.kind or list(KINDS),
            places=options.at or list(PLACES),
        ),
    }
    names = [options.only] if options.only else list(measures)
    return max([exit_status("benchmarks.page", measures[name]()) for name in names])


if __name__ == "__main__":
    sys.exit(main())
