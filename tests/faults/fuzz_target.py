"""What every target of the fuzzer is, and the ship behind some of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from blimp.ship import Lockstep

SETTLE_S = 4.0

Mutated = Callable[[random.Random, Sequence[bytes]], bytes]


class Broken(Exception):
    """What must never be."""


class Target:
    """seeds: inputs that are read well, for a generator to begin with."""

    seeds: Sequence[bytes] = ()

    def change(self, chance: random.Random, mutated: Mutated) -> bytes:
        """Return the next input, from the seeds; `mutated` changes parts of one of several."""
        return mutated(chance, self.seeds)

    def feed(self, data: bytes) -> None:
        """Read one input. Raises what it must never raise."""
        raise NotImplementedError

    def finish(self) -> None:
        """Check what can only be seen after several inputs."""

    def close(self) -> None: ...


def check_at_rest(ship: Lockstep) -> None:
    """Raise Broken unless nothing of a ship that cannot be armed has moved."""
    moving = {name: value for name, value in ship.world.outputs.items() if value}
    turning = {name: v for name, v in moving.items() if name in ship.airframe.thruster_names}
    if turning or ship.snapshot().armed:
        raise Broken(f"armed: {ship.snapshot().armed}, driven: {turning}")


def unarmable(ship: Lockstep) -> None:
    """Break what arming needs: whatever asks it to, this ship must stay at rest."""
    ship.fault("baro", "no_answer")
    ship.step(SETTLE_S)
