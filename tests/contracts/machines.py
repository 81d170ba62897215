"""The machines that the suites of this package run on: one class an implementation.

A machine is a `Buses` with a ship's chips behind it, and a way to change the world around them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from blimp import airframe
from blimp.airframe import Airframe
from blimp.clock import ManualClock
from blimp.hardware.bus import Buses
from blimp.hardware.linux import LinuxBuses
from blimp.sim.seam import linux_devices
from blimp.sim.world import World


class Machine:
    """The kernel's interfaces, answered by the simulated twin, in lockstep."""

    def __init__(self, *, ship: Airframe | None = None, seed: int = 1) -> None:
        self.airframe = ship or airframe.load("twin")
        self.clock = ManualClock()
        self.world = World(self.airframe, seed=seed, clock=self.clock)
        self.buses: Buses = LinuxBuses(clock=self.clock, datagrams=self.world.electronics.datagrams)

    def run(self, seconds: float) -> None:
        self.world.advance(seconds)

    def high(self, pin: int) -> float:
        """The share of time that `pin` is high, as a meter on the wire would say."""
        return self.world.electronics.pins.duty(pin)


@contextmanager
def lockstep(ship: Airframe | None = None) -> Iterator[Machine]:
    machine = Machine(ship=ship)
    with machine.world, linux_devices(machine.world, clock=machine.clock):
        yield machine
        machine.buses.close()


MACHINES = {"linux over lockstep": lockstep}
