"""Test a failsafe in lockstep: in flight the link to the ground is lost, and the ship comes home.

No stack needs to run; a minute and more of flight is computed in seconds.
"""

import asyncio
from itertools import pairwise

from blimp.ship import Lockstep
from ground_station.ship import Ship

OUT_M = 5.0
WITHIN_S = 180.0


async def lose_the_link(ship: Ship, simulated: Lockstep) -> dict[str, float]:
    """Fly out, and return after how many seconds without a link each mode began."""
    await ship.arm()
    await ship.takeoff(3.0)
    await ship.goto(OUT_M, 0.0, 3.0)
    simulated.link_up = False
    lost_s, began_s = ship.now_s, dict[str, float]()
    while ship.now_s - lost_s < WITHIN_S and not simulated.truth.on_ground:
        began_s.setdefault((await ship.state()).mode, ship.now_s - lost_s)
        await ship.sleep(0.1)
    return began_s


async def main() -> None:
    with Lockstep("twin", seed=1) as simulated:
        async with Ship.lockstep(simulated) as ship:
            began_s = await lose_the_link(ship, simulated)
        assert simulated.truth.on_ground, f"it flies on: {began_s}"
        assert all(one < other for one, other in pairwise(began_s.values()))
        print(began_s, "landed at", simulated.truth.position_ned_m[:2])


if __name__ == "__main__":
    asyncio.run(main())
