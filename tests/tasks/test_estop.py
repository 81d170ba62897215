"""The emergency stop: past queue and pool, confirmed by the ship, repeated until then."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from blimp.link.mailbox import MailboxClient
from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.signing import FRESH_S
from blimp.tasks.app import build_ship_app
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.tasks.ship import DONE, IN_PROGRESS, FlightSide, outcome
from tests.tcp_link import TcpLink

KEY = "k" * 16
START_S = 60.0  # for a process on a loaded machine


def test_an_emergency_stop_passes_busy_threads(ship: FlightSide, app: TaskApp, url: str) -> None:
    ship.answer = lambda command: outcome(command, DONE if command.name == "estop" else IN_PROGRESS)
    with (
        working(app, name="twin", sync_workers=1, prefetch=1, grace_s=0.1, log=Silence()),
        VehicleClient(url, "twin") as client,
    ):
        goto = client.send("goto", {"north_m": 1.0}, ttl_s=30.0)
        client.send("goto", {"north_m": 2.0}, ttl_s=30.0)
        wait_until(lambda: ship.named("goto"), "not handed over")
        reply = client.estop(timeout_s=DEADLINE_S)
        assert reply.state == "SUCCESS"
        assert reply.result == {"fraction": 0.0, "accepted_s": 12.5}
        command = ship.only("estop")
        assert (command.id, command.ttl_s) == (reply.id, None)
        assert goto.reply is None


def test_an_emergency_stop_the_ship_does_not_confirm_is_repeated_and_times_out(
    ship: FlightSide, ground: VehicleClient
) -> None:
    ship.answer = lambda command: None
    reply = ground.estop(timeout_s=3.0)
    assert reply.state == "TIMEOUT"
    assert len(ship.named("estop")) >= 2
    ship.answer = outcome
    assert ground.estop(timeout_s=DEADLINE_S).state == "SUCCESS"


def test_an_emergency_stop_with_an_endless_source_stops_the_ship(
    ground: VehicleClient,
    app: TaskApp,
    ship: FlightSide,
) -> None:
    handle = app.broadcast("estop", {"source": "y" * 100_000})
    handle.get(DEADLINE_S)
    assert len(ship.named("estop")) == 1


# --- recorded ------------------------------------------------------------------------------------


def test_a_task_that_stops_is_judged_by_its_age_if_it_is_signed(
    ship: FlightSide, mailbox: MailboxClient, url: str
) -> None:
    """It has no time to live, so that whatever program sends it is heard."""
    with (
        build_ship_app(vehicle="twin", broker=url, mailbox=mailbox, signing_key=KEY) as app,
        working(app, name="twin"),
    ):
        for id, age_s in (("old", FRESH_S + 5.0), ("undated", None), ("fresh", 5.0)):
            issued_ms = None
            if age_s is not None:
                issued_ms = int((app.broker_clock.now_s() - age_s) * 1000)
            message = TaskMessage(id=id, task="blimp.estop", queue=app.queue, issued_ms=issued_ms)
            app.publisher.publish(message)
        assert app.result("fresh").wait(DEADLINE_S).state == "SUCCESS"
        assert " s old: the limit is 30" in app.result("old").wait(DEADLINE_S).reason
        assert "does not say when" in app.result("undated").wait(DEADLINE_S).reason
        assert [command.id for command in ship.named("estop")] == ["fresh"]


def test_a_signed_stop_comes_over_a_slow_link(
    ship: FlightSide, mailbox: MailboxClient, server: redis.Redis, url: str
) -> None:
    """The worker asks for the broker's time before it listens: a round trip of 0.4 s."""
    path = str(server.connection_pool.connection_kwargs["path"])
    with TcpLink(server=path, delay_s=0.2) as radio:
        slow = f"redis://127.0.0.1:{radio.port}/0"
        with (
            build_ship_app(vehicle="twin", broker=slow, mailbox=mailbox, signing_key=KEY) as app,
            working(app, name="twin"),
            VehicleClient(url, "twin", signing_key=KEY) as client,
        ):
            assert client.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
            assert ship.named("estop")


@contextmanager
def relaying(url: str, directory: Path) -> Iterator[None]:
    """A process `blimp relay` that hears emergency stops, and is killed at the end."""
    key = directory / "signing.key"
    key.touch(mode=0o600)
    key.write_text(KEY)
    log = directory / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "blimp", "relay", "--broker", url, "--vehicle", "twin"),
                *("--signing-key-file", str(key), "--runtime-dir", str(directory)),
            ],
            stderr=stderr,
            env=os.environ | {"NO_COLOR": "1"},
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_a_recorded_emergency_stop_kills_no_ship_after_a_reboot(
    server: redis.Redis, url: str, directory: Path
) -> None:
    """Real processes. Without the signed time the ship stopped again at the first of them."""
    fanout = "blimp:fanout:blimp.twin.emergency"

    def stop(ground: VehicleClient) -> str:
        reply = ground.estop(timeout_s=START_S)  # it is repeated until the process listens
        assert reply.state == "SUCCESS", reply
        return reply.id

    with VehicleClient(url, "twin", signing_key=KEY) as ground:
        with FlightSide(directory / "flight.sock") as ship, relaying(url, directory):
            first = stop(ground)
            assert {command.id for command in ship.named("estop")} == {first}
        entries: Any = server.xrange(fanout)
        assert entries
        successor = FlightSide(directory / "flight.sock")  # it forgot what it had done
        with successor as ship, relaying(url, directory):
            second = stop(ground)
            for _, fields in entries:
                server.xadd(fanout, fields)
            third = stop(ground)
            stopped = [command.id for command in ship.named("estop")]
            assert (first not in stopped, set(stopped)) == (True, {second, third})
