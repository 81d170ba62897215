"""Follow a target that walks round a circle: a velocity towards it, ten times a second."""

import asyncio
from math import cos, hypot, sin

from ground_station.ship import Ship

RADIUS_M, TARGET_MPS = 3.0, 0.25
MAX_MPS, PER_S = 0.5, 0.4  # the speed of the ship at most, and per metre of distance


def target_m(t_s: float) -> tuple[float, float]:
    """Where the target is, north and east of the pad. Yours may be a camera's or a phone's."""
    angle_rad = TARGET_MPS / RADIUS_M * t_s
    return RADIUS_M * (1.0 - cos(angle_rad)), RADIUS_M * sin(angle_rad)


async def follow(ship: Ship, seconds: float) -> None:
    began_s = ship.now_s
    async with ship.velocities() as send:
        async for state in ship.telemetry(hz=10):
            t_s = ship.now_s - began_s
            if t_s > seconds:
                return
            goal, here = target_m(t_s), state.position_ned_m
            north, east = PER_S * (goal[0] - here[0]), PER_S * (goal[1] - here[1])
            share = min(1.0, MAX_MPS / max(hypot(north, east), 1e-6))
            await send(share * north, share * east, 0.0)


async def main() -> None:
    async with Ship.connect() as ship, ship.control():
        await ship.arm()
        await ship.takeoff(3.0)
        await follow(ship, seconds=60.0)
        await ship.land()


if __name__ == "__main__":
    asyncio.run(main())
