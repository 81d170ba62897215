"""The Lua scripts, loaded once per server client."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

NAMES = (
    "ack", "begin", "bind", "broadcast", "bury", "complete", "counts", "delete", "leave",
    "publish", "purge", "release", "renew", "requeue_dead", "take",
)  # fmt: skip
# What is put before a script; its functions are local to it.
_SHARED = {
    "ack": ("held",),
    "begin": ("forget",),
    "bury": ("held",),
    "complete": ("held", "enqueue"),
    "leave": ("forget",),
    "publish": ("enqueue",),
    "release": ("held",),
    "renew": ("held",),
    "take": ("held",),
}


@cache
def source(name: str) -> str:
    """Return the text of one script, what it shares with others put before it."""
    folder = files(__package__) / "lua"
    shared = "".join((folder / f"{one}.lua").read_text() for one in _SHARED.get(name, ()))
    if name == "complete":
        # The whole of store.lua as a function: a final result is final, whoever writes.
        store = (files("blimp.tasks") / "store.lua").read_text()
        shared += f"local function store_result(KEYS, ARGV)\n{store}\nend\n"
    return shared + (folder / f"{name}.lua").read_text()


class Scripts:
    """Runs a script by its name; redis-py sends its hash, and the text where it is unknown."""

    def __init__(self, client: Any) -> None:
        self._scripts = {name: client.register_script(source(name)) for name in NAMES}

    def run(self, name: str, keys: list[str], args: list[Any]) -> Any:
        return self._scripts[name](keys=keys, args=args)
