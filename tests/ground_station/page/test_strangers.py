"""A page in its own process, with few files, among strangers: the operator's stop works on."""

import contextlib
import json
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.ground_station.ship import FlyingShip
from tests.http_client import stopped, token_of
from tests.stopwatch import Stopwatch

FILES = 1024  # of a normal login's soft limit; here of the hard one, too
STRANGERS = 1500  # more than that
PRESSES = 12
SLOWEST_S = 1.0  # the benchmark has the true limit: this machine does other things meanwhile
MOST_LOG_BYTES = 8000
WITHIN_S = 10.0
ENDED_S = 60.0  # a page says after 10 s why it does not end


class Addresses:
    """A running `ground page`: its two addresses, and what it writes to its standard error."""

    def __init__(self, event: dict[str, str], log: IO[bytes]) -> None:
        self.url, self.view_url = event["url"], event["read_only_url"]
        self.token = token_of(self.url)
        self._log = log

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")


@pytest.fixture
def addresses(twin: FlyingShip) -> Iterator[Addresses]:
    command = [sys.executable, "-X", "faulthandler", "-m", "ground_station", "--json"]
    command += ["--broker", twin.broker.url, "--vehicle", twin.vehicle]
    command += ["page", "--port", "0", "--read-only"]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        try:
            assert process.stdout is not None
            yield Addresses(json.loads(process.stdout.readline()), log)
        finally:
            process.terminate()
            try:
                process.wait(ENDED_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # each thread's stack goes to the log
                process.wait()
                log.seek(0)
                pytest.fail(f"the page does not end: {log.read().decode(errors='replace')}")


def opened_road(addresses: Addresses) -> ClientConnection:
    """Open the socket for emergency stops."""
    url = f"ws://127.0.0.1:{urlsplit(addresses.url).port}/api/stop"
    return connect(url, additional_headers={"Authorization": f"Bearer {addresses.token}"})


@contextlib.contextmanager
def strangers(url: str, kind: str, *, addresses: int = 1, token: str = "") -> Iterator[None]:
    """Let strangers keep connections to `url`, from when they have opened enough."""
    parts = urlsplit(url)
    command = [sys.executable, "-m", "benchmarks.page_strangers", "127.0.0.1", str(parts.port)]
    command += [kind, str(STRANGERS), "--addresses", str(addresses), f"--token={token}"]
    command += ["--report-s", "0.05"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[3],
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        opened = 0
        while opened < FILES:
            opened = int(child.stdout.readline().split()[1])
        try:
            yield
        finally:
            child.terminate()


@pytest.mark.parametrize("is_operators", [False, True], ids=["audience", "operator"])
@pytest.mark.parametrize(
    "kind",
    [
        "head",
        "body",
        "handshake",
        "idle",
        "huge",
        "deaf",
        "garbage",
        "keep-alive",
        "request",
        "close",
        "reader",
        "command-body",
    ],
)
@pytest.mark.long
def test_strangers_keep_no_stop_from_the_operator(
    addresses: Addresses, twin: FlyingShip, kind: str, is_operators: bool
) -> None:
    url = addresses.url if is_operators else addresses.view_url
    with opened_road(addresses) as road:  # as the page has one
        for many in (1, 200):
            with strangers(url, kind, addresses=many, token=token_of(addresses.view_url)):
                for number in range(PRESSES):
                    watch = Stopwatch()
                    road.send(json.dumps({"id": number, "vehicle": twin.vehicle}))
                    answer = json.loads(road.recv(timeout=WITHIN_S))
                    assert (answer["id"], answer["outcome"]["state"]) == (number, "SUCCESS")
                    assert watch.undisturbed_s() < SLOWEST_S
                # A connection more, which waits behind those that strangers open on this port.
                assert stopped(
                    addresses.url, addresses.token, within_s=6.0 * WITHIN_S, vehicle=twin.vehicle
                )
                if not is_operators:
                    assert watch.undisturbed_s() < 2 * SLOWEST_S
    assert len(addresses.log()) < MOST_LOG_BYTES, addresses.log()[:2000]
