"""Fly by lines on standard input, as a joystick would: "0.3 0 0" is north, east, up in m/s.

The newest line counts until the next one; the ship stays where it is when the input ends.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from ground_station.ship import Ship

Stick = tuple[float, float, float]
PERIOD_S = 0.05


async def typed() -> AsyncIterator[Stick]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        north, east, up = map(float, line.split())
        yield north, east, up


async def fly(ship: Ship, sticks: AsyncIterator[Stick]) -> None:
    newest = await anext(sticks, None)
    coming = asyncio.ensure_future(anext(sticks, None))
    async with ship.velocities() as send:
        while newest is not None:
            await send(*newest)
            await ship.sleep(PERIOD_S)
            if coming.done():
                newest, coming = coming.result(), asyncio.ensure_future(anext(sticks, None))


async def main() -> None:
    async with Ship.connect() as ship, ship.control():
        await fly(ship, typed())


if __name__ == "__main__":
    asyncio.run(main())
