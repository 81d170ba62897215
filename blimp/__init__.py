"""Flight control for small Raspberry Pi blimps, driven by a distributed task queue."""

__version__ = "0.1.0"
