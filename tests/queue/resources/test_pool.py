"""Acquiring, renewing and releasing, on a real server."""

import json
import logging
import re
import threading
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError, LeaseError, LeaseLost, LinkError, NoneFree
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.keys import pool_channels
from blimp.queue.resources import Grant, ReleaseOutcome, ResourcePool
from blimp.queue.resources.grant import MAX_TOKEN, Ticket
from blimp.queue.resources.pool_server import COUNTERS
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S
from tests.queue.resources.conftest import TTL_S, Pass


def ticket_of(grant: Grant, **other: Any) -> Ticket:
    return Ticket.read(grant.as_dict() | other)


def test_a_resource_is_taken_once_and_comes_back(pool: ResourcePool) -> None:
    assert pool.add("twin")
    assert not pool.add("twin")
    grant = pool.acquire("alice")
    assert (grant.resource, grant.holder, grant.pool) == ("twin", "alice", "ships")
    assert 0.0 < grant.left_s <= TTL_S
    with pytest.raises(NoneFree, match="twin is held by alice"):
        pool.acquire("bob")
    release = pool.release(grant)
    assert release.released
    assert release.outcome is ReleaseOutcome.RELEASED
    assert grant.is_lost
    assert not grant.lost.is_set()
    with pytest.raises(LeaseLost, match="released"):
        grant.check()
    assert pool.acquire("bob").resource == "twin"


def test_tokens_grow_whatever_happens_to_the_server(
    pool: ResourcePool, server: redis.Redis
) -> None:
    tokens = []
    for round_ in range(5):
        pool.add("twin")
        grant = pool.acquire("alice")
        tokens.append(grant.token)
        if round_ % 2:
            server.flushall()  # nothing is remembered
        else:
            pool.release(grant)
    assert tokens == sorted(set(tokens))


def test_each_token_is_greater_than_the_last_though_that_is_ahead_of_the_time(
    pool: ResourcePool, server: redis.Redis
) -> None:
    pool.add("twin")
    first = pool.acquire("alice")
    ahead = first.token + 60_000_000
    server.hset(pool.keys.counts, "token", ahead)
    pool.release(first)
    second = pool.acquire("bob")
    assert second.token == ahead + 1
    assert pool.acquire("bob", new_token=True).token == ahead + 2
    server.hset(pool.keys.counts, "token", first.token * 2)  # no time explains it
    assert pool.acquire("bob", new_token=True).token < ahead


def test_tokens_and_deadlines_do_not_follow_a_clock_that_goes_back(
    pool: ResourcePool, later: Pass
) -> None:
    pool.add("twin")
    later(1e6)
    before = pool.acquire("alice")
    later(-1e6)  # as if the server's clock had been ahead, and was put right
    assert pool.who("twin").left_s <= TTL_S  # type: ignore[union-attr]
    pool.release(before)
    assert pool.acquire("bob").token > before.token


def test_the_longest_free_is_given_first(pool: ResourcePool) -> None:
    for name in "abc":
        pool.add(name)
    first = pool.acquire("x")
    assert first.resource == "a"
    pool.release(first)
    assert [pool.acquire(holder).resource for holder in "pqr"] == ["b", "c", "a"]


def test_a_holder_that_asks_again_gets_the_same_grant(pool: ResourcePool) -> None:
    pool.add("twin")
    pool.add("other")
    first, again = pool.acquire("alice"), pool.acquire("alice")
    assert again.ticket == first.ticket
    assert pool.stats().again == 1
    assert pool.stats().free == ("other",)


def test_a_new_token_fences_the_earlier_instance_of_a_holder(pool: ResourcePool) -> None:
    pool.add("twin")
    old = pool.acquire("task-1")
    new = pool.acquire("task-1", new_token=True)
    assert new.resource == old.resource
    assert new.token > old.token
    assert not pool.renew(old)
    assert old.lost.is_set()
    assert "superseded" in old.reason
    assert pool.renew(new)
    assert pool.stats().superseded == 1


def test_a_superseded_grant_releases_nothing(pool: ResourcePool) -> None:
    pool.add("twin")
    old = pool.acquire("task-1")
    pool.acquire("task-1", new_token=True)
    release = pool.release(old)
    assert release.outcome is ReleaseOutcome.SUPERSEDED
    assert release.held_by == "task-1"
    assert not release.released
    assert pool.who("twin") is not None


def test_the_second_release_is_logged_with_its_interval(
    pool: ResourcePool, caplog: pytest.LogCaptureFixture, later: Pass
) -> None:
    pool.add("resource-1")
    grant = pool.acquire("alice")
    pool.release(grant)
    later(0.023)
    with caplog.at_level(logging.WARNING):
        release = pool.release(grant)
    assert release.outcome is ReleaseOutcome.ALREADY
    assert release.released
    assert release.is_double
    [line] = caplog.messages
    found = re.fullmatch(
        r"possible double release of resource-1: 2 releases within (\d\.\d{3}) s", line
    )
    assert found is not None
    assert 0.023 <= float(found[1]) < 1.0
    assert pool.stats().double_released == 1
    assert pool.stats().free == ("resource-1",)


def test_a_release_that_repeats_itself_because_its_answer_was_lost_is_one(
    pool: ResourcePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.add("twin")
    grant = pool.acquire("alice")
    real = pool._server.run

    def twice(keys: list[str], args: list[Any]) -> Any:
        real(keys, args)
        return real(keys, args)

    monkeypatch.setattr(pool._server, "run", twice)
    assert pool.release(grant).outcome is ReleaseOutcome.RELEASED
    monkeypatch.undo()
    assert pool.stats().double_released == 0


@pytest.mark.parametrize("other", [{"holder": "eve"}, {"token": 1}, {"token": MAX_TOKEN - 1}])
def test_a_forged_grant_releases_nothing(pool: ResourcePool, other: dict[str, Any]) -> None:
    pool.add("twin")
    grant = pool.acquire("alice")
    release = pool.release(ticket_of(grant, **other))
    assert release.outcome is ReleaseOutcome.FORGED
    assert "forged" in str(release)
    assert release.held_by == "alice"
    assert pool.stats().forged == 1
    assert pool.renew(grant)


def test_a_release_after_so_many_others_is_stale(
    pool: ResourcePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.add("twin")
    first = pool.acquire("alice")
    pool.release(first)
    for _ in range(1001):
        pool.release(pool.acquire("bob"))
    assert pool.release(first.ticket).outcome is ReleaseOutcome.STALE
    assert pool.stats().stale == 1


@pytest.mark.parametrize(
    "given",
    [None, "twin", {}, {"pool": "ships"}, {"pool": "ships", "resource": "a", "token": "x",
     "holder": "h"}, {"pool": "ships", "resource": "a", "token": 0, "holder": "h"},
     {"pool": "ships", "resource": "a", "token": 2**60, "holder": "h"},
     {"pool": "ships", "resource": "", "token": 5, "holder": "h"}],
)  # fmt: skip
def test_what_is_no_grant_is_refused(given: object) -> None:
    with pytest.raises((LeaseError, ConfigError)):
        Ticket.read(given)


def test_a_grant_of_another_pool_is_refused(pool: ResourcePool, server: redis.Redis) -> None:
    other = ResourcePool(server, "cameras")
    other.add("front")
    grant = other.acquire("alice")
    with pytest.raises(LeaseError, match="'cameras'"):
        pool.release(grant)


# --- what ends by itself -----------------------------------------------------------------------


@pytest.mark.parametrize("visit", ["acquire", "stats", "release", "renew", "add", "who", "reap"])
def test_every_operation_ends_expired_grants(pool: ResourcePool, later: Pass, visit: str) -> None:
    pool.add("twin")
    grant = pool.acquire("alice")
    later(TTL_S + 1.0)
    if visit == "acquire":
        assert pool.acquire("bob").resource == "twin"
    elif visit == "release":
        assert pool.release(grant).outcome is ReleaseOutcome.EXPIRED
        assert grant.lost.is_set()
    elif visit == "renew":
        assert not pool.renew(grant)
        assert "expired" in grant.reason
    elif visit == "add":
        pool.add("twin")
    elif visit == "who":
        assert pool.who("twin") is None
    else:
        assert getattr(pool, visit)().free == ("twin",)
    stats = pool.stats()
    assert stats.expired == 1
    assert stats.size == 1


def test_a_renewed_grant_does_not_end(pool: ResourcePool, later: Pass) -> None:
    pool.add("twin")
    grant = pool.acquire("alice")
    for _ in range(3):
        later(TTL_S * 0.9)
        assert pool.renew(grant)
    assert pool.stats().expired == 0


def test_a_server_that_was_killed_brings_resources_back(own_broker: EmbeddedBroker) -> None:
    with open_redis(own_broker.url, timeout_s=5.0) as client:
        pool = ResourcePool(client, "ships", ttl_s=TTL_S)
        for name in "ab":
            pool.add(name)
        held = pool.acquire("alice")
        client.config_set("appendfsync", "always")
        pool.stats()
        own_broker.stop()
        with pytest.raises(LinkError):
            pool.renew(held)
        own_broker.start()
        assert pool.renew(held)
        assert pool.acquire("bob").token > held.token
        assert pool.stats().size == 2
        assert client.ttl(pool.keys.resources) == -1  # nothing vanishes by itself


def test_a_request_of_a_lower_rank_takes_nothing_from_a_higher_one(pool: ResourcePool) -> None:
    pool.add("twin")
    first = pool.ask("task", new_token=True, rank=1)
    later = pool.ask("task", new_token=True, rank=2)
    assert isinstance(first, Grant)
    assert isinstance(later, Grant)
    words = "twin of pool 'ships' is held by a later task: this is number 1"
    with pytest.raises(LeaseLost, match=words):
        pool.ask("task", new_token=True, rank=1)
    assert pool.dismiss("task", rank=1) is None
    assert not pool.renew(first)
    assert pool.renew(later)
    assert isinstance(pool.ask("task", new_token=True, rank=2), Grant)
    assert pool.dismiss("task", rank=2) == "twin"
    assert isinstance(pool.ask("task", new_token=True, rank=1), Grant)


def test_what_could_not_be_released_is_renewed_no_more(
    own_broker: EmbeddedBroker, quick: None
) -> None:
    with open_redis(own_broker.url, timeout_s=5.0) as client:
        pool = ResourcePool(client, "ships", ttl_s=TTL_S)
        pool.add("twin")
        grant = pool.acquire("alice")
        pool.keep(grant)
        renewing = [one for one in threading.enumerate() if one.name == "grants"]
        own_broker.stop()
        with pytest.raises(LinkError):
            pool.release(grant)
        for thread in renewing:  # it ends with its time, then
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


# --- leaving -----------------------------------------------------------------------------------


def test_a_busy_resource_leaves_when_it_is_released(pool: ResourcePool) -> None:
    pool.add("twin")
    grant = pool.acquire("alice")
    assert not pool.remove("twin")
    assert pool.holders()[0].leaving
    pool.release(grant)
    assert pool.stats().size == 0
    assert pool.remove("twin")


def test_what_is_removed_now_or_taken_away_is_lost_to_its_holder(pool: ResourcePool) -> None:
    pool.add("twin")
    grant = pool.acquire("alice")
    lost: list[Grant] = []
    grant.on_lost(lost.append)
    assert pool.take_away("twin") == "alice"
    assert pool.take_away("twin") is None
    assert not pool.renew(grant)
    assert lost == [grant]
    with pytest.raises(LeaseLost, match="taken away"):
        grant.check()
    second = pool.acquire("bob")
    assert pool.remove("twin", now=True)
    assert pool.release(second).outcome is ReleaseOutcome.TAKEN_AWAY
    assert pool.stats().size == 0


# --- waiting -----------------------------------------------------------------------------------


def test_waiting_holders_are_woken_in_order(pool: ResourcePool, server: redis.Redis) -> None:
    pool.add("twin")
    grant = pool.acquire("first")
    got: list[str] = []

    def wait(holder: str) -> None:
        mine = pool.acquire(holder, wait_s=10.0)
        got.append(holder)
        pool.release(mine)

    threads = []
    for number in range(4):
        thread = threading.Thread(target=wait, args=(f"w{number}",))
        thread.start()
        threads.append(thread)
        while len(pool.stats().waiting) <= number:
            pass
    assert pool.stats().waiting == ("w0", "w1", "w2", "w3")
    pool.release(grant)
    for thread in threads:
        thread.join(10.0)
    assert got == ["w0", "w1", "w2", "w3"]
    assert pool.stats().waiting == ()


def test_a_waiting_holder_is_woken_and_need_not_ask(
    pool: ResourcePool, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blimp.queue.resources.pool.LOOK_S", 1000.0)
    monkeypatch.setattr("blimp.queue.resources.pool.PLACE_S", 3000.0)
    pool.add("twin")
    grant = pool.acquire("alice")
    got: list[Grant] = []
    thread = threading.Thread(
        target=lambda: got.append(pool.acquire("bob", wait_s=100.0)), daemon=True
    )
    thread.start()
    while not server.pubsub_numsub(f"{pool_channels('ships')}bob")[0][1]:
        pass
    pool.release(grant)
    thread.join(DEADLINE_S)
    assert [one.resource for one in got] == ["twin"]


def test_a_later_holder_does_not_overtake(pool: ResourcePool) -> None:
    pool.add("twin")
    grant = pool.acquire("alice")
    pool.ask("waits", place_s=3.0)
    pool.release(grant)
    with pytest.raises(NoneFree, match="1 wait before"):
        pool.acquire("pushes")
    assert pool.acquire("waits").resource == "twin"


def test_a_waiter_that_died_holds_up_nobody(pool: ResourcePool, later: Pass) -> None:
    pool.add("twin")
    pool.ask("dead", place_s=3.0)  # it would have got it: it is free
    pool.release(pool.acquire("dead"))
    grant = pool.acquire("alice")
    pool.ask("dead", place_s=3.0)
    pool.release(grant)
    with pytest.raises(NoneFree):
        pool.acquire("next")
    later(3.1)
    assert pool.acquire("next").resource == "twin"
    assert pool.stats().gone == 1


def test_waiting_has_an_end_and_leaves_no_place(pool: ResourcePool) -> None:
    pool.add("twin")
    pool.acquire("alice")
    with pytest.raises(NoneFree, match=r"within 0.05 s: twin is held by alice"):
        pool.acquire("bob", wait_s=0.05)
    stats = pool.stats()
    assert stats.waiting == ()
    assert stats.refused == 1


def test_an_empty_pool_raises_none_free(pool: ResourcePool) -> None:
    with pytest.raises(NoneFree, match="pool 'ships' has no resources"):
        pool.acquire("alice")


# --- a lease -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_a_lease_is_renewed_and_released(pool: ResourcePool) -> None:
    pool.add("twin")
    with pool.lease("alice") as grant:
        while pool.stats().renewed < 5:
            assert not grant.lost.is_set()
        assert pool.who("twin") is not None
    assert pool.stats().free == ("twin",)
    assert not any(thread.name == "grants" for thread in _joined("grants"))


def _joined(name: str) -> list[threading.Thread]:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(5.0)
    return threading.enumerate()


def test_a_grant_released_in_the_block_is_released_once(pool: ResourcePool) -> None:
    pool.add("twin")
    with pool.lease("alice") as grant:
        pool.release(grant)
    assert pool.stats().double_released == 0


@pytest.mark.usefixtures("quick")
def test_a_holder_learns_that_its_lease_was_taken_away(pool: ResourcePool) -> None:
    pool.add("twin")
    with pool.lease("alice") as grant:
        pool.take_away("twin")
        assert grant.lost.wait(10.0)
        other = pool.acquire("bob")
    assert pool.renew(other)  # the end of the block gave nothing back


def test_a_release_that_failed_is_repeated_later(own_broker: EmbeddedBroker) -> None:
    with open_redis(own_broker.url, timeout_s=1.0) as client:
        pool = ResourcePool(client, "ships", ttl_s=600.0)
        pool.add("twin")
        client.config_set("appendfsync", "always")
        with pool.lease("alice"):
            own_broker.stop()
        own_broker.start()
        while pool.stats().released == 0:
            pass
        assert pool.stats().free == ("twin",)


# --- damage ------------------------------------------------------------------------------------

PARTS = ("resources", "free", "due", "holders", "waiting", "patience", "ended", "counts")


@pytest.mark.parametrize("part", PARTS)
def test_a_key_of_the_wrong_type_is_named_and_nothing_changes(
    pool: ResourcePool, server: redis.Redis, part: str
) -> None:
    for name in "ab":
        pool.add(name)
    grant = pool.acquire("alice")
    key = getattr(pool.keys, part)
    kept = server.dump(key)
    server.delete(key)
    server.set(key, "not a pool's")
    before = {name: server.dump(name) for name in server.keys("*")}
    for call in (
        lambda: pool.acquire("bob"),
        lambda: pool.release(grant),
        lambda: pool.renew(grant),
        lambda: pool.add("c"),
        lambda: pool.remove("a"),
        lambda: pool.take_away("a"),
        pool.stats,
    ):
        with pytest.raises(LeaseError, match="is a string, must be a") as raised:
            call()
        assert key in str(raised.value)
    assert {name: server.dump(name) for name in server.keys("*")} == before
    server.delete(key)
    if kept is not None:
        server.restore(key, 0, kept)
    assert pool.release(grant).outcome is ReleaseOutcome.RELEASED


@pytest.mark.parametrize("part", PARTS)
def test_a_key_that_is_gone_loses_no_resource_that_another_knows(
    pool: ResourcePool, server: redis.Redis, later: Pass, part: str
) -> None:
    for name in "abc":
        pool.add(name)
    grant = pool.acquire("alice")
    server.delete(getattr(pool.keys, part))
    pool.reap()
    assert pool.stats().size == 3
    if part not in ("resources", "ended"):
        assert pool.release(grant).released
    later(10 * TTL_S)
    assert sorted(pool.reap().free) == ["a", "b", "c"]


@pytest.mark.parametrize("field", ["token", "ttl_us", "since_us", "rank"])
@pytest.mark.parametrize("value", ["1.5", "0x10", "nan", "inf", "-5", "9" * 30, "", 1e300, None])
def test_a_grant_with_a_number_that_is_none_is_shown_and_ends(
    pool: ResourcePool, server: redis.Redis, later: Pass, field: str, value: Any
) -> None:
    pool.add("twin")
    grant = pool.acquire("alice")
    found = json.loads(server.hget(pool.keys.resources, "twin") or b"")
    server.hset(pool.keys.resources, "twin", json.dumps(found | {field: value}))
    assert pool.stats().size == 1
    assert pool.who("twin") is not None
    pool.reap()
    pool.renew(grant)
    pool.release(grant)
    later(TTL_S + 1.0)
    assert pool.acquire("bob").resource == "twin"
    assert pool.stats().busy[0].holder == "bob"


@pytest.mark.parametrize(
    "past", [{"how": "eaten"}, {"how": 3}, {"times": "x"}, {"first_us": "now"}, {"last_us": None}]
)
def test_an_end_that_cannot_be_read_was_none(
    pool: ResourcePool, server: redis.Redis, past: dict[str, Any]
) -> None:
    pool.add("twin")
    grant = pool.acquire("alice")
    ticket = grant.ticket
    pool.release(grant)
    written: Any = server.zrange(pool.keys.ended, 0, -1)
    value = written[0]
    server.delete(pool.keys.ended)
    server.zadd(pool.keys.ended, {json.dumps(json.loads(value) | past): ticket.token})
    assert pool.release(ticket).outcome is ReleaseOutcome.FORGED
    assert pool.stats().free == ("twin",)


@pytest.mark.parametrize("value", ["many", "", "1.5", "nan", "9" * 30])
def test_counters_that_are_no_numbers_can_be_looked_at(
    pool: ResourcePool, server: redis.Redis, value: str
) -> None:
    pool.add("twin")
    for field in (*COUNTERS, "wall", "steady"):
        server.hset(pool.keys.counts, field, value)
    assert pool.stats().free == ("twin",)
    assert pool.release(pool.acquire("alice")).released
    assert pool.acquire("bob").token < MAX_TOKEN


# --- names, numbers, clients -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a{b", "}", "x" * 201, 3, None, "\ud800"])
def test_what_can_be_no_pool_is_refused(server: redis.Redis, name: Any) -> None:
    with pytest.raises(ConfigError, match="pool"):
        ResourcePool(server, name)


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf"), "5", True, None])
def test_what_can_be_no_time_is_refused(server: redis.Redis, ttl_s: Any) -> None:
    with pytest.raises(ConfigError, match=r"ttl_s.*must be 0.01 to"):
        ResourcePool(server, "ships", ttl_s=ttl_s)


@pytest.mark.parametrize("bad", ["", 7, None, "x" * 300])
def test_what_can_be_no_name_is_refused(pool: ResourcePool, bad: Any) -> None:
    for call in (pool.add, pool.remove, pool.acquire, pool.who, pool.take_away):
        with pytest.raises(ConfigError, match="must be a text of 1 to 200 letters"):
            call(bad)


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"redis\.Redis"):
        ResourcePool("redis://localhost", "ships")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["twin", "Zeppelin Ä 🎈", "a:b|c d", '"quoted"\\', "{x}", "0"])
def test_a_client_that_decodes_is_as_good(broker_server: EmbeddedBroker, server: redis.Redis,
                                          name: str) -> None:  # fmt: skip
    path = broker_server.url.partition("://")[2].partition("?")[0]
    with redis.Redis(unix_socket_path=path, decode_responses=True) as client:
        pool = ResourcePool(client, "ships")
        pool.add(name)
        grant = pool.acquire(name)
        assert ResourcePool(server, "ships").acquire(name).ticket == grant.ticket
        assert pool.holders()[0].resource == name
        assert pool.release(grant).released


def test_all_keys_share_one_hash_tag(pool: ResourcePool) -> None:
    assert all("{ships}" in key for key in pool.keys.all())
