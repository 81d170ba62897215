"""The pilot's heartbeat through a real broker and the worker's relay into a real mailbox."""

import re
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blimp.clock import SystemClock
from blimp.link.mailbox import MailboxClient, MailboxServer
from blimp.link.telemetry import TelemetryPublisher, stream_key
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.client import RedisServer
from blimp.tasks.authority import Authority, holder_of, pilots
from blimp.tasks.pilot_link import (
    READ_ENTRIES,
    HeartbeatRelay,
    HeartbeatSender,
    heartbeat_key,
)
from blimp.types import Heartbeat
from tests.queue.conftest import wait_until, working
from tests.snapshot import SNAPSHOT
from tests.tasks.ship import FlightSide, publish

KEY, OTHER_KEY = "k" * 32, "o" * 32


class OffClock(SystemClock):
    """A clock that a test sets off by `off_s`."""

    off_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.off_s


@pytest.fixture
def transport() -> str:
    return "streams"


class Way:
    """From senders to what the flight process has received."""

    def __init__(
        self, url: str, link: RedisServer, mailbox: MailboxClient, ship: FlightSide, key: str | None
    ) -> None:
        self.url, self.link, self.ship, self.key = url, link, ship, key
        self.clock = OffClock()
        self.said: list[str] = []
        self.mailbox = mailbox
        self.relay = HeartbeatRelay(
            link=link,
            vehicle="twin",
            authority=Authority(link=link, vehicle="twin"),
            mailbox=mailbox,
            signer=None if key is None else Signer(key),
        )
        self.relay.look()

    def sender(self, token: int | None = None, key: str | None = None) -> HeartbeatSender:
        return HeartbeatSender(
            broker=self.url,
            vehicle="twin",
            token=lambda: token,
            clock=self.clock,
            signing_key=key or self.key,
            say=self.said.append,
        )

    def received(self) -> list[Heartbeat]:
        """Return what has reached the ship of all that was sent so far."""
        self.relay.look()
        found: list[Heartbeat] = []
        self.mailbox.relay(Heartbeat(session="mark", sequence=0, authority=0))  # behind them

        def came() -> bool:
            found.extend(self.ship.server.heartbeats())
            return any(one.session == "mark" for one in found)

        wait_until(came, "the mark did not come")
        return [one for one in found if one.session != "mark"]

    def entries(self) -> list[dict[bytes, bytes]]:
        found: Any = self.link.client.xrange(heartbeat_key("twin"))
        return [fields for _, fields in found]


@pytest.fixture
def way(url: str, link: RedisServer, mailbox: MailboxClient, ship: FlightSide) -> Way:
    mailbox.greet(link=True)
    publish(ship, mailbox)
    with TelemetryPublisher(url, "twin") as telemetry:
        assert telemetry.publish(SNAPSHOT, 0.0)
    return Way(url, link, mailbox, ship, KEY)


def test_a_sender_is_heard_until_it_says_goodbye(way: Way) -> None:
    with way.sender() as sender:
        sender.start()
        wait_until(way.entries, "nothing was sent")
    first, *_, last = way.received()
    assert (first.sequence, first.ends, last.ends) == (0, False, True)
    assert last.sequence > 0
    assert 0.0 <= last.waited_s < 3.0
    assert way.received() == []  # each once
    assert way.said == []


def test_no_entry_of_a_stranger_ends_a_sender(way: Way) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    way.link.client.xadd(stream_key("twin"), {"snapshot": b'{"unknown":' + deep + b"}"})
    with way.sender() as sender:
        sender.send(ends=False)
    assert way.entries() != []


@pytest.mark.parametrize(
    ("off_s", "why"),
    [(-60.0, r": [6-9]\d\.\d s old"), (60.0, r": -[3-6]\d\.\d s old")],
)
def test_only_what_is_fresh_by_the_brokers_clock_counts(way: Way, off_s: float, why: str) -> None:
    with way.sender() as sender:
        sender.send(ends=False)
        assert len(way.received()) == 1
        way.clock.off_s = off_s
        sender.send(ends=False)
        assert way.received() == []
        assert re.search(why, way.relay.last_refused)
        sender.send(ends=False)  # it has read the broker's clock again
        assert len(way.received()) == 1


def test_nothing_of_a_stranger_counts(way: Way) -> None:
    for stranger in (way.sender(key=OTHER_KEY), Way.sender(unsigned(way))):
        with stranger:
            stranger.send(ends=False)
        assert way.received() == []
        assert "signature" in way.relay.last_refused
    with way.sender() as sender:
        sender.send(ends=False)
    signed = way.entries()[-1][b"heartbeat"]
    way.received()
    forged = [
        signed.replace(b'"ends":false', b'"ends":true'),
        signed.replace(b'"sequence":0', b'"sequence":9'),
        signed[:-9],
        b"",
        b"[" * 4000,
        b'{"id":"\xff"}',
    ]
    for data in forged:
        way.link.client.xadd(heartbeat_key("twin"), {"heartbeat": data})
    way.link.client.xadd(heartbeat_key("twin"), {"other": "1"})
    assert way.received() == []
    assert way.relay.refused == 2 + len(forged) + 1


def unsigned(way: Way) -> Way:
    return Way(way.url, way.link, way.mailbox, way.ship, None)


def test_what_was_meant_for_an_earlier_boot_does_not_count(way: Way) -> None:
    with way.sender() as sender:
        sender.send(ends=False)
        another = msgspec.structs.replace(SNAPSHOT, boot_id="boot-2")

        def heard() -> bool:
            way.ship.server.publish(another)
            return way.mailbox.boot_id == "boot-2"

        wait_until(heard, "no snapshot came")
        assert way.received() == []
        assert "boot-1" in way.relay.last_refused
        # Unheard, it left a pilot to be missed: 3 s later the new flight process held the ship.
        sender.send(ends=True)
        (goodbye,) = way.received()
        assert goodbye.ends


def test_no_goodbye_is_lost_among_many_after_a_pause_or_without_a_broker(
    way: Way, directory: Path
) -> None:
    """Nothing follows a goodbye that is lost: the ship misses a program that has ended."""
    with way.sender() as ended, way.sender() as other:
        ended.send(ends=False)
        assert len(way.received()) == 1
        way.clock.off_s = -20.0  # while the worker restarts, nobody reads it
        ended.send(ends=True)
        way.clock.off_s = 0.0
        for _ in range(2 * READ_ENTRIES):
            other.send(ends=False)
        authority = way.relay._authority
        with closing(RedisServer(f"redis+socket://{directory}/no-broker")) as nowhere:
            way.relay._authority = Authority(link=nowhere, vehicle="twin")
            assert way.received() == []  # nobody says who has control
        way.relay._authority = authority
        # The ship judges its age: so late, it says nothing of other programs.
        goodbye, *others = way.received()
    assert (goodbye.ends, len(others)) == (True, 2 * READ_ENTRIES)
    assert goodbye.waited_s == inf


def test_a_goodbye_waits_for_a_flight_process_that_is_not_there(way: Way, directory: Path) -> None:
    path = directory / "later" / "flight.sock"
    path.parent.mkdir()
    with MailboxClient(server_path=path, clock=way.clock, path=directory / "w.sock") as mailbox:
        way.relay._mailbox = mailbox
        with way.sender() as sender:
            sender.send(ends=True)
        way.relay.look()
        with MailboxServer(path=path, clock=way.clock) as server:
            assert server.receive() == []
            way.relay.look()
            assert server.receive() == []  # of heartbeats it keeps none
            (goodbye,) = server.heartbeats()
    assert goodbye.ends


def test_while_a_pilot_has_control_only_that_pilots_heartbeat_counts(way: Way) -> None:
    with way.sender() as anybody:
        anybody.send(ends=False)
        (free,) = way.received()
        pool = pilots(way.link, "twin")
        pool.add("twin")
        grant = pool.acquire(holder_of("alice"), 0.0)
        with way.sender(token=grant.token) as pilot, way.sender(token=grant.token + 1) as other:
            for sender in (anybody, other, pilot):
                sender.send(ends=False)
            (held,) = way.received()
            assert held.authority == 2 * grant.token != free.authority
            pool.release(grant)
            for sender in (anybody, pilot):
                sender.send(ends=False)
            (again,) = way.received()
            assert again.authority == 2 * grant.token + 1
            assert "has ended" in way.relay.last_refused
            pilot.send(ends=True)
            (goodbye,) = way.received()  # it ends this program, and takes nobody's control
            assert (goodbye.ends, goodbye.waited_s) == (True, inf)


def test_the_ships_worker_relays_what_comes(
    url: str, ship: FlightSide, mailbox: MailboxClient, directory: Path
) -> None:
    from blimp.tasks.app import build_ship_app

    with (
        build_ship_app(vehicle="twin", broker=url, mailbox=mailbox) as app,
        working(app, name="twin"),
        HeartbeatSender(
            broker=url, vehicle="twin", token=lambda: None,
            clock=SystemClock(),
        ) as sender,
    ):  # fmt: skip
        sender.start()
        wait_until(lambda: ship.server.heartbeats(), "no heartbeat reached the ship")


def test_a_sender_whose_pilot_is_not_heard_is_silent_and_says_no_goodbye(way: Way) -> None:
    """A gateway that has lost its station: the ship must miss it, also once the gateway ends."""
    present = True
    with HeartbeatSender(
        broker=way.url, vehicle="twin", token=lambda: None, clock=way.clock, signing_key=way.key,
        present=lambda: present,
    ) as sender:  # fmt: skip
        sender.start()
        wait_until(way.received, "no heartbeat was sent")
        present = False
    assert not any(one.ends for one in way.received())
