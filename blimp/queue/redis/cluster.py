"""A Redis or Valkey Cluster: all keys of an app are in one slot, and its master is found.

`cluster://host:7000,host2:7001/TAG`: each key gets the hash tag `{TAG}`, so that every script has
all its keys on one master. redis-py's pool of a Sentinel connects to that master, and follows a
failover. Tested by test_cluster.py and test_new_master.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import Redis, RedisError
from redis.cluster import parse_cluster_slots
from redis.connection import Connection, HiredisRespSerializer
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, ResponseError, TryAgainError
from redis.exceptions import ConnectionError as LostError
from redis.exceptions import TimeoutError as LateError
from redis.sentinel import MasterNotFoundError, SentinelManagedConnection

# Commands whose first word is followed by no key: a channel is of the whole cluster.
_KEYLESS = frozenset(
    (
        *("AUTH", "CLIENT", "CLUSTER", "CONFIG", "DISCARD", "EXEC", "HELLO", "INFO", "MULTI"),
        *("PING", "PUBLISH", "SCRIPT", "SELECT", "SUBSCRIBE", "UNSUBSCRIBE", "WAIT"),
    )
)
_ONLY_KEYS = frozenset(("DEL", "EXISTS", "MGET", "UNLINK"))
_WRITES = frozenset(("EVAL", "EVALSHA", "SET"))
_MOVED = (AskError, ClusterDownError, TryAgainError)  # MovedError is an AskError


def tagged(words: Sequence[Any], tag: str) -> tuple[Any, ...]:
    """Return a command with `tag` before each of its keys that does not begin with it."""
    name, *rest = words
    command = (name if isinstance(name, str) else name.decode()).split(" ")[0].upper()
    first, last = 0, 1
    if command in _KEYLESS or not rest:
        return tuple(words)
    if command in ("EVAL", "EVALSHA"):
        first, last = 2, 2 + int(rest[1])
    elif command in ("XREAD", "XREADGROUP"):
        first = [one in ("STREAMS", b"STREAMS") for one in rest].index(True) + 1
        last = first + (len(rest) - first) // 2
    elif command in _ONLY_KEYS:
        last = len(rest)
    for at in range(first, last):
        start: Any = tag.encode() if isinstance(rest[at], bytes) else tag
        if not rest[at].startswith(start):
            rest[at] = start + rest[at]
    return (name, *rest)


class TagPacker(HiredisRespSerializer):
    """Packs commands for a connection, their keys with the tag."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def pack(self, *args: Any) -> Any:
        return super().pack(*tagged(args, self._tag))


class SlotMaster:
    """Finds the master of a tag's slot: what redis-py's pool of a Sentinel asks for a master."""

    def __init__(self, nodes: Sequence[tuple[str, int]], **given: Any) -> None:
        self._nodes = [Redis(host=host, port=port, **given) for host, port in nodes]

    def discover_master(self, tag: str) -> tuple[str, int]:
        """Return host and port. Raises redis.ConnectionError if no node of the URL knows it."""
        slot, why = key_slot(tag.encode()), ""
        for node in self._nodes:
            try:
                answer = node.execute_command("CLUSTER SLOTS")
            except RedisError as error:
                why = str(error)
                continue
            host = node.get_connection_kwargs()["host"]
            for (first, last), found in parse_cluster_slots(answer, current_host=host).items():
                if first <= slot <= last:
                    name, port = found["primary"]
                    return str(name), int(port)
            why = f"no master has slot {slot}, that of {tag}"
        raise MasterNotFoundError(f"no node of the cluster names the master: {why}")


class SlotConnection(SentinelManagedConnection):
    """A connection to the master of the slot: one that is so no more is a lost one."""

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)
        except _MOVED as error:
            self.disconnect()  # type: ignore[no-untyped-call]  # the next asks who is the master
            raise LostError(f"the master of the slot has changed: {error}") from None


def waiting(kind: type[Connection], *, replicas: int, timeout_s: float) -> type[Connection]:
    """Return `kind` with a WAIT after each script or SET that is sent by itself.

    So an answer means that `replicas` replicas have the write, and all that was written before it
    on this server. Raises redis.TimeoutError if they have not within half of `timeout_s`, after
    which the socket gives up. redis-py does not repeat that; who does, as a publisher with its
    stamp, writes and waits again. Both commands go in one round trip.
    """

    class Waiting(kind):  # type: ignore[valid-type,misc]
        _owes = False

        def send_command(self, *args: Any, **kwargs: Any) -> None:
            super().send_command(*args, **kwargs)
            self._owes = args[0] in _WRITES
            if self._owes:
                super().send_command("WAIT", replicas, int(timeout_s * 500))

        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            owes, self._owes = self._owes, False
            try:
                answer = super().read_response(*args, **kwargs)
            except ResponseError:
                if owes:
                    super().read_response()
                raise
            if owes and (have := int(super().read_response())) < replicas:
                raise LateError(f"{have} replicas have what was written, not {replicas}")
            return answer

    return Waiting
