"""Find a balloon, catch it, bring it through a gate: `python -m benchmarks.balloon --seeds 20`.

Simulated, with every frame drawn and looked at: `gtmab-mocap`, a camera at its bow, in a draught
flies `ground_station/examples/balloon.py`. The balloon is 2 to 4.5 m away in any direction, is
weighed out, and goes with the draught.
"""

import argparse
import asyncio
from collections.abc import Sequence
from math import cos, hypot, pi, sin
from random import Random

import msgspec

from blimp import airframe as airframes
from blimp.airframe import Airframe, Device
from blimp.errors import BlimpError
from blimp.scene import Balloon, GateFrame, Scenery, Walls
from blimp.ship import Lockstep
from blimp.ship.eye import let_see
from blimp.sim.catch import Catcher
from ground_station.examples import balloon as example
from ground_station.ship import Ship

CAMERA_M, HOOK_M = (0.36, 0.0, 0.10), (0.66, 0.0, 0.10)  # at the bow of the hull of .77 m
REACH_M = 0.06  # a ring of foam on the hook
DRAUGHT_MPS = 0.05
GATE_M = 1.8  # its opening; the ship is .77 m wide
HALL = Walls(north_m=(-8.0, 8.0), east_m=(-8.0, 8.0), height_m=5.0)


def with_camera(airframe: Airframe) -> Airframe:
    """Return the ship with a camera at its bow that looks ahead for red."""
    camera = Device(
        name="eye", chip="imx219", bus="camera", rate_hz=10.0,
        options={
            "width": 320, "height": 240, "horizontal_fov_deg": 62.2, "position_m": CAMERA_M,
            "pitch_deg": 0.0, "sees": ["red"],
        },
    )  # fmt: skip
    return msgspec.structs.replace(airframe, device=(*airframe.device, camera))


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one. caught_s, through_s: since its start, None if never."""

    seed: int
    far_m: float
    caught_s: float | None
    through_s: float | None
    landed: bool
    said: str


class Watched(Lockstep):
    """A ship with a balloon to catch; it notes what happens at each step."""

    def __init__(self, *, seed: int) -> None:
        super().__init__(
            with_camera(airframes.load("gtmab-mocap")), seed=seed, wind_mps=DRAUGHT_MPS
        )
        random = Random(f"balloon:{seed}")
        bearing, self.far_m = random.uniform(-pi, pi), random.uniform(2.0, 4.5)
        balloon = Balloon(
            north_m=self.far_m * cos(bearing), east_m=self.far_m * sin(bearing),
            altitude_m=random.uniform(1.0, 2.2), diameter_m=example.BALLOON_M,
        )  # fmt: skip
        gate = GateFrame(
            north_m=example.NORTH_M, east_m=example.EAST_M, altitude_m=example.ALTITUDE_M,
            opening_m=GATE_M,
        )  # fmt: skip
        scene = Scenery(room=HALL, floor=seed, balloon=(balloon,), gate=(gate,))
        camera = let_see(self.world, self.airframe, scene, seed=seed)
        self.catcher = Catcher(
            self.world, camera.renderer.balloons, diameter_m=balloon.diameter_m,
            hook_body_m=HOOK_M, reach_m=REACH_M, stand_m=self.airframe.stand_m,
        )  # fmt: skip
        self.caught_s: float | None = None
        self.through_s: float | None = None

    def step(self, seconds: float) -> None:
        if not hasattr(self, "catcher"):  # it settles on its pad
            return super().step(seconds)
        before = self.catcher.hook_ned_m
        super().step(seconds)
        self.catcher.update(seconds)
        north, east, down = self.catcher.hook_ned_m
        if self.catcher.caught is None:
            return None
        self.caught_s = self.caught_s or self.now_s
        crosses = before[0] < example.NORTH_M <= north
        off_m = hypot(east - example.EAST_M, down + example.ALTITUDE_M)
        if crosses and off_m < 0.5 * GATE_M:
            self.through_s = self.through_s or self.now_s
        return None


async def _fly(ship: Watched) -> str:
    try:
        async with Ship.lockstep(ship) as api:
            await example.fly(api)
    except BlimpError as error:
        return str(error)
    return "; ".join(ship.messages[-2:])


def fly(seed: int) -> Flight:
    with Watched(seed=seed) as ship:
        said = asyncio.run(_fly(ship))
        return Flight(
            seed=seed, far_m=ship.far_m, caught_s=ship.caught_s, through_s=ship.through_s,
            landed=ship.truth.on_ground and not ship.armed, said=said,
        )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args(arguments)
    flights = []
    for seed in range(options.first, options.first + options.seeds):
        flights.append(found := fly(seed))
        print(
            f"seed {seed:4}: {found.far_m:.1f} m away, caught {_s(found.caught_s)}, through the "
            f"gate {_s(found.through_s)}, {'landed' if found.landed else 'not down'}; {found.said}",
            flush=True,
        )
    caught = sum(one.caught_s is not None for one in flights)
    through = sum(one.through_s is not None for one in flights)
    landed = sum(one.landed for one in flights)
    print(f"of {len(flights)}: {caught} caught, {through} through the gate, {landed} landed")


def _s(seconds: float | None) -> str:
    return "never" if seconds is None else f"after {seconds:.0f} s"


if __name__ == "__main__":
    main()
