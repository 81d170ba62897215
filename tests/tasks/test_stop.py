"""An emergency stop's roads: each alone stops the ship, and a slow link is asked nothing first."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from blimp.clock import SystemClock
from blimp.errors import LinkError, NotAuthorised
from blimp.link.mailbox import MailboxClient
from blimp.link.stop_socket import StopSocket
from blimp.queue import TaskApp
from blimp.queue.brokers.streams.envelope import unpack
from blimp.queue.protocol.message import EMERGENCY, TaskMessage
from blimp.queue.protocol.record import Record, State, encode, result_place
from blimp.queue.protocol.signing import FRESH_S, Signer
from blimp.queue.redis.keys import Keys
from blimp.queue.redis.urls import Brokers
from blimp.tasks.app import build_ship_app
from blimp.tasks.authority import STOP_ID
from blimp.tasks.broker_road import QUEUE, Stop
from blimp.tasks.client import VehicleClient
from blimp.tasks.stop import KEPT_S, StopSender
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.tasks.ship import FlightSide
from tests.tcp_link import TcpLink

KEY = "k" * 16
LAST_ID = "18446744073709551615-18446744073709551615"


def test_all_roads_confirm_one_stop_and_say_how_fast_they_were(
    ship: FlightSide, ground: VehicleClient
) -> None:
    reply = ground.estop(timeout_s=DEADLINE_S, hear_all_s=DEADLINE_S)
    assert reply.state == "SUCCESS"
    assert set(reply.roads_ms) == {"broadcast", "queue"}
    assert {command.id for command in ship.named("estop")} == {reply.id}


def test_a_stop_in_the_queue_is_first_and_ends_by_itself(app: TaskApp, url: str) -> None:
    """No worker is there to take it."""
    with VehicleClient(url, "twin") as ground:
        assert ground.estop(timeout_s=0.5).state == "TIMEOUT"
        entries: Any = app.broker_link.ask(
            lambda client: client.xrange(Keys().queue(app.queue).levels[0])
        )
    assert entries
    for _, fields in entries:
        found = unpack([part for pair in fields.items() for part in pair])
        assert found["headers"]["blimp_ttl_s"] == 10.0
        assert found["properties"]["priority"] == max(1, EMERGENCY)


def test_only_a_success_by_the_queue_confirms_a_stop() -> None:
    stop = Stop(id="s", clock=SystemClock())
    for state in (State.STARTED, State.FAILURE, State.EXPIRED, State.REFUSED):
        stop.confirmed(QUEUE, Record(id="s", name="estop", state=state))
    assert (stop.roads_ms, stop.next(timeout_s=0.0)) == ({}, None)
    stop.confirmed(QUEUE, Record(id="s", name="estop", state=State.SUCCESS))
    assert set(stop.roads_ms) == {QUEUE}


def test_only_a_genuine_result_confirms_a_stop() -> None:
    signer, stop = Signer(KEY), Stop(id="s", clock=SystemClock())
    with StopSender(
        brokers=Brokers("redis://127.0.0.1:1/0"), vehicle="twin", queue="blimp.twin",
        source="", signer=signer, clock=SystemClock(),
    ) as sender:  # fmt: skip
        done = encode(
            Record(id="s", name="estop", state=State.SUCCESS, result={}), limit_bytes=1000
        )
        for forged in (done, Signer("f" * 16).append_to(done, place=result_place("s")), b"{"):
            sender.read(stop, "broadcast", forged)
    assert (stop.roads_ms, stop.next(timeout_s=0.0)) == ({}, None)
    assert stop.forged == 3


def test_a_stop_by_the_queue_alone(ship: FlightSide, app: TaskApp, url: str) -> None:
    app.broadcasts.clear()
    with working(app, name="twin"), VehicleClient(url, "twin") as ground:
        reply = ground.estop(timeout_s=DEADLINE_S)
    assert (reply.state, set(reply.roads_ms)) == ("SUCCESS", {"queue"})
    assert {command.id for command in ship.named("estop")} == {reply.id}


def test_a_stop_by_the_broadcast_alone(
    ship: FlightSide, ground: VehicleClient, server: redis.Redis
) -> None:
    """The emergency stream of the queue takes no entry any more."""
    server.xadd("blimp:queue:blimp.twin:level:0", {"h": "x", "b": "y"}, id=LAST_ID)
    reply = ground.estop(timeout_s=DEADLINE_S)
    assert (reply.state, set(reply.roads_ms)) == ("SUCCESS", {"broadcast"})


def test_a_stop_by_the_socket_alone(ship: FlightSide, directory: Path) -> None:
    """The broker is gone, and so is the worker."""
    road = StopSocket(directory / "flight.sock", clock=SystemClock())
    with VehicleClient("redis://127.0.0.1:1/0", "twin", stop_road=road) as ground:
        reply = ground.estop(timeout_s=DEADLINE_S)
    assert (reply.state, set(reply.roads_ms)) == ("SUCCESS", {"socket"})
    assert reply.result["accepted_s"] == 12.5


def test_a_socket_that_cannot_be_used_keeps_no_other_road(
    ship: FlightSide, app: TaskApp, url: str
) -> None:
    class Full(StopSocket):
        def fire(self, **_: Any) -> None:
            raise OSError(24, "Too many open files")

    road = Full(Path("/nonexistent/flight.sock"), clock=SystemClock())
    with working(app, name="twin"), VehicleClient(url, "twin", stop_road=road) as ground:
        assert ground.estop(timeout_s=DEADLINE_S).state == "SUCCESS"


def test_a_user_who_may_not_stop_the_ship_hears_it_at_once(
    ground: VehicleClient, server: redis.Redis, url: str
) -> None:
    server.acl_setuser("viewer", enabled=True, nopass=True, categories=["+@all"], keys=["nothing"])
    try:
        with (
            VehicleClient(url.replace("://", "://viewer:x@"), "twin") as viewer,
            pytest.raises(NotAuthorised, match="NOPERM"),
        ):
            viewer.estop(timeout_s=DEADLINE_S)
    finally:
        server.acl_deluser("viewer")


def test_a_stop_without_any_road_is_an_error_that_names_the_broker(directory: Path) -> None:
    road = StopSocket(directory / "flight.sock", clock=SystemClock())
    with (
        VehicleClient("redis://127.0.0.1:1/0", "twin", stop_road=road) as ground,
        pytest.raises(LinkError, match=r"no broker at redis://127\.0\.0\.1:1/0"),
    ):
        ground.estop(timeout_s=0.5)


def test_a_stop_over_a_server_that_refuses_to_write(
    ship: FlightSide, ground: VehicleClient, server: redis.Redis
) -> None:
    """As one whose disk is full does: it stores neither the stop nor what confirms it."""
    server.config_set("min-replicas-to-write", 1)
    try:
        reply = ground.estop(timeout_s=DEADLINE_S)
        assert (reply.state, set(reply.roads_ms)) == ("SUCCESS", {"broadcast"})
    finally:
        server.config_set("min-replicas-to-write", 0)


@pytest.mark.parametrize("off_s", [-86_400.0, 86_400.0])
def test_a_signed_stop_of_a_ground_whose_clock_is_wrong(
    ship: FlightSide, mailbox: MailboxClient, url: str, off_s: float
) -> None:
    """It is first sent with a guess of the time, and again once the broker has said it."""

    class WrongClock(SystemClock):
        def wall_s(self) -> float:
            return time.time() + off_s

    with (
        build_ship_app(vehicle="twin", broker=url, mailbox=mailbox, signing_key=KEY) as app,
        working(app, name="twin"),
        VehicleClient(url, "twin", signing_key=KEY, clock=WrongClock()) as ground,
    ):
        reply = ground.estop(timeout_s=DEADLINE_S, hear_all_s=DEADLINE_S)
        assert (reply.state, set(reply.roads_ms)) == ("SUCCESS", {"broadcast", "queue"})
        assert {command.id for command in ship.named("estop")} == {reply.id}


def test_a_stop_that_waited_for_long_in_the_queue_stops_nothing(
    ship: FlightSide, app: TaskApp, url: str
) -> None:
    """The worker was down: the ship may have been armed since."""
    issued_ms = int((app.broker_clock.now_s() - KEPT_S - 1.0) * 1000)
    app.publisher.publish(
        TaskMessage(
            id="old.queue",
            task="blimp.estop",
            queue=app.queue,
            priority=EMERGENCY,
            issued_ms=issued_ms,
            ttl_s=KEPT_S,
            headers={STOP_ID: "old"},
        )
    )
    with working(app, name="twin"), VehicleClient(url, "twin") as ground:
        assert app.result("old.queue").wait(DEADLINE_S).state == "EXPIRED"
        reply = ground.estop(timeout_s=DEADLINE_S)
    assert {command.id for command in ship.named("estop")} == {reply.id}


def test_a_stop_that_was_given_up_is_not_sent_when_the_broker_is_back(
    ship: FlightSide, mailbox: MailboxClient, own_broker: EmbeddedBroker
) -> None:
    """The ship may have been armed since, and fly."""
    url = own_broker.url
    with (
        build_ship_app(vehicle="twin", broker=url, mailbox=mailbox) as app,
        working(app, name="twin"),
        VehicleClient(url, "twin") as ground,
    ):
        first = ground.estop(timeout_s=DEADLINE_S)
        own_broker.stop()
        with pytest.raises(LinkError):
            ground.estop(timeout_s=0.5)
        own_broker.start()
        second = ground.estop(timeout_s=DEADLINE_S)
        assert {command.id for command in ship.named("estop")} == {first.id, second.id}


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "signed"])
def test_a_stop_that_a_link_delivers_late_stops_nothing(
    ship: FlightSide, mailbox: MailboxClient, server: redis.Redis, url: str, key: str | None
) -> None:
    """TCP keeps what it has for minutes, and delivers it when the link is back."""
    with build_ship_app(vehicle="twin", broker=url, mailbox=mailbox, signing_key=key) as app:
        sender = StopSender(
            brokers=app.brokers, vehicle="twin", queue=app.queue, source="late",
            signer=app.signer, clock=SystemClock(),
        )  # fmt: skip
        late = Stop(id="late", clock=SystemClock())
        log = Silence()
        with working(app, name="twin", log=log), VehicleClient(url, "twin", signing_key=key) as now:
            assert now.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
            sent_s = app.broker_clock.now_s() - FRESH_S - 1.0
            for _, words in sender.broadcast(late, now_s=sent_s, database=0):
                server.execute_command(*words)
            wait_until(lambda: log.events("broadcast unreadable"), "it did not arrive")
            assert now.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
    assert "late" not in {command.id for command in ship.named("estop")}


# --- slow links ----------------------------------------------------------------------------------


@contextmanager
def silent_server() -> Iterator[tuple[str, list[bytes], threading.Event]]:
    """A server that answers nothing: its URL, and what it was sent."""
    received: list[bytes] = []
    stopped = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        channel, _ = listener.accept()
        with channel:
            channel.settimeout(DEADLINE_S)
            while data := channel.recv(65_536):
                received.append(data)
                if b"XADD" in b"".join(received):
                    stopped.set()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"redis://ground:secret@127.0.0.1:{listener.getsockname()[1]}/3", received, stopped
    finally:
        listener.close()


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "signed"])
def test_the_stop_goes_out_before_anything_is_answered(key: str | None) -> None:
    """With the greeting: one and a half round trips after the press, whatever the link."""
    with silent_server() as (url, received, stopped):
        ground = VehicleClient(url, "twin", signing_key=key)
        press = threading.Thread(target=_press, args=(ground,), daemon=True)
        press.start()
        assert stopped.wait(DEADLINE_S)
        press.join(DEADLINE_S)
        ground.close()
    sent = b"".join(received)
    words = [b"HELLO", b"AUTH", b"ground", b"secret", b"SELECT", b"SUBSCRIBE", b"PUBLISH", b"XADD"]
    places = [sent.find(word) for word in words]
    assert -1 not in places
    assert places == sorted(places)
    assert b"blimp:fanout:blimp.twin.emergency/3" in sent


def _press(ground: VehicleClient) -> None:
    with pytest.raises(LinkError):
        ground.estop(timeout_s=1.0)


def test_a_stop_passes_a_link_slower_than_every_timeout(
    ship: FlightSide, ground: VehicleClient, server: redis.Redis
) -> None:
    """A round trip of 3 s: the client's timeout is 2 s."""
    path = str(server.connection_pool.connection_kwargs["path"])
    with (
        TcpLink(server=path, delay_s=1.5) as radio,
        VehicleClient(f"redis://127.0.0.1:{radio.port}/0", "twin") as slow,
    ):
        reply = slow.estop()
        assert (reply.state, set(reply.roads_ms)) == ("SUCCESS", {"broadcast"})
        again = slow.estop()  # by a connection that is there
        assert again.state == "SUCCESS"
        # Broadcast and queue go out together, and either may be the first to be answered.
        assert min(again.roads_ms.values()) < 2 * 1500.0 + 1000.0


def test_a_stop_leaves_a_connection_that_died_without_a_word(
    ship: FlightSide, ground: VehicleClient, server: redis.Redis
) -> None:
    path = str(server.connection_pool.connection_kwargs["path"])
    with (
        TcpLink(server=path) as radio,
        VehicleClient(f"redis://127.0.0.1:{radio.port}/0", "twin") as far,
    ):
        assert far.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
        radio.freeze()
        pressed: list[Any] = []
        press = threading.Thread(
            target=lambda: pressed.append(far.estop(timeout_s=DEADLINE_S)), daemon=True
        )
        press.start()
        while len(ship.named("estop")) < 1:
            press.join(0.01)
        radio.mend()  # what was sent meanwhile is lost
        press.join(DEADLINE_S)
        assert pressed
        assert pressed[0].state == "SUCCESS"
