"""Find a red balloon, catch it with a hook at the bow, and bring it through a gate."""

import asyncio

from blimp.errors import Refused
from ground_station.ship import Ship

BALLOON_M = 0.28  # its diameter: by it the ship knows how far it is
CAUGHT_M = 0.45  # on the hook it is so near to the camera
NORTH_M, EAST_M, ALTITUDE_M = 0.0, -3.0, 1.6  # the gate's middle; it stands across the way north
TRIES = 3


async def fly(ship: Ship) -> None:
    await ship.arm()
    await ship.takeoff(1.5)
    for _ in range(TRIES):
        try:
            await ship.follow("red", distance_m=0.0, size_m=BALLOON_M, seconds=120.0)
        except Refused as why:
            print(why)
            break
        await ship.goto(NORTH_M - 1.5, EAST_M, ALTITUDE_M, yaw_deg=0.0)
        seen = await ship.follow("red", distance_m=0.3, size_m=BALLOON_M, seconds=2.0)
        if seen.result.get("distance_m", 9.0) < CAUGHT_M:  # it came along
            await ship.goto(NORTH_M + 1.5, EAST_M, ALTITUDE_M, yaw_deg=0.0)
            break
    await ship.land()


async def main() -> None:
    async with Ship.connect() as ship, ship.control():
        await fly(ship)


if __name__ == "__main__":
    asyncio.run(main())
