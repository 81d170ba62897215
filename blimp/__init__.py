"""Flight control for small Raspberry Pi blimps, driven by a distributed task queue."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Return `__version__` when somebody asks: a checkout has to ask git for it."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from blimp.distribution import build

        return build().version
