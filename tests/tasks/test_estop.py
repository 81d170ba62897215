"""The emergency stop: past queue and pool, confirmed by the ship, repeated until then."""

from blimp.queue import TaskApp
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.tasks.ship import DONE, IN_PROGRESS, FlightSide, outcome


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


def test_an_emergency_stop_with_an_endless_source_stops_the_ship(
    ground: VehicleClient,
    app: TaskApp,
    ship: FlightSide,
) -> None:
    handle = app.broadcast("estop", {"source": "y" * 100_000})
    handle.get(DEADLINE_S)
    assert len(ship.named("estop")) == 1
