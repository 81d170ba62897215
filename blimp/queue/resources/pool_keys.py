"""Every key of a pool on the server. All share one hash tag: in a cluster, one node."""

from __future__ import annotations

import msgspec

from blimp.errors import ConfigError

MAX_NAME_LENGTH = 200
PREFIX = "blimp:pool"


class PoolKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one pool, in the order in which every script is given them.

    executors: hash, all that belong to the pool: "" where free, else its grant as JSON.
    free: sorted set of the free ones by when they became so, µs; the longest free is first.
    due: sorted set of the busy ones by when their grants end, µs.
    holders: hash, the executor that each holder has.
    waiting: sorted set of holders that wait, by place. patience: the same by when the place
    lapses, µs. ended: sorted set of the latest grants that ended, by token.
    counts: hash of counters, and of the pool's clock and last token.
    """

    executors: str
    free: str
    due: str
    holders: str
    waiting: str
    patience: str
    ended: str
    counts: str

    def all(self) -> list[str]:
        return [getattr(self, name) for name in self.__struct_fields__]


def pool_keys(name: str) -> PoolKeys:
    """Return the keys of the pool `name`. Raises ConfigError for what cannot be a name."""
    check_name("pool", name)
    if "{" in name or "}" in name:
        raise ConfigError(f"pool {name!r}: no braces, its keys share a hash tag")
    base = f"{PREFIX}:{{{name}}}"
    return PoolKeys(**{part: f"{base}:{part}" for part in PoolKeys.__struct_fields__})


def bell_channels(name: str) -> str:
    """Return what the channel of every waiter of the pool `name` begins with; his name follows."""
    return f"{PREFIX}:{{{name}}}:bell:"


def check_name(what: str, name: object) -> str:
    """Return `name`. Raises ConfigError where it is no text of 1 to MAX_NAME_LENGTH letters."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
        raise ConfigError(f"{what} {name!r:.60}: must be a text of 1 to {MAX_NAME_LENGTH} letters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {name!r:.60}: has letters that UTF-8 cannot write") from None
    return name
