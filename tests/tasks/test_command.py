"""The vehicle's tasks across a real mailbox: acceptance, progress, refusal, silence, restart."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from blimp.errors import TaskFailed
from blimp.link.mailbox import MAX_COMMAND_BYTES, MailboxClient
from blimp.link.telemetry import TelemetryPublisher
from blimp.queue import TaskApp
from blimp.queue.redis.client import RedisServer
from blimp.tasks.client import VehicleClient
from blimp.tasks.command import printable_source
from blimp.types import Command, Outcome
from tests.queue.celery_messages import envelope
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.server_view import Look
from tests.snapshot import SNAPSHOT
from tests.tasks.ship import DONE, IN_PROGRESS, REFUSED, FlightSide, outcome, publish


def test_a_command_reaches_the_ship_as_it_was_sent(ship: FlightSide, ground: VehicleClient) -> None:
    reply = ground.send("goto", {"north_m": -2.0, "yaw_deg": 90.0}, ttl_s=4.0).wait(DEADLINE_S)
    assert reply.state == "SUCCESS"
    assert reply.result == {"fraction": 0.0, "accepted_s": 12.5}
    command = ship.only("goto")
    assert command.id == reply.id
    assert command.arguments == {"north_m": -2.0, "yaw_deg": 90.0}
    assert command.fence == 1
    assert command.ttl_s == 4.0
    assert 0.0 <= command.age_s < 2.0
    assert command.source.count("@") == 1


def test_progress_is_reported_and_the_first_acceptance_time_kept(
    ship: FlightSide, ground: VehicleClient
) -> None:
    ship.answer = lambda command: outcome(command, IN_PROGRESS)
    pending = ground.send("goto", {"north_m": 1.0})
    fractions: list[float] = []
    for step in pending.events(timeout_s=DEADLINE_S):
        if step.fraction is None:
            continue
        if step.fraction not in fractions:
            fractions.append(step.fraction)
        following = {0.0: 0.25, 0.25: 0.8}.get(step.fraction)
        command = ship.named("goto")[0]
        if following is None:
            ship.answer = lambda c: outcome(c, DONE, fraction=1.0, result={"north_m": 1.0})
            ship.post(ship.answer(command) or outcome(command))
        else:
            ship.post(outcome(command, IN_PROGRESS, fraction=following, accepted_s=None))
    assert fractions == [0.0, 0.25, 0.8]
    assert pending.reply is not None
    assert pending.reply.result == {"north_m": 1.0, "fraction": 1.0, "accepted_s": 12.5}


def test_a_command_that_a_failsafe_holds_says_so_at_once(
    ship: FlightSide, ground: VehicleClient
) -> None:
    ship.answer = lambda command: outcome(command, IN_PROGRESS)
    steps: list[tuple[str, float | None]] = []
    waits, goes_on = "waits: link lost: holding", ("executing", 0.0)

    def show(stage: str, fraction: float | None) -> None:
        steps.append((stage, fraction))
        command = next(iter(ship.named("takeoff")), None)
        if command is not None and steps[-1] == goes_on:  # nothing moves: the fraction is the same
            done = steps.count(goes_on) > 1
            reason = "" if done else waits
            ship.post(outcome(command, DONE if done else IN_PROGRESS, reason=reason))
        elif command is not None and stage == waits:
            ship.post(outcome(command, IN_PROGRESS))

    reply = ground.send("takeoff", {"altitude_m": 1.0}).wait(DEADLINE_S, show)
    assert reply.state == "SUCCESS"
    assert [one for one in steps if one[0] not in ("queued", "received")] == [
        goes_on, (waits, None), goes_on
    ]  # fmt: skip


def test_a_refusal_carries_the_ships_reason(ship: FlightSide, ground: VehicleClient) -> None:
    ship.answer = lambda command: outcome(command, REFUSED, reason="barometer does not answer")
    reply = ground.send("arm").wait(DEADLINE_S)
    assert (reply.state, reply.reason) == ("REFUSED", "barometer does not answer")


class Stepping:
    """The worker's link to a broker whose clock was `ahead_s` ahead of what it is now."""

    ahead_s = 40.0

    def __init__(self, link: RedisServer) -> None:
        self._link, self.brokers = link, link.brokers

    def ask(self, function: Any) -> Any:
        seconds, microseconds = self._link.ask(function)
        return int(seconds) + self.ahead_s, microseconds


def test_what_brings_a_ship_to_rest_passes_after_the_brokers_clock_went_back(
    ship: FlightSide, ground: VehicleClient, app: TaskApp
) -> None:
    """For 40 s, the length of the step, each command might be one from before it."""
    link: Any = Stepping(app.broker_link)
    app.broker_clock._link = link
    app.broker_clock.now_s()
    link.ahead_s = 0.0
    for name in ("land", "hold", "estop"):
        assert ground.send(name, ttl_s=30.0).wait(DEADLINE_S).state == "SUCCESS"
    assert all(command.age_s < 20.0 for command in ship.commands)
    reply = ground.send("goto", {"north_m": 1.0}, ttl_s=30.0).wait(DEADLINE_S)
    assert (reply.state, ship.named("goto")) == ("EXPIRED", [])
    ground.send("goto", {"north_m": 1.0}, ttl_s=60.0).wait(DEADLINE_S)
    assert ship.named("goto")[0].age_s >= 39.0


def test_a_silent_ship_is_asked_again_until_the_command_is_stale(
    ship: FlightSide, ground: VehicleClient
) -> None:
    ship.answer = lambda command: None
    reply = ground.send("hold", ttl_s=1.0).wait(DEADLINE_S)
    assert reply.state == "FAILURE"
    assert "the flight process does not answer: asked for " in reply.reason
    asked = ship.named("hold")
    assert len(asked) >= 3
    assert len({command.id for command in asked}) == 1
    ages = [command.age_s for command in asked]
    assert ages == sorted(ages)
    assert ages[-1] > 0.5


def test_a_lost_datagram_is_made_up_for(ship: FlightSide, ground: VehicleClient) -> None:
    answers = iter([None, None])
    ship.answer = lambda command: next(answers, outcome(command))
    assert ground.send("hold").wait(DEADLINE_S).state == "SUCCESS"
    assert len(ship.named("hold")) == 3


def test_a_flight_process_restarted_under_a_command_interrupts_it(
    ship: FlightSide, ground: VehicleClient
) -> None:
    ship.answer = lambda command: outcome(command, IN_PROGRESS)
    pending = ground.send("goto", {"north_m": 1.0})
    wait_until(lambda: ship.named("goto"), "not handed over")
    ship.answer = lambda command: outcome(
        command, REFUSED, boot_id="boot-2", reason="meant for another boot"
    )
    reply = pending.wait(DEADLINE_S)
    assert reply.state == "INTERRUPTED"
    assert reply.reason == (
        "the flight process was restarted during goto, and the new one does not know the command "
        "(its boot id is boot-2, that of the process before it was boot-1)"
    )
    later = [command for command in ship.named("goto") if command.boot_id]
    assert {command.boot_id for command in later} == {"boot-1"}


def test_a_command_that_waited_for_another_boot_moves_nothing(
    app: TaskApp,
    mailbox: MailboxClient,
    ship: FlightSide,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is sent to the boot that the pilot sees. What brings a ship to rest is for any."""

    def restarted(command: Command) -> Outcome:
        is_meant = command.boot_id in ("", "boot-2")
        return outcome(command, DONE if is_meant else REFUSED, boot_id="boot-2")

    monkeypatch.setattr("blimp.tasks.client.HEARD_S", DEADLINE_S)  # this ship publishes once
    ship.answer = restarted
    with TelemetryPublisher(url, "twin") as telemetry, VehicleClient(url, "twin") as ground:
        before = ground.send("hold", ttl_s=30.0)
        assert telemetry.publish(SNAPSHOT, 0.0)
        rest = [ground.send(name, ttl_s=30.0) for name in ("land", "hold", "estop", "ping")]
        moves = [
            ground.send("takeoff", {"altitude_m": 1.0}, ttl_s=30.0),
            ground.send("arm", ttl_s=30.0),
        ]
        another = structs.replace(SNAPSHOT, boot_id="boot-2")
        assert telemetry.publish(another, 0.0)
        with working(app, name="twin"):
            for one in (before, *rest):
                assert one.wait(DEADLINE_S).state == "SUCCESS"
            for one in moves:
                reply = one.wait(DEADLINE_S)
                assert (reply.state, "boot-1" in reply.reason) == ("INTERRUPTED", True)
            assert ground.send("arm", ttl_s=30.0).wait(DEADLINE_S).state == "SUCCESS"
        assert [one.boot_id for one in ship.named("arm")] == ["boot-1", "boot-2"]


def test_a_ship_that_falls_silent_in_mid_command_fails_it(
    ship: FlightSide, ground: VehicleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blimp.tasks.command.SILENCE_S", 0.5)
    answers = iter([1])
    ship.answer = lambda command: outcome(command, IN_PROGRESS) if next(answers, None) else None
    reply = ground.send("goto", {"north_m": 1.0}).wait(DEADLINE_S)
    assert reply.state == "FAILURE"
    assert "the flight process fell silent during the command" in reply.reason


def test_a_resumed_command_is_pinned_to_the_boot_that_took_it(
    ship: FlightSide, app: TaskApp, ground: VehicleClient, look: Look
) -> None:
    """Its worker was killed, and meanwhile the flight process too: it must not be flown again."""
    from blimp.queue.protocol.record import Record, State

    assert app.results is not None
    app.results.store(
        Record(id="g1", state=State.PROGRESS, result={"fraction": 0.4, "boot_id": "boot-0"})
    )
    issued_ms = int(app.broker_clock.now_s() * 1000) - 60_000
    look.push(
        "blimp.twin",
        envelope(
            task="blimp.goto",
            id="g1",
            kwargs={"north_m": 1.0},
            blimp_delivery=1,
            blimp_issued_ms=issued_ms,
            blimp_ttl_s=5.0,
        ),
    )
    record = app.result("g1").wait(DEADLINE_S)
    assert record.state is State.INTERRUPTED
    assert "its boot id is boot-1, that of the process before it was boot-0" in record.reason
    command = ship.only("goto")
    assert command.boot_id == "boot-0"
    assert command.age_s > 59.0  # the ship judges it, too


@pytest.mark.parametrize("command", ["goto", "arm", "motor"])
def test_a_command_without_a_time_to_live_is_refused(
    ship: FlightSide, app: TaskApp, ground: VehicleClient, look: Look, command: str
) -> None:
    look.push("blimp.twin", envelope(task=f"blimp.{command}", id="c1"))
    record = app.result("c1").wait(DEADLINE_S)
    assert record.state.value == "REFUSED"
    assert record.reason.startswith(f"{command} carries no time to live: set expires")
    assert ship.commands == []


def test_a_celery_programs_expiry_is_a_time_to_live(
    ship: FlightSide, app: TaskApp, ground: VehicleClient
) -> None:
    app.send_task("blimp.hold", expires=3.0, task_id="c1").get(DEADLINE_S)
    command = ship.only("hold")
    assert command.ttl_s == pytest.approx(3.0, abs=0.01)  # its age on the way counts against it


def test_an_expiry_does_not_hide_how_old_a_command_is(
    ship: FlightSide, app: TaskApp, ground: VehicleClient, look: Look
) -> None:
    """Or an arm that waited while the ship was stopped would undo the stop."""
    now_s = app.broker_clock.now_s()
    message = envelope(
        task="blimp.arm",
        id="c1",
        expires=datetime.fromtimestamp(now_s + 30.0, UTC).isoformat(),
        blimp_issued_ms=int(1000 * (now_s - 20.0)),
    )
    look.push("blimp.twin", message)
    app.result("c1").get(DEADLINE_S)
    command = ship.only("arm")
    assert command.age_s == pytest.approx(20.0, abs=1.0)
    assert command.ttl_s == pytest.approx(50.0, abs=1.0)


def test_a_revoked_command_is_left_and_nothing_strikes_in_the_mailbox(
    ship: FlightSide, app: TaskApp, ground: VehicleClient
) -> None:
    assert not any(task.options.interruptible for task in app.tasks.values())
    ship.answer = lambda command: outcome(command, IN_PROGRESS)
    pending = ground.send("goto", {"north_m": 1.0})
    wait_until(lambda: ship.named("goto"), "not handed over")
    handle = app.result(pending.id)
    handle.revoke(terminate=True)
    assert handle.wait(DEADLINE_S).state.value == "REVOKED"
    ship.answer = outcome
    assert ground.send("hold").wait(DEADLINE_S).state == "SUCCESS"


def test_a_clock_that_answers_late_makes_no_command_younger(
    ship: FlightSide,
    app: TaskApp,
    ground: VehicleClient,
    look: Look,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An emergency stop may come while the answer is on its way: it passes everything."""
    results = app.broker_link
    ask = results.ask
    issued_ms = int(1000 * app.broker_clock.now_s())

    def theirs_s() -> float:
        seconds, microseconds = ask(lambda client: client.time())
        return float(seconds) + microseconds / 1e6

    def slowly(function: Callable[..., Any]) -> Any:
        answer: Any = ask(function)
        wait_until(lambda: theirs_s() > issued_ms / 1000 + 0.5, "the clock stands")
        return answer

    monkeypatch.setattr(results, "ask", slowly)
    message = envelope(task="blimp.arm", id="c1", blimp_issued_ms=issued_ms, blimp_ttl_s=60.0)
    look.push("blimp.twin", message)
    wait_until(lambda: ship.named("arm"), "not handed over")
    command = ship.named("arm")[0]
    assert command.sent_s is not None
    assert command.age_s > 0.49


def test_an_arm_that_does_not_say_when_it_was_issued_is_refused(
    ship: FlightSide, app: TaskApp, ground: VehicleClient, look: Look
) -> None:
    expires = datetime.fromtimestamp(app.broker_clock.now_s() + 30.0, UTC).isoformat()
    look.push("blimp.twin", envelope(task="blimp.arm", id="c1", expires=expires))
    record = app.result("c1").wait(DEADLINE_S)
    assert record.state.value == "REFUSED"
    assert record.reason.startswith("arm does not say when it was issued")
    assert ship.commands == []


@pytest.mark.parametrize("command", ["ping", "sensor", "estop"])
def test_what_only_asks_or_stops_needs_no_time_to_live(
    ship: FlightSide, app: TaskApp, ground: VehicleClient, look: Look, command: str
) -> None:
    look.push("blimp.twin", envelope(task=f"blimp.{command}", id="c1"))
    assert app.result("c1").get(DEADLINE_S)["accepted_s"] == 12.5


def test_a_command_for_another_vehicle_is_refused(
    ship: FlightSide, app: TaskApp, ground: VehicleClient
) -> None:
    handle = app.send_task("blimp.arm", ttl_s=5.0, headers={"blimp_vehicle": "other"})
    assert handle.wait(DEADLINE_S).reason == "meant for vehicle 'other', this is 'twin'"
    assert ship.commands == []


def test_a_command_is_meant_for_the_flight_process_that_is_heard(
    ship: FlightSide,
    ground: VehicleClient,
    mailbox: MailboxClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asked again after a restart, the successor must not take it for new."""
    monkeypatch.setattr("blimp.tasks.command.HEARD_S", DEADLINE_S)  # this ship publishes once
    ship.answer = lambda command: None
    publish(ship, mailbox)
    ship.answer = outcome
    assert (
        ground.send("takeoff", {"altitude_m": 2.0}, ttl_s=5.0).wait(DEADLINE_S).state == "SUCCESS"
    )
    assert ship.named("takeoff")[0].boot_id == "boot-1"


def test_the_boot_a_command_is_meant_for_is_stored_before_the_ship_has_the_command(
    ship: FlightSide,
    app: TaskApp,
    ground: VehicleClient,
    mailbox: MailboxClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Worker killed after the ship acted, ship restarted before the command comes again: the
    next worker must name the boot that acted, not the one that it hears."""
    monkeypatch.setattr("blimp.tasks.command.HEARD_S", DEADLINE_S)  # this ship publishes once
    publish(ship, mailbox)
    stored: list[Any] = []

    def answer(command: Command) -> Outcome:
        assert app.results is not None
        stored.append(app.results.get(command.id))
        return outcome(command)

    ship.answer = answer
    ground.send("takeoff", {"altitude_m": 2.0}, ttl_s=5.0).wait(DEADLINE_S)
    assert [record and record.result for record in stored] == [
        {"fraction": 0.0, "boot_id": "boot-1", "sent": False}
    ]


def test_a_stopping_worker_leaves_its_command_to_the_next(
    ship: FlightSide, app: TaskApp, url: str
) -> None:
    ship.answer = lambda command: outcome(command, IN_PROGRESS, fraction=0.4)
    with VehicleClient(url, "twin") as client:
        with working(app, name="twin"):
            pending = client.send("goto", {"north_m": 1.0})
            wait_until(lambda: ship.named("goto"), "not handed over")
        ship.answer = lambda command: outcome(command, DONE, fraction=1.0)
        with working(app, name="twin"):
            reply = pending.wait(DEADLINE_S)
    assert reply.state == "SUCCESS"
    assert [command.fence for command in ship.named("goto")][-1] == 2
    assert {command.id for command in ship.named("goto")} == {reply.id}


@pytest.mark.parametrize(
    ("name", "headers", "kwargs", "reason"),
    [
        ("sensor", {}, {"name": "x" * 500_000}, f"bytes: the limit is {MAX_COMMAND_BYTES}"),
        ("goto", {"blimp_boot_id": "b" * 100_000}, {}, f"bytes: the limit is {MAX_COMMAND_BYTES}"),
    ],
)
def test_a_command_that_no_datagram_carries_is_named_at_once(
    ground: VehicleClient,
    app: TaskApp,
    look: Look,
    ship: FlightSide,
    name: str,
    headers: dict[str, Any],
    kwargs: dict[str, Any],
    reason: str,
) -> None:
    # With a time to live of an hour, asking on would hold a thread of the worker that long.
    issued_ms = int(app.broker_clock.now_s() * 1000)
    headers |= {"blimp_issued_ms": issued_ms, "blimp_ttl_s": 3600, "expires": None}
    look.push("blimp.twin", envelope(task=f"blimp.{name}", id="bad", kwargs=kwargs, **headers))
    with pytest.raises(TaskFailed, match=f"'{name}'.*{reason}"):
        app.result("bad").get(DEADLINE_S)
    assert ship.named(name) == []
    assert ground.ping(timeout_s=DEADLINE_S).state == "SUCCESS"


@pytest.mark.parametrize("source", ["y" * 100_000, 7, {"a": [1]}])
def test_whatever_a_sender_calls_himself_he_is_heard(
    ground: VehicleClient,
    app: TaskApp,
    look: Look,
    ship: FlightSide,
    source: object,
) -> None:
    look.push("blimp.twin", envelope(task="blimp.ping", id="ping", blimp_source=source))
    assert app.result("ping").get(DEADLINE_S) == {"fraction": 0.0, "accepted_s": 12.5}
    command = ship.only("ping")
    assert len(command.source) <= 80


def test_a_source_that_no_terminal_can_print_is_escaped() -> None:
    """A lone surrogate: JSON can carry it, UTF-8 cannot."""
    assert printable_source("pilot \ud800") == "pilot \\ud800"
