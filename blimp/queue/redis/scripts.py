"""The Lua scripts, loaded once per server client."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

NAMES = (
    "ack", "begin", "bind", "broadcast", "bury", "complete", "counts", "delete", "lanes", "leave",
    "publish", "purge", "put", "release", "renew", "requeue_dead", "take", "tell",
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
    queue = Path(__file__).parents[1]
    folder = queue / "brokers" / "streams" / "lua"
    shared = "".join((folder / f"{one}.lua").read_text() for one in _SHARED.get(name, ()))
    if name == "complete":
        # The whole of store.lua as a function: a final result is final, whoever writes.
        store = (queue / "results" / "store.lua").read_text()
        shared += f"local function store_result(KEYS, ARGV)\n{store}\nend\n"
        shared += (queue / "canvas" / "chords.lua").read_text()
    return shared + (folder / f"{name}.lua").read_text()


@cache
def digest(name: str) -> str:
    """Return the hash that the server knows a script by."""
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


class Script:
    """One Lua script. The server knows it by its hash, and gets its text if it does not."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: Any, keys: list[str], args: list[Any]) -> Any:
        # redis-py's own Script does the same in twice the time.
        execute = client.execute_command
        try:
            return execute("EVALSHA", self.digest, len(keys), *keys, *args)
        except NoScriptError:
            return execute("EVAL", self.text, len(keys), *keys, *args)


class Scripts:
    """Runs a script by its hash, and by its text where the server does not know it yet."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, name: str, keys: list[str], args: list[Any]) -> Any:
        # redis-py's own Script does the same in twice the time, which is most of a publish.
        execute = self._client.execute_command
        return self._execute(execute, name, keys, args)

    def run_once(self, name: str, keys: list[str], args: list[Any]) -> Any:
        """Run a script that says something else when repeated.

        An answer that is lost with its connection is an error: redis-py would ask again, and
        nobody would know of it.
        """
        pool = self._client.connection_pool
        connection = pool.get_connection()

        def execute(*command: Any) -> Any:
            connection.send_command(*command)
            return connection.read_response()

        try:
            return self._execute(execute, name, keys, args)
        except ResponseError:
            raise
        except BaseException:
            connection.disconnect()  # or its answer would be read as the next command's
            raise
        finally:
            pool.release(connection)

    @staticmethod
    def _execute(execute: Callable[..., Any], name: str, keys: list[str], args: list[Any]) -> Any:
        try:
            return execute("EVALSHA", digest(name), len(keys), *keys, *args)
        except NoScriptError:
            return execute("EVAL", source(name), len(keys), *keys, *args)
