"""The ship of a program without coroutines: the same methods, from any thread."""

import inspect
import signal
import threading
from collections.abc import Iterator

import pytest

from blimp.errors import Refused
from blimp.ship import Lockstep
from ground_station import plain, ship
from tests.ground_station.ship import FlyingShip
from tests.queue.conftest import wait_until

pytestmark = pytest.mark.long  # seconds of computing each


@pytest.fixture
def twin_in_lockstep() -> Iterator[Lockstep]:
    with Lockstep("twin", seed=1) as simulated:
        yield simulated


def methods(of: type) -> dict[str, list[str]]:
    """Return each public name with the names of its arguments."""
    return {
        name: [] if isinstance(member, property) else list(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(of)
        if not name.startswith("_")
    }


def test_both_ships_have_the_same_methods_and_arguments() -> None:
    ours, theirs = methods(plain.Ship), methods(ship.Ship)
    theirs["lockstep"].remove("beside")  # ships of one loop
    del theirs["press"]  # a thread that presses waits
    assert ours == theirs


def test_a_flight_without_coroutines(twin_in_lockstep: Lockstep) -> None:
    with plain.Ship.lockstep(twin_in_lockstep) as twin:
        with pytest.raises(Refused, match="not armed"):
            twin.takeoff(2.0)
        twin.arm()
        assert twin.takeoff(2.0).state == "SUCCESS"
        heights_m = []
        for state in twin.telemetry(hz=10):
            heights_m.append(state.altitude_m)
            if len(heights_m) == 3:
                break
        assert heights_m == pytest.approx([2.0] * 3, abs=0.4)
        with twin.control(), twin.velocities() as send:
            send(0.2, 0.0, 0.0)
            assert twin.state().mode == "VELOCITY"
        assert twin.state().mode == "LOITER"

        def fail() -> None:
            with twin.velocities() as send:
                send(0.2, 0.0, 0.0)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert twin.state().mode == "LOITER"  # the block has ended in order
        before_s = twin.now_s
        twin.sleep(1.5)
        assert twin.now_s - before_s == pytest.approx(1.5)
        twin.land()
        assert twin_in_lockstep.truth.on_ground


def test_one_thread_stops_the_ship_that_another_one_waits_for(twin: FlyingShip) -> None:
    refused: list[Refused] = []
    with plain.Ship.connect(twin.vehicle, broker=twin.broker.url) as ours:
        ours.arm()
        ours.takeoff(2.0)

        def go() -> None:
            with pytest.raises(Refused) as raised:
                ours.goto(10.0, 0.0, 2.0)
            refused.append(raised.value)

        going = threading.Thread(target=go)
        going.start()
        wait_until(lambda: "goto" in twin.ship.snapshot().active_command, "it does not go")
        assert ours.estop().state == "SUCCESS"
        going.join()
    assert refused
    assert twin.ship.snapshot().killed


def test_ctrl_c_ends_the_wait_and_the_block_in_order(twin: FlyingShip) -> None:
    with plain.Ship.connect(twin.vehicle, broker=twin.broker.url) as ours:
        ours.arm()
        ours.takeoff(2.0)

        def press() -> None:
            wait_until(lambda: "goto" in twin.ship.snapshot().active_command, "it does not go")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        threading.Thread(target=press).start()
        with pytest.raises(KeyboardInterrupt), ours.control():
            ours.goto(10.0, 0.0, 2.0)
        with ours.control():  # it was given back
            ours.hold()
