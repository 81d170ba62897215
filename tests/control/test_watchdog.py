import threading

import pytest

from blimp.clock import ManualClock
from blimp.control.watchdog import STALL_S, Watchdog
from blimp.ship import Lockstep


class Outputs:
    """Answers as `Actuators` does: what failed is returned."""

    def __init__(self) -> None:
        self.made_safe = threading.Event()
        self.times = 0
        self.failures = 0

    def safe(self) -> tuple[str, ...]:
        self.times += 1
        if self.failures > 0:
            self.failures -= 1
            return ("servos: bus stuck",)
        self.made_safe.set()
        return ()


def test_it_trips_once_a_stall_and_a_pet_starts_it_again() -> None:
    clock, outputs = ManualClock(start_s=10.0), Outputs()
    watchdog = Watchdog(clock=clock, safe=outputs.safe)
    assert not watchdog.check(1e9)  # not petted yet: a slow start-up is no stall
    watchdog.pet()
    assert not watchdog.check(10.0 + STALL_S)
    assert watchdog.check(10.0 + STALL_S + 0.01)
    assert not watchdog.check(99.0)
    assert (outputs.times, watchdog.trips) == (1, 1)
    clock.advance(90.0)
    watchdog.pet()
    assert not watchdog.check(100.1)
    assert watchdog.check(100.6)
    assert watchdog.trips == 2


def test_outputs_that_fail_are_tried_again() -> None:
    outputs = Outputs()
    outputs.failures = 2
    watchdog = Watchdog(clock=ManualClock(), safe=outputs.safe)
    watchdog.pet()
    assert not watchdog.check(1.0)
    assert watchdog.error == "watchdog: outputs could not be put safe: servos: bus stuck"
    assert not watchdog.check(1.1)
    assert watchdog.check(1.2)
    assert not watchdog.check(1.3)
    assert (outputs.times, watchdog.trips, watchdog.error) == (3, 1, "")


def test_the_real_outputs_are_tried_until_their_bus_is_back() -> None:
    with Lockstep("twin", bench=True) as ship, ship.linux_devices():
        ship.command("servo", name="elevator", deg=10.0, seconds=20.0)
        ship.step(1.0)
        watchdog = Watchdog(clock=ManualClock(), safe=ship._ship.board.actuators.safe)
        watchdog.pet()
        ship.fault("servos", "no_answer")
        assert not watchdog.check(1.0)
        assert "servos" in watchdog.error
        assert not watchdog.check(1.1)
        ship.fault("servos", "clear")
        assert not ship.world.outputs_safe  # the chip keeps its last command
        assert watchdog.check(1.2)
        assert ship.world.outputs_safe


def test_a_fault_of_the_outputs_themselves_ends_no_watchdog() -> None:
    def broken() -> tuple[str, ...]:
        raise RuntimeError("a bug")

    watchdog = Watchdog(clock=ManualClock(), safe=broken)
    watchdog.pet()
    assert not watchdog.check(1.0)
    assert watchdog.error.endswith("a bug")


@pytest.mark.timeout(200)
def test_the_thread_does_it_while_the_loop_hangs() -> None:
    clock, outputs = ManualClock(), Outputs()
    with Watchdog(clock=clock, safe=outputs.safe, stall_s=0.05) as watchdog:
        watchdog.start()  # a second start is harmless
        watchdog.pet()
        clock.advance(1.0)
        assert outputs.made_safe.wait(timeout=100.0)
    watchdog.close()
    assert not any(thread.name == "watchdog" for thread in threading.enumerate())
