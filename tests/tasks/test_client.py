"""The ground's end: replies, progress, and never hanging on a dead link."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from blimp.clock import ManualClock
from blimp.errors import LinkError, MessageError
from blimp.queue import TaskApp, TaskContext
from blimp.queue.extensions import Broadcast
from blimp.queue.protocol.record import Record, State, encode
from blimp.queue.redis.keys import result_key
from blimp.tasks.client import BOOT, RECENT_S, VehicleClient, telemetry_key, vehicle_queue
from ground_station.setpoints import Setpoints
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.signals import stop_process

UNKNOWN = (
    "no command of this id is known: it has not begun, it is no longer kept, or the id is wrong"
)


@pytest.fixture
def vehicle(url: str) -> Iterator[TaskApp]:
    """A worker's app as a vehicle has one, without a ship behind it."""
    with TaskApp(vehicle_queue("twin"), broker=url, result_backend=url) as app:
        yield app


@pytest.fixture
def client(url: str) -> Iterator[VehicleClient]:
    with VehicleClient(url, "twin") as client:
        yield client


def test_a_command_is_followed_from_queue_to_end(vehicle: TaskApp, client: VehicleClient) -> None:
    heard: list[tuple[str, float | None]] = []
    reported = threading.Event()
    headers: dict[str, Any] = {}

    @vehicle.task(name="blimp.goto", bind=True, track_started=True)
    def goto(context: TaskContext, north_m: float) -> dict[str, float]:
        headers.update(context.message.headers)
        for fraction in (0.0, 0.4):
            context.progress(fraction)
        reported.wait(DEADLINE_S)
        return {"north_m": north_m}

    def hear(stage: str, fraction: float | None) -> None:
        heard.append((stage, fraction))
        if fraction == 0.4:
            reported.set()

    pending = client.send("goto", {"north_m": -3.5}, ttl_s=5.0)
    with working(vehicle):
        reply = pending.wait(DEADLINE_S, on_progress=hear)
    assert (reply.id, reply.task, reply.state) == (pending.id, "blimp.goto", "SUCCESS")
    assert reply.result == {"north_m": -3.5}
    assert reply.reason == ""
    assert reply.latency_ms is not None
    assert 0.0 < reply.latency_ms < DEADLINE_S * 1000
    assert heard[0] == ("queued", None)
    assert heard[-1] == ("executing", 0.4)
    assert headers["blimp_vehicle"] == "twin"
    assert headers["blimp_ttl_s"] == 5.0
    assert headers["blimp_source"].endswith(f":{os.getpid()}")
    assert pending.wait(1.0) == reply  # the end stays
    known = client.result(pending.id)
    assert (known.state, known.result, known.latency_ms) == ("SUCCESS", {"north_m": -3.5}, None)


def test_a_command_nobody_takes_times_out_and_expires_by_itself(
    vehicle: TaskApp, client: VehicleClient
) -> None:
    vehicle.task(name="blimp.arm")(dict)
    pending = client.send("arm", ttl_s=0.05)
    reply = pending.wait(0.1)
    assert reply.state == "TIMEOUT"
    assert reply.reason == "no word from the vehicle within 0.1 s: outcome unknown"
    assert reply.latency_ms is None
    assert client.result(pending.id).state == "TIMEOUT"
    assert client.result(pending.id).reason == UNKNOWN
    with working(vehicle):
        late = pending.wait(DEADLINE_S)  # waiting may go on after a timeout
    assert late.state == "EXPIRED"
    assert "its time to live is 0.05 s" in late.reason


def test_of_waiting_commands_that_coalesce_only_the_newest_begins(
    vehicle: TaskApp, client: VehicleClient
) -> None:
    begun: list[int] = []

    @vehicle.task(name="blimp.stick")
    def stick(up_percent: int) -> None:
        begun.append(up_percent)

    sent = [
        client.send("stick", {"up_percent": n}, ttl_s=60.0, coalesce="joystick") for n in range(3)
    ]
    with working(vehicle):
        replies = [pending.wait(DEADLINE_S) for pending in sent]
    assert [reply.state for reply in replies] == ["SUPERSEDED", "SUPERSEDED", "SUCCESS"]
    assert begun == [2]
    client.forget(sent[2].id)
    assert client.result(sent[2].id).reason == UNKNOWN


def test_one_command_after_the_other_has_the_same_connection_and_hears_its_own_reports(
    vehicle: TaskApp, client: VehicleClient
) -> None:
    server = vehicle.broker_link.client

    def report(id: str, result: object) -> None:
        data = encode(Record(id=id, state=State.SUCCESS, result=result), limit_bytes=10_000)
        server.publish(result_key(id), data)

    connections = set[tuple[str, ...]]()
    for n in range(4):
        before = client.send("stick", {"up_percent": n}, coalesce="joystick")
        report(before.id, "of another")
        before.close()
        with client.send("stick", {"up_percent": n}, coalesce="joystick") as pending:
            subscribed = [one for one in server.client_list() if one["sub"] != "0"]
            connections.add(tuple(one["id"] for one in subscribed))
            report(pending.id, n)
            assert before.wait(DEADLINE_S).state == "TIMEOUT"  # closed: it hears nothing more
            reply = pending.wait(DEADLINE_S)
        assert (reply.id, reply.result) == (pending.id, n)
    assert len(connections) == 1


def test_a_connection_that_is_kept_for_reports_outlives_its_server(
    own_broker: EmbeddedBroker,
) -> None:
    url = own_broker.url
    with (
        TaskApp(vehicle_queue("twin"), broker=url, result_backend=url) as app,
        VehicleClient(url, "twin") as client,
    ):

        @app.task(name="blimp.stick")
        def stick(up_percent: int) -> int:
            return up_percent

        for n in range(2):
            with (
                working(app),
                client.send("stick", {"up_percent": n}, coalesce="joystick") as pending,
            ):
                assert pending.wait(DEADLINE_S).result == n
            own_broker.stop()
            own_broker.start()


def test_a_stream_asks_once_a_second_which_boot_it_is_for(vehicle: TaskApp, url: str) -> None:
    clock, server = ManualClock(), vehicle.broker_link.client

    @vehicle.task(name="blimp.stick", bind=True)
    def stick(context: TaskContext) -> Any:
        return context.message.headers.get(BOOT)

    with working(vehicle), VehicleClient(url, "twin", clock=clock) as client:

        def heard(boot: str) -> None:
            server.xadd(telemetry_key("twin"), {"snapshot": f'{{"boot_id":"{boot}"}}'})

        def sent(**options: Any) -> Any:
            with client.send("stick", ttl_s=60.0, **options) as pending:
                return pending.wait(DEADLINE_S).result

        assert sent(coalesce="joystick") is None  # nothing is heard
        heard("first")
        assert sent(coalesce="joystick") == "first"
        heard("second")
        assert sent(coalesce="joystick") == "first"  # which the second refuses
        assert sent() == "second"
        heard("third")
        clock.advance(RECENT_S)
        assert sent(coalesce="joystick") == "third"


def test_a_setpoint_is_as_old_as_the_wish_however_long_the_broker_hangs(
    vehicle: TaskApp, url: str
) -> None:
    server = vehicle.broker_link.client

    @vehicle.task(name="blimp.stick", bind=True)
    def stick(context: TaskContext) -> int | None:
        return context.message.issued_ms

    with working(vehicle), VehicleClient(url, "twin") as client:
        setpoints = Setpoints(client)
        seconds, microseconds = server.time()
        server.execute_command("CLIENT", "PAUSE", 1500, "ALL")
        with setpoints.send("joystick", "stick", {}, ttl_s=60.0) as pending:
            issued_ms = pending.wait(DEADLINE_S).result
        assert issued_ms - (seconds * 1000 + microseconds / 1000) < 700  # of 1500


def test_what_is_heard_late_does_not_turn_progress_back(
    vehicle: TaskApp, client: VehicleClient
) -> None:
    """The first look at the stored record overtakes what was published before it."""
    pending = client.send("goto", ttl_s=5.0)
    key = result_key(pending.id)
    for state, result in ((State.STARTED, None), (State.PROGRESS, {"fraction": 0.4})):
        record = Record(id=pending.id, state=state, result=result)
        data = encode(record, limit_bytes=10_000)
        vehicle.broker_link.client.set(key, data)
        vehicle.broker_link.client.publish(key, data)
    steps = [(step.stage, step.fraction) for step in pending.events(timeout_s=0.5)]
    assert steps == [("queued", None), ("received", None), ("executing", 0.4)]


def test_an_emergency_stop_is_repeated_until_it_is_confirmed(
    vehicle: TaskApp, client: VehicleClient
) -> None:
    calls: list[Broadcast] = []

    @vehicle.on_broadcast("estop")
    def estop(broadcast: Broadcast) -> dict[str, bool] | None:
        calls.append(broadcast)
        return {"killed": True} if len(calls) == 3 else None

    with working(vehicle):
        reply = client.estop(timeout_s=DEADLINE_S)
    assert (reply.state, reply.task, reply.result) == ("SUCCESS", "blimp.estop", {"killed": True})
    assert reply.latency_ms is not None
    assert len({broadcast.id for broadcast in calls}) == 1
    assert calls[0].payload["source"].endswith(f":{os.getpid()}")


def test_without_a_broker_every_call_says_so_in_time() -> None:
    where = "redis+socket:///nowhere/b.sock?virtual_host=0"
    with VehicleClient(where, "twin", timeout_s=0.5) as client:
        began_s = time.monotonic()
        for call in (
            lambda: client.send("arm"),
            lambda: client.ping(),
            lambda: client.estop(),
            lambda: client.result("x"),
        ):
            with pytest.raises(LinkError, match=r"no broker at redis\+socket:///nowhere/b.sock"):
                call()
        assert time.monotonic() - began_s < DEADLINE_S


def test_a_broker_that_hangs_does_not_hang_the_ground(own_broker: EmbeddedBroker) -> None:
    with VehicleClient(own_broker.url, "twin", timeout_s=0.5) as client:
        pending = client.send("arm")
        stop_process(own_broker.pid)
        try:
            for call in (
                lambda: client.send("arm"),
                lambda: pending.wait(2.0),
                lambda: client.estop(timeout_s=1.0),
            ):
                with pytest.raises(LinkError):
                    call()
        finally:
            os.kill(own_broker.pid, signal.SIGCONT)
        assert client.send("arm").wait(0.0).state == "TIMEOUT"


def test_waiting_goes_on_after_the_link_came_back(own_broker: EmbeddedBroker) -> None:
    url = own_broker.url
    with (
        TaskApp(vehicle_queue("twin"), broker=url, result_backend=url, timeout_s=0.5) as app,
        VehicleClient(url, "twin", timeout_s=0.5) as client,
    ):
        go, busy = threading.Event(), threading.Event()

        @app.task(name="blimp.goto")
        def goto() -> str:
            busy.set()
            go.wait(DEADLINE_S)
            return "there"

        with working(app) as worker:
            pending = client.send("goto", ttl_s=30.0)
            assert busy.wait(DEADLINE_S)
            own_broker.stop()
            with pytest.raises(LinkError):
                pending.wait(DEADLINE_S)
            own_broker.start()
            go.set()
            wait_until(lambda: worker.counts["done"] == 1, "not settled")
            assert pending.wait(DEADLINE_S).result == "there"


def test_what_json_cannot_hold_is_refused_before_it_is_sent(client: VehicleClient) -> None:
    with pytest.raises(MessageError, match="JSON cannot hold"):
        client.send("goto", {"north_m": float("nan")})
