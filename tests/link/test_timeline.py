"""The record of what happened: what is written, in which order, and who gets it."""

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from msgspec import structs

from blimp.clock import ManualClock
from blimp.link.mailbox import SENT_AT_ONCE, MailboxClient, MailboxServer
from blimp.link.telemetry import TelemetryPublisher, TelemetryReader, timeline_key
from blimp.link.timeline import KEPT, MAX_TEXT, Backlog, Happening, Timeline, changes, ordered
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.urls import redis_url
from blimp.types import Command, Outcome, OutcomeState, SensorStatus, Snapshot
from ground_station.report import Report
from ground_station.watch import events
from tests.broker import EmbeddedBroker
from tests.queue.conftest import wait_until
from tests.snapshot import SNAPSHOT


def happening(number: int, *, t_s: float = 0.0, **fields: Any) -> Happening:
    about = {"by": "supervisor", "kind": "died", "text": f"number {number}"} | fields
    return Happening(id=f"up1-{number}", t_s=t_s, **about)


def written(*messages: Command | Outcome | Snapshot) -> list[tuple[str, str, str]]:
    timeline = Timeline(boot_id="b1")
    found = [one for number, each in enumerate(messages) for one in timeline.take(each, number)]
    assert [one.id for one in found] == [f"b1-{number}" for number in range(1, len(found) + 1)]
    return [(one.kind, one.text, one.command) for one in found]


def test_a_command_is_written_once_with_its_id_and_how_it_ended() -> None:
    goto = Command(id="c1", name="goto", arguments={"north_m": 2.0}, source="ann@laptop")
    assert written(
        goto,
        Outcome(id="c1", state=OutcomeState.IN_PROGRESS, fraction=0.5),
        structs.replace(goto, fence=2),
        Outcome(id="c1", state=OutcomeState.DONE),
        Outcome(id="c1", state=OutcomeState.DONE),
        Outcome(id="strange", state=OutcomeState.DONE),
        Command(id="c2", name="arm"),
        Outcome(id="c2", state=OutcomeState.REFUSED, reason="arm: no battery"),
    ) == [
        ("command", "goto north_m 2 from ann@laptop", "c1"),
        ("command", "goto again: delivery 2 from ann@laptop", "c1"),
        ("done", "goto done", "c1"),
        ("command", "arm", "c2"),
        ("refused", "arm refused: no battery", "c2"),
    ]


def test_what_moves_nothing_and_what_streams_does_not_flood_the_record() -> None:
    pings = [Command(id=f"p{one}", name="ping") for one in range(5)]
    sticks = [Command(id=f"s{one}", name="stick") for one in range(5)]
    done = [Outcome(id=f"s{one}", state=OutcomeState.DONE) for one in range(5)]
    assert written(*pings, *sticks, *done) == [("command", "stick", "s0")]


def test_changes_of_the_ship_are_written_in_words() -> None:
    good = SensorStatus(value=1.0, unit="Pa", age_s=0.1, healthy=True)
    bad = structs.replace(good, healthy=False, error="baro: no answer")
    before = structs.replace(SNAPSHOT, sensors={"baro": good}, messages=("armed",))
    after = structs.replace(
        before, mode="HOLD", failsafe="link lost: holding", sensors={"baro": bad},
        link_age_s=3.5, messages=("armed", "link lost: holding", "the tag is back"),
    )  # fmt: skip
    assert changes(None, before) == [
        ("start", "the flight process runs: LOITER"),
        ("armed", "armed"),
    ]
    assert changes(before, before) == []
    assert changes(before, after) == [
        ("mode", "LOITER to HOLD"),
        ("failsafe", "link lost: holding"),
        ("fault", "baro: no answer"),
        ("link", "no word of the ground for 3 s: worker, broker or link is down"),
        ("ship", "the tag is back"),
    ]
    back = changes(after, structs.replace(before, messages=after.messages))
    assert [text for kind, text in back if kind != "mode"] == [
        "over: link lost: holding", "over: baro works again", "over: the ground is heard again",
    ]  # fmt: skip
    other = structs.replace(before, boot_id="b2")
    assert changes(before, other)[0] == ("start", "the flight process runs: LOITER")


def test_a_successor_says_that_the_one_before_it_died() -> None:
    successor = structs.replace(SNAPSHOT, boot_id="b2")
    (first, *_) = Timeline(boot_id="b2", has_died=True).take(successor, 5.0)
    assert (first.kind, first.text, first.t_s) == (
        "start", "the flight process before this one died", 5.0,
    )  # fmt: skip


def test_the_order_is_that_of_the_ships_clock_and_an_id_counts_once() -> None:
    late, first, second = happening(1, t_s=100.0), happening(2, t_s=90.0), happening(3, t_s=101.0)
    assert ordered([late, second, first, late]) == [first, late, second]
    booted = happening(4, t_s=7.0)
    assert ordered([late, second, booted]) == [late, second, booted], "another boot is later"


def test_a_reader_who_comes_late_or_is_slow_misses_nothing_of_the_last() -> None:
    backlog = Backlog()
    for number in range(KEPT + 10):
        backlog.add(b"%d" % number)
    assert backlog.missing("a", most=2) == [b"10", b"11"]
    backlog.had("a")
    assert backlog.missing("a", most=2) == [b"11", b"12"]
    assert backlog.missing("b", most=1) == [b"10"]
    backlog.forget("a")
    assert backlog.missing("a", most=1) == [b"10"]


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[MailboxServer]:
    with MailboxServer(path=tmp_path / "flight.sock", clock=clock) as server:
        server.timeline = Timeline(boot_id="b1")
        yield server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(directory=tmp_path) as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_the_worker_gets_what_happened_before_it_came(
    server: MailboxServer, clock: ManualClock, tmp_path: Path
) -> None:
    taped: list[bytes] = []
    server.tap = taped.append
    server.publish(SNAPSHOT)
    for number in range(2 * SENT_AT_ONCE):
        server.post(Outcome(id="x", state=OutcomeState.DONE))
        server.publish(structs.replace(SNAPSHOT, mode=f"M{number}"))
    path = tmp_path / "worker.sock"
    with MailboxClient(server_path=tmp_path / "flight.sock", path=path, clock=clock) as client:
        client.greet(link=True)
        server.receive()
        found: list[Happening] = []

        def all_there() -> bool:
            server.publish(structs.replace(SNAPSHOT, mode=f"M{2 * SENT_AT_ONCE - 1}"))
            found.extend(client.happenings())
            return len(found) >= 2 + 2 * SENT_AT_ONCE

        wait_until(all_there, "the backlog")
    kinds = [one.kind for one in found]
    assert kinds == ["start", "armed", *["mode"] * 2 * SENT_AT_ONCE]
    on_tape = [json.loads(one)["id"] for one in taped if b'"type":"happening"' in one]
    assert on_tape == [one.id for one in found], "each is in the log, once"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"by": "flight"}, "not of a supervisor"),
        ({"kind": "rumour"}, "not of a supervisor"),
        ({"t_s": 10.0}, "it is 1.0 s now"),
        ({"text": "x" * (MAX_TEXT + 1)}, "length <= 240"),
        ({"id": ""}, "length >= 1"),
    ],
)
def test_what_no_supervisor_says_is_not_in_the_record(
    server: MailboxServer, clock: ManualClock, tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    clock.advance(1.0)
    taped: list[bytes] = []
    server.tap = taped.append
    path = tmp_path / "worker.sock"
    with MailboxClient(server_path=tmp_path / "flight.sock", path=path, clock=clock) as client:
        for wrong in ({}, fields):
            about = {"t_s": 0.5, **msgspec.to_builtins(happening(1)), **wrong}
            client._send(msgspec.json.encode(about | {"type": "happening"}))
    server.receive()
    assert len(taped) == 1
    assert (server.malformed, reason in server.last_malformed) == (1, True)


def test_the_broker_has_each_happening_once_whatever_restarts(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    url, clock = broker.url, ManualClock()
    clock.advance(50.0)
    sent = [happening(number, t_s=40.0 + number) for number in (3, 1, 2)]
    for _ in range(2):  # the second worker gets all of it again
        with TelemetryPublisher(url, "v", clock=clock) as publisher:
            waiting = deque(sent)
            publisher.tell(waiting)
            assert not waiting
    with redis.Redis.from_url(redis_url(url)) as raw:
        assert raw.xlen(timeline_key("v")) == 3
    with TelemetryReader(url, "v") as reader:
        assert events(
            reader=reader, report=Report(as_json=True), clock=clock, follow=False, timeout_s=None
        )
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [one["id"] for one in lines] == ["up1-1", "up1-2", "up1-3"]
        assert [one["t_s"] for one in lines] == [41.0, 42.0, 43.0]
        assert lines[0]["at_s"] == pytest.approx(lines[2]["at_s"] - 2.0, abs=1.0)
        assert lines[0]["is_fault"] is True
        assert reader.news() == []


def test_with_a_key_nobody_writes_into_the_record(broker: EmbeddedBroker) -> None:
    url, clock, signer = broker.url, ManualClock(), Signer(["k" * 32])
    with TelemetryPublisher(url, "w", signer=signer, clock=clock) as publisher:
        publisher.tell(deque([happening(1)]))
    forged = msgspec.json.encode(happening(2))
    entry = {"id": "up1-2", "happening": forged, "age_s": "0.0"}
    with redis.Redis.from_url(redis_url(url)) as raw:
        raw.xadd(timeline_key("w"), entry)
        raw.xadd(timeline_key("w"), {"id": "x"})
    with TelemetryReader(url, "w", signer=signer) as reader:
        assert [one.id for one in reader.news()] == ["up1-1"]
