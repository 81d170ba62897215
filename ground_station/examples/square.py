"""Fly a square of 4 m at 3 m, and land where it began."""

import asyncio

from ground_station.ship import Ship

CORNERS_M = ((4.0, 0.0), (4.0, 4.0), (0.0, 4.0), (0.0, 0.0))  # north, east of the pad


async def fly(ship: Ship) -> None:
    await ship.arm()
    await ship.takeoff(3.0)
    for north_m, east_m in CORNERS_M:
        await ship.goto(north_m, east_m, 3.0)
    await ship.land()


async def main() -> None:
    async with Ship.connect() as ship, ship.control():
        await fly(ship)


if __name__ == "__main__":
    asyncio.run(main())
