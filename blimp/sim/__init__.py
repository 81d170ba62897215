"""The simulated world: physics, chips at register level, and the seam below the drivers."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blimp.sim.lockstep import Lockstep

__all__ = ["Lockstep"]


def __getattr__(name: str) -> Any:
    # Lockstep flies the whole ship and so imports all of it; the world's own process and the
    # chips do without.
    if name == "Lockstep":
        from blimp.sim.lockstep import Lockstep

        return Lockstep
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
