"""What a stranger on the broker tries with an emergency stop that he has recorded.

A genuine one passes whatever the broker's clock does.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from blimp.clock import ManualClock
from blimp.errors import LinkError
from blimp.queue import TaskApp
from blimp.queue.broadcast.receiver import BroadcastReceiver
from blimp.queue.extensions import Broadcast
from blimp.queue.protocol.message import to_json
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.clock import BrokerClock
from blimp.queue.redis.urls import Brokers
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working

KEY = "k" * 16
HOUR_S = 3600.0


@pytest.fixture
def app(url: str) -> Iterator[TaskApp]:
    with TaskApp("tests", broker=url, result_backend=url, signing_key=KEY) as app:
        yield app


def stops_of(app: TaskApp) -> list[str]:
    """Return the ids of the emergency stops that reach the ship from now on."""
    heard: list[str] = []

    @app.on_broadcast("estop")
    def estop(broadcast: Broadcast) -> dict[str, Any]:
        heard.append(broadcast.id)
        return {}

    return heard


def test_a_recorded_emergency_stop_does_nothing_after_a_restart(
    app: TaskApp, url: str, server: redis.Redis
) -> None:
    fanout = "blimp:fanout:tests.emergency"
    heard, log = stops_of(app), Silence()
    with working(app):
        app.broadcast("estop", id="recorded").get(DEADLINE_S)
        entries: Any = server.xrange(fanout)
    copies: Any = [fields for _, fields in entries]
    with TaskApp("tests", broker=url, result_backend=url, signing_key=KEY) as after:
        heard = stops_of(after)
        with working(after, log=log) as worker:
            for copy in copies:
                server.xadd(fanout, copy)
            after.broadcast("estop", id="genuine").get(DEADLINE_S)
            latest: Any = server.xrange(fanout)
            server.xadd(fanout, latest[-1][1])
            after.broadcast("estop", id="again").get(DEADLINE_S)
            wait_until(
                lambda: (
                    worker.counts["copied"] == 1 and worker.counts["not_genuine"] == len(copies)
                ),
                "the copies are not refused",
            )
    assert heard == ["genuine", "again"]
    reasons = [line["reason"] for line in log.events("broadcast unreadable")]
    assert reasons[0] == "it was sent before this worker started"
    assert reasons[-1].startswith("a copy: ")


class Server:
    """A Redis server whose clock is set, as BrokerClock asks it."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.ahead_s = 1e9
        self.questions = 0
        self.is_lost = False
        self.brokers = Brokers("redis://localhost:1/0")

    def ask(self, function: Callable[[Any], Any]) -> Any:
        if self.is_lost:
            raise LinkError("no answer")
        return function(self)

    def time(self) -> tuple[int, int]:
        self.questions += 1
        now_us = round((self._clock.now_s() + self.ahead_s) * 1e6)
        return now_us // 1_000_000, now_us % 1_000_000


class Stopping:
    """A worker's receiver and a ground station on one broker whose clock steps."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance(10.0)
        self.server = Server(self.clock)
        self.url = "redis://localhost:1/0"
        self.app = TaskApp("tests", broker=self.url, signing_key=KEY, clock=self.clock)
        self.heard = stops_of(self.app)
        self.log = Silence()
        self.start_ground()
        self.start_worker()

    def broker_clock(self) -> BrokerClock:
        link: Any = self.server
        return BrokerClock(link=link, clock=self.clock)

    def start_ground(self) -> None:
        self.ground, self.ground_clock = Signer(KEY), self.broker_clock()

    def start_worker(self) -> None:
        self.receiver = BroadcastReceiver(
            app=self.app, worker="w", on_revoke=lambda *_: None, log=self.log
        )
        self.receiver._clocks[self.url] = self.broker_clock()
        self.receiver._clocks[self.url].now_s()  # as it does before it subscribes

    def estop(self, id: str) -> bytes:
        """Return an emergency stop as the ground sends it."""
        document: dict[str, Any] = {"id": id, "name": "estop", "payload": {}}
        document |= {"seal": self.ground.seal(), "sent_s": self.ground_clock.now_s()}
        document["signature"] = self.ground.sign_document(document, place="tests.emergency")
        return to_json(document)

    def receive(self, body: bytes) -> bool:
        """Return whether the ship got it."""
        before = len(self.heard)
        self.receiver.receive(body, url=self.url)
        return len(self.heard) > before

    def passes(self, id: str) -> bool:
        """Return whether a stop gets through at once, or as the ground repeats it."""
        for _ in range(3):
            if self.receive(self.estop(id)):
                return True
            self.clock.advance(0.2)
        return False


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S, -40.0, 40.0])
@pytest.mark.parametrize("asked", ["nobody", "ground", "worker", "both"])
def test_a_genuine_emergency_stop_passes_whatever_the_clock_did(step_s: float, asked: str) -> None:
    both = Stopping()
    both.clock.advance(500.0)
    assert both.passes("before")
    both.server.ahead_s += step_s
    if asked in ("ground", "both"):
        both.ground_clock.now_s()
    if asked in ("worker", "both"):
        both.receiver._clocks[both.url].now_s()
    assert both.passes("after")
    both.start_ground()
    assert both.passes("from a ground that has just started")
    both.server.ahead_s -= step_s  # and back
    both.start_worker()
    both.clock.advance(0.2)
    assert both.passes("to a worker that has just started")
    both.clock.advance(10 * HOUR_S)  # the clocks drift
    both.server.ahead_s += 45.0
    assert both.passes("after ten hours")


def test_a_fresh_emergency_stop_asks_no_broker_and_a_flood_asks_it_seldom() -> None:
    both = Stopping()
    both.clock.advance(100.0)
    recorded = [both.estop("recorded") for _ in range(50)]
    fresh, before = both.estop("fresh"), both.server.questions
    assert both.receive(fresh)
    assert both.server.questions == before
    both.clock.advance(100.0)
    for body in recorded:
        assert not both.receive(body)
    assert both.server.questions == before + 1
    both.server.is_lost = True  # a recorded one is refused without it, a genuine one passes
    both.clock.advance(1.0)
    assert not both.receive(recorded[0])
    both.server.is_lost = False
    assert both.receive(both.estop("genuine"))
    assert "100 s old by the broker's clock: the limit is 30" in repr(both.log.lines)


def test_an_emergency_stop_is_accepted_once_and_not_after_a_restart() -> None:
    both = Stopping()
    both.clock.advance(100.0)
    recorded = both.estop("recorded")
    assert both.receive(recorded)
    assert not both.receive(recorded)
    both.clock.advance(1.0)
    both.start_worker()
    assert not both.receive(recorded)
    both.clock.advance(2.0)
    assert not both.receive(recorded)
    assert both.receive(both.estop("recorded"))  # the ground repeats it
    without = msgspec.json.decode(both.estop("x"))
    del without["sent_s"]
    assert not both.receive(to_json(without))


def test_a_repeat_among_600_presses_acts_no_second_time() -> None:
    both = Stopping()
    both.clock.advance(100.0)
    presses = [str(number) for number in range(600)]
    assert all(both.receive(both.estop(id)) for id in presses)
    assert not any(both.receive(both.estop(id)) for id in presses)


@pytest.mark.parametrize("ahead_s", [-31.0, 31.0])
def test_what_is_dated_more_than_half_a_minute_off_stops_nothing(ahead_s: float) -> None:
    both = Stopping()
    both.clock.advance(100.0)
    body = msgspec.json.decode(both.estop("x"))
    del body["signature"]
    for name, sent_s, passes in (("x", ahead_s, False), ("y", 0.9 * ahead_s, True)):
        body |= {"id": name, "seal": both.ground.seal()}
        body["sent_s"] = both.ground_clock.now_s() + sent_s
        signature = both.ground.sign_document(body, place="tests.emergency")
        assert both.receive(to_json(body | {"signature": signature})) is passes


def test_of_another_app_or_another_key_nothing_is_believed() -> None:
    both = Stopping()
    both.clock.advance(100.0)
    document = msgspec.json.decode(both.estop("x"))
    del document["signature"]
    for signer, place in ((both.ground, "other.emergency"), (Signer("n" * 16), "tests.emergency")):
        signature = signer.sign_document(document, place=place)
        assert not both.receive(to_json(document | {"signature": signature}))
    assert both.passes("x")
