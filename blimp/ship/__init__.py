"""The whole ship: board and control put together, and what flies it with its world in lockstep."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blimp.ship.lockstep import Lockstep

__all__ = ["Lockstep"]


def __getattr__(name: str) -> Any:
    # Lockstep imports the simulator, which a flight process on real hardware does without.
    if name == "Lockstep":
        from blimp.ship.lockstep import Lockstep

        return Lockstep
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
