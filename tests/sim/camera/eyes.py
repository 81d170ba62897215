"""Ships with a camera, and something to see."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from blimp.airframe import Airframe, Device
from blimp.clock import ManualClock
from blimp.scene import Scenery, Tag
from blimp.sim.seam import linux_devices
from blimp.sim.world import World
from tests.sim.ships import gtmab

SCENE = Scenery(
    tag=tuple(
        Tag(id=10 * i + j, size_m=0.2, north_m=i - 2.0, east_m=j - 2.0)
        for i in range(5)
        for j in range(5)
    )
)


def seeing(**options: Any) -> Airframe:
    """A ship whose camera `eye` looks down."""
    eye = Device(
        name="eye", chip="imx219", bus="camera", options={"width": 640, "height": 480, **options}
    )
    ship = gtmab()
    return msgspec.structs.replace(ship, device=(*ship.device, eye))


@contextmanager
def hovering(*, height_m: float = 2.5, **options: Any) -> Iterator[World]:
    """A ship above the tags, in lockstep, with its files in place."""
    clock = ManualClock()
    with (
        World(seeing(**options), clock=clock, scene=SCENE) as world,
        linux_devices(world, clock=clock),
    ):
        world.physics.place(position_ned_m=(0.0, 0.0, -height_m))
        world.physics.held = True
        world.advance(0.3)
        yield world
