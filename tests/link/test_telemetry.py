"""Telemetry through a real server: ages, the newest only, and both ends without a broker."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from blimp.errors import ConfigError, LinkError, NotAuthorised
from blimp.link.telemetry import (
    TelemetryPublisher,
    TelemetryReader,
    stream_key,
    vehicles,
)
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.urls import redis_url
from blimp.types import Snapshot
from tests.broker import EmbeddedBroker
from tests.signals import stop_process
from tests.snapshot import SNAPSHOT


def snapshot(*, t_s: float = 1.0, vehicle: str = "twin") -> Snapshot:
    return msgspec.structs.replace(SNAPSHOT, t_s=t_s, vehicle=vehicle)


def test_the_newest_snapshot_comes_back_whole_with_its_age(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    with (
        TelemetryPublisher(broker.url, vehicle) as ship,
        TelemetryReader(broker.url, vehicle) as ground,
    ):
        assert ship.publish(snapshot(t_s=1.0), 0.0)
        assert ship.publish(snapshot(t_s=2.0), 4.0)
        found = ground.latest()
    assert found is not None
    assert found[0] == snapshot(t_s=2.0)
    assert 4.0 <= found[1] < 6.0


def test_the_past_comes_thinned_with_the_oldest_first(broker: EmbeddedBroker, vehicle: str) -> None:
    def fields(t_s: float) -> dict[str, Any]:
        return {"snapshot": msgspec.json.encode(snapshot(t_s=t_s)), "age_s": "0.1"}

    with redis.Redis.from_url(redis_url(broker.url)) as raw:
        seconds, _ = raw.time()
        for back_s in (90.0, 60.25, 60.2, 45.0, 30.25, 30.2, 1.25):
            entry = {"snapshot": "{}"} if back_s == 45.0 else fields(-back_s)
            raw.xadd(stream_key(vehicle), entry, id=f"{(seconds - back_s) * 1e3:.0f}-0")
    with TelemetryReader(broker.url, vehicle) as ground:
        found = ground.past(span_s=80.0, step_s=10.0)
    assert [one.t_s for one, _ in found] == [-60.25, -30.25, -1.25]
    assert all(age_s >= 0.1 - one.t_s for one, age_s in found)


def test_follow_skips_to_the_newest_and_tells_when_there_is_none(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    with (
        TelemetryPublisher(broker.url, vehicle) as ship,
        TelemetryReader(broker.url, vehicle) as ground,
    ):
        following = ground.follow(poll_s=0.02)
        assert next(following) is None
        for t_s in (1.0, 2.0, 3.0):
            ship.publish(snapshot(t_s=t_s), 0.1)
        found = next(following)
        assert found is not None
        assert found[0].t_s == 3.0
        assert next(following) is None
        ship.publish(snapshot(t_s=4.0), 0.0)
        found = next(following)
        assert found is not None
        assert found[0].t_s == 4.0


def test_an_entry_that_is_no_snapshot_is_named(broker: EmbeddedBroker, vehicle: str) -> None:
    from redis import Redis

    with Redis.from_url(redis_url(broker.url)) as raw:
        raw.xadd(stream_key(vehicle), {"snapshot": '{"t_s": "soon"}', "age_s": "0"})
    with TelemetryReader(broker.url, vehicle) as ground:
        with pytest.raises(LinkError, match=f"{vehicle}.*is not a snapshot"):
            ground.latest()
        following = ground.follow(poll_s=0.02)
        assert next(following) is None
        with TelemetryPublisher(broker.url, vehicle) as ship:
            ship.publish(snapshot(), 0.0)
        assert next(following) is not None


def test_a_number_that_json_cannot_hold_never_arrives_as_a_number(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    bad = msgspec.structs.replace(snapshot(), altitude_m=float("nan"))
    with (
        TelemetryPublisher(broker.url, vehicle) as ship,
        TelemetryReader(broker.url, vehicle) as ground,
    ):
        ship.publish(bad, 0.0)
        with pytest.raises(LinkError, match="is not a snapshot"):
            ground.latest()


def test_the_stream_stays_short_and_ends_with_its_ship(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    from redis import Redis

    with TelemetryPublisher(broker.url, vehicle) as ship:
        for _ in range(1000):
            ship.publish(snapshot(), 0.0)
    with Redis.from_url(redis_url(broker.url)) as raw:
        assert 600 <= int(raw.xlen(stream_key(vehicle))) <= 700
        assert 0 < int(raw.ttl(stream_key(vehicle))) <= 600


def test_vehicles_lists_who_has_spoken(broker: EmbeddedBroker, vehicle: str) -> None:
    with TelemetryPublisher(broker.url, vehicle) as ship:
        ship.publish(snapshot(), 0.0)
    found = vehicles(broker.url)
    assert 0.0 <= found[vehicle] < 5.0


def test_without_a_broker_the_ship_drops_and_the_ground_raises(tmp_path: Path) -> None:
    url = f"redis+socket://{tmp_path}/none.sock?virtual_host=0"
    with TelemetryPublisher(url, "twin") as ship:
        assert ship.publish(snapshot(), 0.0) is False
    with TelemetryReader(url, "twin") as ground, pytest.raises(LinkError, match=r"none\.sock"):
        ground.latest()
    with pytest.raises(LinkError, match=r"none\.sock"):
        vehicles(url)


def test_both_ends_come_back_with_the_broker(tmp_path: Path) -> None:
    server = EmbeddedBroker(directory=tmp_path)
    with (
        server,
        TelemetryPublisher(server.url, "twin") as ship,
        TelemetryReader(server.url, "twin") as ground,
    ):
        assert ship.publish(snapshot(t_s=1.0), 0.0)
        server.stop()
        assert ship.publish(snapshot(t_s=2.0), 0.0) is False
        with pytest.raises(LinkError):
            ground.latest()
        server.start()
        assert ship.publish(snapshot(t_s=3.0), 0.0)
        found = ground.latest()
        assert found is not None
        assert found[0].t_s == 3.0


def test_a_broker_that_hangs_costs_the_ship_no_more_than_its_timeout(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(directory=tmp_path) as server,
        TelemetryPublisher(server.url, "twin") as ship,
    ):
        assert ship.publish(snapshot(), 0.0)
        stop_process(server.pid)
        try:
            assert ship.publish(snapshot(), 0.0) is False
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_a_wrong_password_is_not_a_lost_link(broker: EmbeddedBroker) -> None:
    path = redis_url(broker.url).removeprefix("unix://").partition("?")[0]
    url = f"unix://ground:secret@{path}?db=0"
    with TelemetryReader(url, "twin") as ground, pytest.raises(NotAuthorised) as caught:
        ground.latest()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["amqp://localhost//", "localhost", "memory://", ""])
def test_a_transport_without_streams_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match=r"its scheme must be one of .*redis\+socket"):
        TelemetryReader(url, "twin")


# --- signed --------------------------------------------------------------------------------------

KEY = "k" * 16


def test_a_signed_snapshot_is_believed_and_a_forged_one_is_passed_over(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    stranger: Any = redis.Redis.from_url(redis_url(broker.url))
    key = stream_key(vehicle)
    with (
        stranger,
        TelemetryPublisher(broker.url, vehicle, signer=Signer(KEY)) as ship,
        TelemetryPublisher(broker.url, vehicle) as forger,
        TelemetryPublisher(broker.url, "other", signer=Signer(KEY)) as other,
        TelemetryReader(broker.url, vehicle, signer=Signer([KEY, "o" * 16])) as ground,
        TelemetryReader(broker.url, vehicle, signer=Signer("x" * 16)) as elsewhere,
    ):
        assert ship.publish(snapshot(t_s=1.0), 0.5)
        assert ship.publish(snapshot(t_s=2.0), 0.5)
        assert forger.publish(snapshot(t_s=3.0), 0.0)
        for _ in range(2):  # the first is dated early
            assert other.publish(snapshot(t_s=4.0), 0.0)
        stranger.xadd(key, stranger.xrange(stream_key("other"))[-1][1])  # another ship's
        first = stranger.xrange(key)[0][1]
        stranger.xadd(key, first)  # recorded, and sent again
        stranger.xadd(key, first | {b"sent_ms": b"%d" % (time.time() * 1000)})
        stranger.xadd(key, first | {b"age_s": b"-60.0"})
        found = ground.latest()
        assert found is not None
        assert found[0] == snapshot(t_s=2.0)
        with pytest.raises(LinkError, match="not signed with our key"):
            elsewhere.latest()


def test_a_recorded_snapshot_is_as_old_as_it_is(broker: EmbeddedBroker, vehicle: str) -> None:
    stranger: Any = redis.Redis.from_url(redis_url(broker.url))
    with (
        stranger,
        TelemetryPublisher(broker.url, vehicle, signer=Signer(KEY)) as ship,
        TelemetryReader(broker.url, vehicle, signer=Signer(KEY)) as ground,
    ):
        ship.publish(snapshot(t_s=1.0), 0.0)
        assert ship._ahead_ms is not None
        ship._ahead_ms -= 60_000.0  # as if the next had been sent a minute ago
        ship.publish(snapshot(t_s=2.0), 0.0)
        recorded = stranger.xrange(stream_key(vehicle))[-1][1]
        stranger.delete(stream_key(vehicle))
        stranger.xadd(stream_key(vehicle), recorded)
        found = ground.latest()
        assert found is not None
        assert 59.0 < found[1] < 100.0
        ship.publish(snapshot(t_s=3.0), 0.0)  # it has learned the broker's clock from its answer
        found = ground.latest()
        assert found is not None
        assert (found[0].t_s, found[1] < 30.0) == (3.0, True)


def test_a_ship_that_died_before_the_brokers_clock_went_back_does_not_look_alive(
    broker: EmbeddedBroker, vehicle: str
) -> None:
    with (
        TelemetryPublisher(broker.url, vehicle, signer=Signer(KEY)) as ship,
        TelemetryReader(broker.url, vehicle, signer=Signer(KEY)) as ground,
    ):
        ship.publish(snapshot(t_s=1.0), 0.0)
        assert ship._ahead_ms is not None
        ship._ahead_ms += 600_000.0  # the clock was ahead
        ship.publish(snapshot(t_s=2.0), 0.0)
        redis.Redis.from_url(redis_url(broker.url)).xtrim(
            stream_key(vehicle), maxlen=1, approximate=False
        )
        found = ground.latest()
        assert found is not None
        assert found[1] > 500.0
        ship.publish(snapshot(t_s=3.0), 0.0)
        found = ground.latest()
        assert found is not None
        assert found[0].t_s == 3.0


@pytest.mark.parametrize("signer", [None, Signer(KEY)])
def test_no_entry_of_a_stranger_ends_a_reader(
    broker: EmbeddedBroker, vehicle: str, signer: Signer | None
) -> None:
    fields: Any = {"age_s": "1", "sent_ms": "9" * 400, "snapshot": '{"x":' + "[" * 60_000}
    with (
        redis.Redis.from_url(redis_url(broker.url)) as stranger,
        TelemetryReader(broker.url, vehicle, signer=signer) as ground,
    ):
        stranger.xadd(stream_key(vehicle), fields)
        with pytest.raises(LinkError, match="not a snapshot"):
            ground.latest()
