"""The Lua scripts, loaded once per server client."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

NAMES = (
    "ack", "bind", "bury", "counts", "leave", "publish", "purge", "release", "renew",
    "requeue_dead", "take", "take_back",
)  # fmt: skip
_SETTLING = ("ack", "bury", "release", "renew", "take")


@cache
def source(name: str) -> str:
    """Return the text of one script, what it shares with others put before it."""
    folder = files(__package__) / "lua"
    shared = (folder / "held.lua").read_text() if name in _SETTLING else ""
    return shared + (folder / f"{name}.lua").read_text()


class Scripts:
    """Runs a script by its name; redis-py sends its hash, and the text where it is unknown."""

    def __init__(self, client: Any) -> None:
        self._scripts = {name: client.register_script(source(name)) for name in NAMES}

    def run(self, name: str, keys: list[str], args: list[Any]) -> Any:
        return self._scripts[name](keys=keys, args=args)
