"""How many times faster than real time one core simulates.

In processor time, so that a busy machine counts less; it still slows caches and clock.
"""

import statistics
import time
from collections.abc import Callable

import msgspec

from blimp import airframe as airframes
from blimp.ship.lockstep import Lockstep
from blimp.sim.batch import Batch
from blimp.sim.physics import Physics
from blimp.types import Progress, unseen

STEP_S = 0.005  # of the physics in Lockstep; the other two take the same
SHIPS = 4000
WIND_MPS = 0.3
LOCKSTEP_S, PHYSICS_S, BATCH_S = 20.0, 10.0, 0.5  # simulated, a run
RUNS = 3  # the median counts


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Simulated seconds over processor seconds: the whole ship with drivers and chips holding its
    place in gusts, its physics alone, and `SHIPS` ships in one batch, all their seconds together.
    """

    lockstep_x: float
    physics_x: float
    batch_x: float


def measure(airframe: str = "twin", *, progress: Progress = unseen) -> Speed:
    """Measure all three, each `RUNS` times.

    progress: is called with the share that is done, 0 to 1, between the runs.
    """
    frame = airframes.load(airframe)
    throttles, servos = [0.3] * len(frame.thruster), [0.3] * len(frame.servo)
    physics = Physics(airframe=frame, seed=1, wind_mps=WIND_MPS)
    physics.place(position_ned_m=(0.0, 0.0, -20.0))
    batch = Batch(airframes=[frame] * SHIPS, seed=1, wind_mps=WIND_MPS)
    batch.put(position_ned_m=((0.0,), (0.0,), (-20.0,)))

    def steps(step: Callable[[float, list[float], list[float]], None], seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            step(STEP_S, throttles, servos)

    with Lockstep(frame, seed=1, wind_mps=WIND_MPS) as ship:
        ship.command("arm")
        ship.complete("takeoff", within_s=60.0, altitude_m=3.0)
        whole_s, alone_s, batch_s = LOCKSTEP_S, PHYSICS_S, BATCH_S
        return Speed(
            lockstep_x=_times(lambda: ship.step(whole_s), whole_s, progress, 0),
            physics_x=_times(lambda: steps(physics.step, alone_s), alone_s, progress, 1),
            batch_x=_times(lambda: steps(batch.step, batch_s), SHIPS * batch_s, progress, 2),
        )


def _times(run: Callable[[], None], simulated_s: float, progress: Progress, before: int) -> float:
    took = []
    for number in range(RUNS):
        progress((before + number / RUNS) / 3)
        began_s = time.process_time()
        run()
        took.append(time.process_time() - began_s)
    return round(simulated_s / statistics.median(took), 1)
