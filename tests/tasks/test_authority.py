"""Who may command: asked when a command acts, sent to the mailbox as a number that grows."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from blimp.actions import ACTIONS, Action
from blimp.clock import SystemClock
from blimp.errors import LinkError, NotInControl, Refused
from blimp.link.mailbox import MailboxClient
from blimp.queue import TaskApp, chain, signature
from blimp.queue.redis.client import RedisServer
from blimp.queue.resources import ResourcePool
from blimp.tasks.app import build_ship_app
from blimp.tasks.authority import HEADER, Authority, holder_of, pilot_of, pilots
from blimp.tasks.client import VehicleClient
from blimp.types import Command, Outcome, OutcomeState
from tests.queue.conftest import DEADLINE_S, working
from tests.tasks.ship import FlightSide, outcome


@pytest.fixture
def transport() -> str:
    """One is enough: what carries the message has no part in this."""
    return "streams"


@pytest.fixture
def pool(link: RedisServer) -> ResourcePool:
    pool = pilots(link, "twin")
    pool.add("twin")
    return pool


@pytest.fixture
def app(url: str, directory: Path, ship: FlightSide) -> Iterator[TaskApp]:
    paths = {"server_path": directory / "flight.sock", "path": directory / "worker.sock"}
    with (
        MailboxClient(**paths, clock=SystemClock()) as mailbox,
        build_ship_app(vehicle="twin", broker=url, mailbox=mailbox) as app,
        working(app, name="twin"),
    ):
        yield app


@pytest.fixture
def ground(app: TaskApp, url: str) -> Iterator[VehicleClient]:
    with VehicleClient(url, "twin") as client:
        yield client


# --- the number ----------------------------------------------------------------------------------


def test_the_number_grows_whenever_control_changes(link: RedisServer, pool: ResourcePool) -> None:
    authority = Authority(link=link, vehicle="twin")
    numbers = [authority.admit(None)]  # before anybody ever had it
    for pilot in ("alice", "bob"):
        grant = pool.acquire(holder_of(pilot))
        numbers.append(authority.admit(grant.token))
        assert authority.admit(grant.token) == numbers[-1]
        pool.release(grant)
        numbers.append(authority.admit(None))
        assert authority.admit(None) == numbers[-1]
    assert numbers == sorted(set(numbers))


def test_the_number_grows_on_after_the_server_has_lost_everything(
    link: RedisServer, pool: ResourcePool
) -> None:
    authority = Authority(link=link, vehicle="twin")
    numbers = [authority.admit(None)]
    for _ in range(2):
        grant = pool.acquire(holder_of("alice"))
        numbers.append(authority.admit(grant.token))
        link.client.delete(*pool.keys.all())
        numbers.append(authority.admit(None))
        with pytest.raises(NotInControl, match="has ended"):
            authority.admit(grant.token)
        pool.add("twin")
    assert numbers == sorted(set(numbers))


def test_a_server_that_lost_its_last_second_is_reported_by_the_ship(
    ground: VehicleClient, ship: FlightSide, link: RedisServer, pool: ResourcePool
) -> None:
    """The grant that the ship has seen the number of was never written to disk."""
    before = pool.stats().token
    newest = 2 * pool.acquire(holder_of("alice")).token
    pool.take_away("twin")
    link.client.hset(pool.keys.counts, "token", before)

    def fenced(command: Command) -> Outcome:
        if command.authority >= newest:
            return outcome(command)
        return outcome(command, OutcomeState.REFUSED, reason="older", result={"authority": newest})

    ship.answer = fenced
    assert ground.send("land").wait(10.0).kind == "NotInControl"
    assert ground.send("land").wait(10.0).state == "SUCCESS"
    assert pool.acquire(holder_of("bob")).token > newest // 2


@pytest.mark.parametrize("token", [2**53 - 1, 2**52])
def test_a_forged_token_locks_nobody_out(link: RedisServer, pool: ResourcePool, token: int) -> None:
    """Tokens are the broker's time in microseconds: none can be of the days to come."""
    authority = Authority(link=link, vehicle="twin")
    grant = pool.acquire(holder_of("eve"))
    first = authority.admit(grant.token)
    forged = json.loads(link.client.hget(pool.keys.resources, "twin") or "") | {"token": str(token)}
    link.client.hset(pool.keys.resources, "twin", json.dumps(forged))
    link.client.hset(pool.keys.counts, "token", token)
    with pytest.raises(NotInControl, match="has ended"):
        authority.admit(token)
    number = authority.admit(None)
    assert first < number < 2 * token  # and so is the next genuine one greater
    assert authority.admit(None) >= number


def test_only_the_ship_itself_is_control_of_it(link: RedisServer, pool: ResourcePool) -> None:
    """Everybody who reaches the broker can add to the pool."""
    grant = pool.acquire(holder_of("alice"))
    pool.add("another")
    other = pool.acquire(holder_of("eve"))
    authority = Authority(link=link, vehicle="twin")
    assert authority.admit(grant.token) == 2 * grant.token
    with pytest.raises(NotInControl, match="alice holds control"):
        authority.admit(other.token)
    pool.release(grant)
    with pytest.raises(NotInControl, match="has ended"):
        authority.admit(other.token)
    assert authority.admit(None) > 2 * grant.token


@pytest.mark.parametrize("number", [2**54, 10**40, -1, None, "7", 1.5])
def test_what_a_ship_says_to_have_seen_spoils_no_pool(
    link: RedisServer, pool: ResourcePool, number: object
) -> None:
    authority = Authority(link=link, vehicle="twin")
    authority.note_newest(number)
    first = authority.admit(None)
    grant = pool.acquire(holder_of("alice"))
    assert first < authority.admit(grant.token)
    assert grant.token < 2**52


def test_a_pilot_who_does_not_hold_it_hears_who_does_and_for_how_long(
    link: RedisServer, pool: ResourcePool
) -> None:
    authority = Authority(link=link, vehicle="twin")
    old = pool.acquire(holder_of("alice"))
    assert pool.take_away("twin") == old.holder
    grant = pool.acquire(holder_of("bob"))
    words = "^bob holds control of twin, for another 120 s unless it is renewed$"
    for reported in (None, old.token, grant.token + 1, 0, -1):
        with pytest.raises(NotInControl, match=words):
            authority.admit(reported)
    wrong: tuple[object, ...] = (True, "12", 1.5, [grant.token], {})
    for value in wrong:
        with pytest.raises(NotInControl, match=r"header blimp_authority is .*must be the token"):
            authority.admit(value)


def test_what_was_sent_under_control_that_has_ended_is_refused_though_nobody_holds_it(
    link: RedisServer, pool: ResourcePool
) -> None:
    grant = pool.acquire(holder_of("alice"))
    pool.release(grant)
    with pytest.raises(NotInControl, match="control of twin, with which this was sent, has ended"):
        Authority(link=link, vehicle="twin").admit(grant.token)


def test_without_an_answer_from_the_broker_nobody_may() -> None:
    nowhere = RedisServer("redis://127.0.0.1:1", timeout_s=0.2)
    with closing(nowhere), pytest.raises(LinkError):
        Authority(link=nowhere, vehicle="twin").admit(None)


def test_namesakes_are_not_one_holder() -> None:
    assert holder_of("a#b@c") != holder_of("a#b@c")
    assert pilot_of(holder_of("a#b@c")) == "a#b@c"
    assert pilot_of("somebody") == "somebody"


# --- through the worker ---------------------------------------------------------------------------


@pytest.mark.parametrize("row", ACTIONS.values(), ids=lambda row: row.name)
def test_only_what_asks_or_stops_is_everybodys(row: Action) -> None:
    free = ("ping", "sensor", "limits", "estop", "photo", "photo_stop")  # nothing moves
    assert row.needs_control == (row.name not in free)


def test_others_are_refused_by_name_and_nothing_reaches_the_ship(
    ground: VehicleClient, ship: FlightSide, pool: ResourcePool
) -> None:
    grant = pool.acquire(holder_of("bob@tower"))
    refused = ground.send("arm").wait(10.0)
    assert (refused.state, refused.kind) == ("REFUSED", "NotInControl")
    assert refused.reason.startswith("bob@tower holds control of twin")
    assert ship.named("arm") == []
    assert ground.ping().state == "SUCCESS"
    assert ground.send("status").wait(10.0).kind != "NotInControl"
    assert ground.estop().state == "SUCCESS"

    ground.authority = grant.token
    assert ground.send("arm").wait(10.0).state == "SUCCESS"
    assert [command.authority for command in ship.named("arm")] == [2 * grant.token]


def test_it_is_asked_when_the_command_acts_not_when_it_was_sent(
    ground: VehicleClient, ship: FlightSide, pool: ResourcePool
) -> None:
    """The flight process is unreachable while control changes: the command is late."""
    heard: list[Command] = []

    def silent(command: Command) -> Outcome | None:
        heard.append(command)
        if len(heard) == 1:
            pool.acquire(holder_of("bob"))
            return None
        return outcome(command)

    ship.answer = silent
    reply = ground.send("takeoff", {"altitude_m": 2.0}).wait(10.0)
    assert (reply.state, reply.kind) == ("REFUSED", "NotInControl")
    assert "bob holds control" in reply.reason
    assert len(heard) == 1


def test_where_nobody_can_say_who_has_control_nothing_is_done_and_nobody_is_blamed(
    ground: VehicleClient, ship: FlightSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> int:
        raise LinkError("broker: does not answer")

    monkeypatch.setattr(Authority, "admit", unreachable)
    reply = ground.send("land", ttl_s=2.0).wait(10.0)
    assert (reply.state, reply.kind) == ("FAILURE", "ControlUnknown")
    assert reply.reason == "its holder of control is unknown: broker: does not answer"
    assert ship.named("land") == []


def test_what_the_ship_has_taken_is_followed_though_control_is_lost_meanwhile(
    ground: VehicleClient, ship: FlightSide, pool: ResourcePool
) -> None:
    heard: list[Command] = []

    def slow(command: Command) -> Outcome:
        heard.append(command)
        if len(heard) == 1:
            pool.acquire(holder_of("bob"))
            return outcome(command, OutcomeState.IN_PROGRESS)
        return outcome(command)

    ship.answer = slow
    assert ground.send("takeoff", {"altitude_m": 2.0}).wait(10.0).state == "SUCCESS"
    assert len({command.authority for command in heard}) == 1


def test_what_a_pilots_command_calls_is_his_and_ends_with_his_control(
    app: TaskApp, ship: FlightSide, pool: ResourcePool
) -> None:
    """Each of a chain is asked about again."""
    grant = pool.acquire(holder_of("alice"))

    def answer(command: Command) -> Outcome:
        if command.name == "hold":
            pool.take_away("twin")
            pool.acquire(holder_of("bob"))
        return outcome(command)

    ship.answer = answer
    steps = [
        signature(f"blimp.{name}", app=app, immutable=True).set(ttl_s=10.0)
        for name in ("arm", "hold", "disarm")
    ]
    steps[0].set(headers={HEADER: grant.token})
    last = chain(*steps).apply_async()
    with pytest.raises(Refused, match="bob holds control of twin"):
        last.get(timeout=DEADLINE_S)
    assert [command.name for command in ship.commands] == ["arm", "hold"]
    assert {command.authority for command in ship.commands} == {2 * grant.token}
