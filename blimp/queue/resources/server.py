"""A pool's way to its server: the scripts, run on whatever client it was given."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError, LeaseError
from blimp.queue.redis.urls import link_errors

if TYPE_CHECKING:
    from redis import Redis

    from blimp.queue.redis.server import RedisServer

NAMES = ("acquire", "add", "advance", "dismiss", "look", "release", "remove", "renew", "take_away")
WRONG_TYPE = "POOLTYPE"


@cache
def source(name: str) -> str:
    folder = files(__package__) / "lua"
    return (folder / "pool.lua").read_text() + (folder / f"{name}.lua").read_text()


@cache
def digest(name: str) -> str:
    """Return the hash that the server knows a script by."""
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


class Server:
    """Runs scripts on a redis-py client, or on an app's `broker_link`: the broker in use.

    Every script may be run again where its answer was lost: it changes nothing more then.
    """

    def __init__(self, client: Redis | RedisServer) -> None:
        self._given: Any = client
        self._is_link = hasattr(client, "ask")
        if not self._is_link and not hasattr(client, "execute_command"):
            raise ConfigError(
                f"a pool's client must be a redis.Redis, or an app's broker_link: {client!r:.60}"
            )

    @property
    def client(self) -> Any:
        return self._given.client if self._is_link else self._given

    @property
    def url(self) -> str:
        """For messages: where the server is."""
        if self._is_link:
            return str(self._given.brokers.current)
        about = self._given.connection_pool.connection_kwargs
        return str(about.get("path") or f"{about.get('host')}:{about.get('port')}")

    def run(self, name: str, keys: list[str], args: list[Any]) -> Any:
        """Run a script; texts come back as `str`.

        Raises LinkError, and LeaseError naming a key of the wrong type; nothing changed then.
        """

        def execute(client: Any) -> Any:
            from redis.exceptions import NoScriptError, ResponseError

            try:
                try:
                    return client.execute_command("EVALSHA", digest(name), len(keys), *keys, *args)
                except NoScriptError:
                    return client.execute_command("EVAL", source(name), len(keys), *keys, *args)
            except ResponseError as error:
                _, found, reason = str(error).partition(f"{WRONG_TYPE} ")
                if found:
                    raise LeaseError(f"{reason}: it is not this pool's; nothing changed") from None
                raise

        if self._is_link:
            return _text(self._given.ask(execute))
        with link_errors(self.url):
            return _text(execute(self._given))


def _text(answer: Any) -> Any:
    """Return `answer` with its bytes as text, whether or not the client decodes them."""
    if isinstance(answer, bytes):
        return answer.decode(errors="backslashreplace")
    if isinstance(answer, list):
        return [_text(part) for part in answer]
    return answer
