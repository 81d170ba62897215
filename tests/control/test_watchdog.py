import threading

import pytest

from blimp.clock import ManualClock
from blimp.control.watchdog import STALL_S, Watchdog


class Outputs:
    def __init__(self) -> None:
        self.made_safe = threading.Event()
        self.times = 0
        self.failures = 0

    def safe(self) -> None:
        self.times += 1
        if self.failures > 0:
            self.failures -= 1
            raise OSError("bus stuck")
        self.made_safe.set()


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
    assert watchdog.error == "watchdog: outputs could not be put safe: bus stuck"
    assert not watchdog.check(1.1)
    assert watchdog.check(1.2)
    assert outputs.times == 3


@pytest.mark.timeout(20)
def test_the_thread_does_it_while_the_loop_hangs() -> None:
    clock, outputs = ManualClock(), Outputs()
    with Watchdog(clock=clock, safe=outputs.safe, stall_s=0.05) as watchdog:
        watchdog.start()  # a second start is harmless
        watchdog.pet()
        clock.advance(1.0)
        assert outputs.made_safe.wait(timeout=10.0)
    watchdog.close()
    assert not any(thread.name == "watchdog" for thread in threading.enumerate())
