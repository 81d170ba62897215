"""Lua scripts: how they are read, and the one way to run them. Tested by test_store_model.py."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_SECTION = re.compile(r"^--- (\w+)\n(#!lua[^\n]*\n)?", re.MULTILINE)


class Script:
    """One script. The server knows it by its hash, and gets its text if it does not."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: Any, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run it. It may run twice if an answer is lost: redis-py repeats it once."""
        # redis-py's own Script does the same in twice the time.
        return self._execute(client.execute_command, keys, args)

    def run_once(self, client: Any, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script that answers differently when repeated.

        An answer that is lost with its connection is an error: redis-py would repeat the
        script, and the caller would not know.
        """
        import redis  # 90 ms, which an app that only defines tasks need not pay

        pool = client.connection_pool
        connection = pool.get_connection()

        def execute(*command: Any) -> Any:
            connection.send_command(*command)
            return connection.read_response()

        try:
            return self._execute(execute, keys, args)
        except redis.ResponseError:
            raise
        except BaseException:
            connection.disconnect()  # or its answer would be read as the next command's
            raise
        finally:
            pool.release(connection)

    def _execute(
        self, execute: Callable[..., Any], keys: Sequence[str], args: Sequence[Any]
    ) -> Any:
        import redis

        with contextlib.suppress(redis.exceptions.NoScriptError):
            return execute("EVALSHA", self.digest, len(keys), *keys, *args)
        return execute("EVAL", self.text, len(keys), *keys, *args)


def read_functions(name: str) -> str:
    """Return the Lua functions in the file `name` of this folder: several rooms use them."""
    return (Path(__file__).parent / name).read_text()


def read_scripts(path: Path, *, functions: str = "") -> dict[str, Script]:
    """Return the scripts in the file at `path`, by name.

    `--- NAME` on a line begins a script. What stands before the first one, and `functions`,
    is put before each. A `#!lua` line below the name comes first of all.
    """
    own, *parts = _SECTION.split(path.read_text())
    prelude = functions + own
    return {
        name: Script((flags or "") + prelude + text)
        for name, flags, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }
