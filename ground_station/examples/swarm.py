"""Three ships at once: `blimp up --sim --ships 3`. They climb, turn as a triangle, and land.

Each flies in coordinates of its own pad; `--ships` puts the pads 20 m apart.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from ground_station.ship import Ship

NAMES = ("twin-1", "twin-2", "twin-3")
STATIONS_M = ((2.0, 0.0), (-1.0, 1.7), (-1.0, -1.7))  # north, east of the pad


async def fly(ships: Sequence[Ship]) -> None:
    await asyncio.gather(*(ship.arm() for ship in ships))
    await asyncio.gather(*(ship.takeoff(3.0) for ship in ships))
    for turn in range(3):  # each flies to the next one's station, and waits for the others
        await asyncio.gather(
            *(ship.goto(*STATIONS_M[(number + turn) % 3], 3.0) for number, ship in enumerate(ships))
        )
    await asyncio.gather(*(ship.land() for ship in ships))


async def main() -> None:
    async with AsyncExitStack() as stack:
        ships = [await stack.enter_async_context(Ship.connect(name)) for name in NAMES]
        for ship in ships:
            await stack.enter_async_context(ship.control())
        await fly(ships)


if __name__ == "__main__":
    asyncio.run(main())
