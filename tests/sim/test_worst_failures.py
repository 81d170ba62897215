"""The worst failures, with real processes in real time; kills of the flight process: test_stack.py.

In lockstep each is flown many times over (test_faults.py, test_control_flights.py); here a stuck
bus takes its time, a process dies in the middle of something, and a supervisor has to notice.
"""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from blimp.errors import LinkError
from blimp.link.telemetry import TelemetryReader
from blimp.ship import Lockstep
from blimp.tasks.client import VehicleClient
from blimp.types import OutcomeState, Snapshot
from tests.sim.branch import branch
from tests.sim.running import RunningStack
from tests.stopwatch import Stopwatch
from tests.tcp_link import TcpLink

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]

ALTITUDE_M = 1.5
I2C_BOUND_S = 0.010


class Flight:
    def __init__(self) -> None:
        self.stack = RunningStack("--seed", "5")
        broker = self.stack.ready["broker"]
        self.world = self.stack.world()
        self.client = VehicleClient(broker, "twin")
        self.telemetry = TelemetryReader(broker, "twin")

    def close(self) -> None:
        self.client.close()
        self.telemetry.close()
        self.world.close()
        self.stack.close()

    def snapshot(self) -> Snapshot:
        """Return one that is not old: the flight process is there."""

        def fresh() -> Snapshot | None:
            try:
                latest = self.telemetry.latest()
            except LinkError:
                return None
            return latest[0] if latest is not None and latest[1] < 0.5 else None

        found = self.stack.wait_until(fresh, within_s=60.0)
        assert found is not None
        return found

    def until(self, holds: Callable[[Snapshot], bool], *, within_s: float) -> None:
        self.stack.wait_until(lambda: holds(self.snapshot()), within_s=within_s)

    def hover(self) -> None:
        self.stack.wait_until(
            lambda: self.client.send("arm").wait(20.0).state == "SUCCESS", within_s=60.0
        )
        reply = self.client.send("takeoff", {"altitude_m": ALTITUDE_M}).wait(60.0)
        assert reply.state == "SUCCESS", reply

    def stays_up(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            altitude_m = self.world.truth().altitude_m
            assert abs(altitude_m - ALTITUDE_M) < 0.8, altitude_m
            threading.Event().wait(0.05)

    def comes_down(self) -> None:
        self.stack.wait_until(lambda: self.world.truth().altitude_m < 0.3, within_s=60.0)

    def events(self, name: str) -> list[dict[str, object]]:
        return [event for event in self.stack.events if event["event"] == name]

    def is_safe_within(self, seconds: float) -> None:
        watch = Stopwatch()
        self.stack.wait_until(lambda: self.world.report().outputs_safe, within_s=60.0)
        assert watch.undisturbed_s() <= seconds


@pytest.fixture
def flight() -> Iterator[Flight]:
    """A ship of its own: a failure may leave an estimate that is of no use for the next."""
    flight = Flight()
    try:
        flight.hover()
        yield flight
    finally:
        flight.close()


def lose_the_radio(flight: Flight) -> None:
    """The pilot's link falls silent while broker and worker are well: the ship holds."""
    broker = flight.stack.ready["broker"].removeprefix("redis+socket://").partition("?")[0]
    with TcpLink(server=broker) as radio:
        url = f"redis://127.0.0.1:{radio.port}/0"
        pilot = flight.stack.start_ground("--json", "--broker", url, "--vehicle", "twin", "watch")
        flight.until(lambda ship: ship.pilot_age_s is not None, within_s=60.0)
        radio.freeze()
        flight.until(lambda ship: ship.failsafe == "link lost: holding", within_s=60.0)
        ship = flight.snapshot()  # which has come through broker and worker
        assert ship.pilot_age_s is not None
        assert ship.pilot_age_s >= 3.0
        assert ship.armed
        flight.stays_up(2.0)
        radio.mend()
        flight.until(lambda ship: ship.failsafe == "", within_s=60.0)
        pilot.terminate()
        flight.stack.finish(pilot, within_s=60.0)
        flight.until(lambda ship: ship.pilot_age_s is None, within_s=60.0)  # it said goodbye


def test_what_is_lost_alone_costs_no_height_and_a_stuck_bus_keeps_no_stop_out(
    flight: Flight,
) -> None:
    """On one stack: what costs no height leaves a ship that hovers."""
    lose_the_radio(flight)
    lose_a_process(flight)
    stick_the_bus(flight)


def lose_a_process(flight: Flight) -> None:
    """A worker, a broker."""
    for name in ("worker", "broker"):
        flight.stack.kill(name)
        flight.stays_up(2.0)
        flight.stack.wait_for_event(lambda e, n=name: e.get("process") == n)  # type: ignore[misc]
        flight.stack.wait_until(
            lambda: flight.client.send("hold").wait(20.0).state == "SUCCESS", within_s=60.0
        )


def stick_the_bus(flight: Flight) -> None:
    """It costs ten milliseconds a transfer.

    Its IMU, barometer, ranger and servos are gone at once: what is left are motors.
    """
    before = flight.snapshot().loop.cycles
    flight.world.fault("imu", "bus_stuck")
    began_s = time.monotonic()
    flight.until(lambda ship: "lost" in ship.failsafe, within_s=60.0)
    threading.Event().wait(3.0)
    stuck = flight.snapshot()
    cycles_a_s = (stuck.loop.cycles - before) / (time.monotonic() - began_s)
    print(f"{cycles_a_s:.0f} cycles a second, {stuck.loop.step_ms}")
    assert cycles_a_s > 1.0 / (3 * I2C_BOUND_S)  # few of the chips are asked in one cycle
    # Half of it is what a loaded machine may add.
    assert stuck.loop.step_ms["p99"] < 1e3 * 12 * I2C_BOUND_S, stuck.loop
    watch = Stopwatch()
    assert flight.client.estop().state == "SUCCESS"
    assert not any(flight.world.outputs()[name] for name in ("left", "right", "tail"))
    assert watch.undisturbed_s() <= 0.3
    flight.world.fault("imu", "clear")
    flight.is_safe_within(1.0)  # the servos, too, now that they can be reached
    assert flight.events("hung") == []
    flight.comes_down()


@pytest.fixture(scope="module")
def hovering() -> Iterator[Lockstep]:
    """In lockstep, what takes no longer there, dies or is restarted: each flies on in a fork."""
    with Lockstep("twin", seed=5) as ship:
        ship.command("arm")
        outcome = ship.complete("takeoff", altitude_m=ALTITUDE_M, within_s=60.0)
        assert outcome.state is OutcomeState.DONE
        yield ship


def test_a_sensor_that_is_lost_alone_costs_no_height_and_is_used_again(hovering: Lockstep) -> None:
    ship = hovering

    def fly() -> None:
        for device in ("ranger", "baro", "tag"):
            ship.fault(device, "no_answer")
            for _ in range(50):
                ship.step(0.1)
                assert abs(ship.truth.altitude_m - ALTITUDE_M) < 0.8, device
            assert not ship.snapshot().sensors[device].healthy
            ship.fault(device, "clear")
            ship.step(2.0)
            assert ship.snapshot().sensors[device].healthy

    branch(ship, fly)


@pytest.mark.parametrize(
    ("device", "kind", "options", "failsafe"),
    [
        ("imu", "no_answer", {}, "attitude lost"),
        ("servos", "no_answer", {}, "servos lost: landing"),
        ("power", "stuck", {"value": 6.0}, "battery empty"),
    ],
)
def test_a_chip_without_which_it_cannot_fly_brings_the_ship_down(
    hovering: Lockstep, device: str, kind: str, options: dict[str, float], failsafe: str
) -> None:
    ship = hovering

    def fly() -> None:
        ship.fault(device, kind, **options)
        said = set()
        for _ in range(60):
            ship.step(1.0)
            said.add(ship.snapshot().failsafe)
            if ship.truth.altitude_m < 0.3 and not (device == "power" and ship.snapshot().armed):
                break
        assert any(failsafe in one for one in said), said
        assert ship.truth.altitude_m < 0.3
        if device == "power":
            assert not ship.snapshot().armed

    branch(ship, fly)
