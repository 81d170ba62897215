"""`ground page` as a program: its addresses, its answers, and its end."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from urllib.parse import urljoin

import pytest

from tests.ground_station.page.client import WITHIN_S, token_of
from tests.ground_station.ship import FlyingShip
from tests.signals import signal_another_thread


def get(url: str, path: str) -> dict[str, object]:
    with urllib.request.urlopen(f"{urljoin(url, path)}?token={token_of(url)}") as answer:
        found: dict[str, object] = json.load(answer)
        return found


def test_it_prints_its_addresses_answers_and_ends_on_a_signal(twin: FlyingShip) -> None:
    command = [sys.executable, "-m", "ground_station", "--json", "--broker", twin.broker.url]
    command += ["--vehicle", twin.vehicle, "page", "--port", "0", "--read-only"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            event = json.loads(process.stdout.readline())
            assert event["event"] == "page"
            assert event["url"].startswith("http://127.0.0.1:")
            assert get(event["url"], "api/state")["vehicle"] == "twin"
            with pytest.raises(urllib.error.HTTPError, match="403") as refused:
                urllib.request.urlopen(
                    urljoin(event["read_only_url"], "api/estop")
                    + f"?token={token_of(event['read_only_url'])}",
                    data=b"{}",
                )
            refused.value.close()  # it has the answer's body
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0


def test_a_signal_that_another_thread_gets_ends_it(twin: FlyingShip) -> None:
    command = [sys.executable, "-m", "ground_station", "--json", "--broker", twin.broker.url]
    command += ["--vehicle", twin.vehicle, "page", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            signal_another_thread(process.pid, signal.SIGTERM)
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()


def test_an_address_that_cannot_be_listened_on_is_named(twin: FlyingShip) -> None:
    common = [sys.executable, "-m", "ground_station", "--broker", twin.broker.url]
    common += ["--vehicle", twin.vehicle]
    for words, reason in (
        (["page", "--host", "192.0.2.77"], "192.0.2.77"),
        (["page", "192.0.2.77"], "needs --host"),
        (["page", "--port", "70000"], "65535"),
    ):
        done = subprocess.run(
            [*common, *words], capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
        assert done.returncode == 2
        assert reason in done.stderr
