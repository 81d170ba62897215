"""The bridge between a box and the world outside, both ends on this machine."""

import sys
import time

import pytest

from blimp.processes import Child
from blimp.sim.remote import RemoteWorld
from tests.box import bridge
from tests.box.world import OutsideWorld, twin
from tests.directory import socket_directory


@pytest.mark.process
def test_drivers_in_a_box_reach_the_world_outside_whose_time_is_the_boxs() -> None:
    with socket_directory() as inside, socket_directory() as directory:
        path = inside / "world.sock"
        with OutsideWorld(twin(), directory=directory) as outside:
            words = [sys.executable, bridge.__file__, str(path), "127.0.0.1", str(outside.port)]
            carrier = Child(name="bridge", arguments=words)
            try:
                with RemoteWorld(path) as world:
                    while _silent(world):
                        assert carrier.running(), "the bridge has ended"
                    assert world.i2c(1, 0x68, b"\x75", 1) == b"\x68"  # MPU-6050, WHO_AM_I
                    assert 0.0 <= time.monotonic() - outside.clock.now_s() < 60.0
            finally:
                carrier.end(within_s=5.0)


def _silent(world: RemoteWorld) -> bool:
    try:
        return world.i2c_buses() != (1,)
    except OSError:
        return True
