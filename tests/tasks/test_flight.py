"""The vehicle's tasks across a real mailbox: acceptance, progress, refusal, silence, restart."""

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from blimp.clock import SystemClock
from blimp.link.mailbox import MailboxClient, MailboxServer
from blimp.queue import TaskApp
from blimp.tasks.client import VehicleClient
from blimp.tasks.flight import FLIGHT_TASKS, build_flight_app
from blimp.types import Attitude, Command, LoopStatus, Outcome, OutcomeState, Snapshot
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.golden import envelope
from tests.queue.look import Look

Answer = Callable[[Command], Outcome | None]
DONE, REFUSED, IN_PROGRESS = OutcomeState.DONE, OutcomeState.REFUSED, OutcomeState.IN_PROGRESS


SNAPSHOT = Snapshot(
    t_s=1.0,
    boot_id="boot-1",
    vehicle="twin",
    mode="HOLD",
    armed=False,
    killed=False,
    failsafe="",
    position_ned_m=(0.0, 0.0, -1.0),
    velocity_ned_mps=(0.0, 0.0, 0.0),
    altitude_m=1.0,
    attitude_rad=Attitude(roll=0.0, pitch=0.0, yaw=0.1),
    battery_v=7.4,
    actuators={},
    sensors={},
    loop=LoopStatus(rate_hz=100.0),
    simulated=True,
)


def outcome(command: Command, state: OutcomeState = DONE, **fields: Any) -> Outcome:
    settings: dict[str, Any] = {"boot_id": "boot-1", "accepted_s": 12.5} | fields
    return Outcome(id=command.id, state=state, **settings)


class FlightSide:
    """The flight process's end of a real mailbox, with the answers a test decides."""

    def __init__(self, path: Path) -> None:
        self.answer: Answer = outcome
        self.commands: list[Command] = []
        self.server = MailboxServer(path=path, clock=SystemClock())
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def post(self, outcome: Outcome) -> None:
        self.server.post(outcome)

    def named(self, name: str) -> list[Command]:
        return [command for command in list(self.commands) if command.name == name]

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self.server.close()

    def _serve(self) -> None:
        while not self._closed.wait(0.002):
            for command in self.server.receive():
                self.commands.append(command)
                answer = self.answer(command)
                if answer is not None:
                    self.server.post(answer)


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="blimp-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def ship(directory: Path) -> Iterator[FlightSide]:
    side = FlightSide(directory / "flight.sock")
    yield side
    side.close()


@pytest.fixture
def mailbox(directory: Path) -> Iterator[MailboxClient]:
    with MailboxClient(
        server_path=directory / "flight.sock",
        path=directory / "worker.sock",
        clock=SystemClock(),
    ) as client:
        yield client


@pytest.fixture
def app(url: str, mailbox: MailboxClient) -> Iterator[TaskApp]:
    with build_flight_app(vehicle="twin", broker=url, mailbox=mailbox) as app:
        yield app


@pytest.fixture
def ground(app: TaskApp, url: str) -> Iterator[VehicleClient]:
    with working(app, name="twin", sync_workers=12), VehicleClient(url, "twin") as client:
        yield client


def test_every_command_has_its_task_and_arm_alone_may_not_run_twice(app: TaskApp) -> None:
    assert {name.removeprefix("blimp.") for name in app.tasks} == {
        *("ping", "arm", "disarm", "mode", "takeoff", "goto", "velocity", "hold", "land"),
        *("return", "motor", "servo", "sensor", "status", "estop"),
    }
    assert [row.command for row in FLIGHT_TASKS if not row.idempotent] == ["arm"]
    assert app.queue == "blimp.twin"


def test_a_command_reaches_the_ship_as_it_was_sent(ship: FlightSide, ground: VehicleClient) -> None:
    reply = ground.send("goto", {"north_m": -2.0, "yaw_deg": 90.0}, ttl_s=4.0).wait(DEADLINE_S)
    assert reply.state == "SUCCESS"
    assert reply.result == {"fraction": 0.0, "accepted_s": 12.5}
    (command,) = ship.named("goto")
    assert command.id == reply.id
    assert command.arguments == {"north_m": -2.0, "yaw_deg": 90.0}
    assert command.fence == 1
    assert command.ttl_s == 4.0
    assert 0.0 <= command.age_s < 2.0
    assert command.source.count("@") == 1


def test_progress_is_told_and_the_first_acceptance_time_kept(
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


def test_a_refusal_carries_the_ships_reason(ship: FlightSide, ground: VehicleClient) -> None:
    ship.answer = lambda command: outcome(command, REFUSED, reason="barometer does not answer")
    reply = ground.send("arm").wait(DEADLINE_S)
    assert (reply.state, reply.reason) == ("REFUSED", "barometer does not answer")


def test_many_long_commands_run_side_by_side(ship: FlightSide, ground: VehicleClient) -> None:
    ship.answer = lambda command: outcome(command, DONE if command.name == "hold" else IN_PROGRESS)
    gotos = [ground.send("goto", {"north_m": float(n)}) for n in range(8)]
    wait_until(lambda: len({c.id for c in ship.named("goto")}) == 8, "not all handed over")
    assert ground.send("hold").wait(DEADLINE_S).state == "SUCCESS"
    ship.answer = lambda command: outcome(command, REFUSED, reason="superseded by hold")
    for command in ship.named("goto")[:8]:
        ship.post(outcome(command, REFUSED, reason="superseded by hold"))
    for pending in gotos:
        reply = pending.wait(DEADLINE_S)
        assert (reply.state, reply.reason) == ("REFUSED", "superseded by hold")


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


def test_a_flight_process_that_is_not_there_fails_after_its_time(
    directory: Path, ground: VehicleClient
) -> None:
    reply = ground.send("hold", ttl_s=0.6).wait(DEADLINE_S)
    assert reply.state == "FAILURE"
    assert "the flight process does not answer" in reply.reason


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
        "the flight process was restarted during goto: boot boot-1 became boot-2"
    )
    later = [command for command in ship.named("goto") if command.boot_id]
    assert {command.boot_id for command in later} == {"boot-1"}


def test_a_ship_that_falls_silent_in_mid_command_fails_it(
    ship: FlightSide, ground: VehicleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blimp.tasks.flight.SILENCE_S", 0.5)
    answers = iter([1])
    ship.answer = lambda command: outcome(command, IN_PROGRESS) if next(answers, None) else None
    reply = ground.send("goto", {"north_m": 1.0}).wait(DEADLINE_S)
    assert reply.state == "FAILURE"
    assert "the flight process fell silent during the command" in reply.reason


def test_a_redelivered_command_keeps_its_id_and_raises_its_fence(
    ship: FlightSide, app: TaskApp, ground: VehicleClient, look: Look
) -> None:
    now_ms = int(app.broker_clock.now_s() * 1000)
    look.push(
        "blimp.twin",
        envelope(
            task="blimp.hold", id="h1", blimp_delivery=2, blimp_issued_ms=now_ms, blimp_ttl_s=5.0
        ),
    )
    assert app.result("h1").get(DEADLINE_S)["accepted_s"] == 12.5
    (command,) = ship.named("hold")
    assert (command.id, command.fence) == ("h1", 3)


def test_a_resumed_command_is_pinned_to_the_boot_that_took_it(
    ship: FlightSide, app: TaskApp, ground: VehicleClient, look: Look
) -> None:
    """Its worker was killed, and meanwhile the flight process too: it must not be flown anew."""
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
    assert "boot boot-0 became boot-1" in record.reason
    (command,) = ship.named("goto")
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
    (command,) = ship.named("hold")
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
    (command,) = ship.named("arm")
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


def test_positional_arguments_are_refused(
    ship: FlightSide, app: TaskApp, ground: VehicleClient
) -> None:
    record = app.send_task("blimp.goto", (1.0,), ttl_s=5.0).wait(DEADLINE_S)
    assert "arguments of 'blimp.goto': too many positional arguments" in record.reason


def publish(ship: FlightSide, mailbox: MailboxClient) -> None:
    """Publish a snapshot until it is heard: before the first greeting nobody subscribes."""

    def is_heard() -> bool:
        ship.server.publish(SNAPSHOT)
        return mailbox.snapshot() is not None

    wait_until(is_heard, "no snapshot came")


def test_status_is_the_newest_snapshot_with_its_age(
    ship: FlightSide, ground: VehicleClient, mailbox: MailboxClient
) -> None:
    assert "no snapshot yet" in ground.send("status").wait(DEADLINE_S).reason
    publish(ship, mailbox)
    result = ground.send("status").wait(DEADLINE_S).result
    assert result["mode"] == "HOLD"
    assert result["attitude_rad"] == {"roll": 0.0, "pitch": 0.0, "yaw": 0.1}
    assert 0.0 <= result["age_s"] < DEADLINE_S


def test_a_command_is_meant_for_the_flight_process_that_is_heard(
    ship: FlightSide, ground: VehicleClient, mailbox: MailboxClient
) -> None:
    """Asked again after a restart, the successor must not take it for new."""
    ship.answer = lambda command: None
    publish(ship, mailbox)
    ship.answer = outcome
    assert (
        ground.send("takeoff", {"altitude_m": 2.0}, ttl_s=5.0).wait(DEADLINE_S).state == "SUCCESS"
    )
    assert ship.named("takeoff")[0].boot_id == "boot-1"


def test_the_ship_hears_that_the_link_stands(ship: FlightSide, ground: VehicleClient) -> None:
    # From its start on it counts as linked for a moment: only a greeting makes the age smaller.
    wait_until(lambda: ship.server._link_s is not None, "not greeted")
    assert ship.server.link_age_s(SystemClock().now_s()) < DEADLINE_S


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
        (command,) = ship.named("estop")
        assert (command.id, command.ttl_s) == (reply.id, None)
        assert goto.reply is None


def test_an_emergency_stop_the_ship_does_not_confirm_is_repeated_and_times_out(
    ship: FlightSide, ground: VehicleClient
) -> None:
    ship.answer = lambda command: None
    reply = ground.estop(timeout_s=1.0)
    assert reply.state == "TIMEOUT"
    assert len(ship.named("estop")) >= 2
    ship.answer = outcome
    assert ground.estop(timeout_s=DEADLINE_S).state == "SUCCESS"


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
