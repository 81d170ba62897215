"""`ground page` as a program: its addresses, its answers, and its end."""

import signal
import subprocess
import sys

from tests.forked import ran
from tests.ground_station.page.client import WITHIN_S
from tests.ground_station.ship import FlyingShip
from tests.signals import signal_another_thread


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
        done = ran([*common, *words], timeout=WITHIN_S)
        assert done.returncode == 2
        assert reason in done.stderr
