"""Servers that take over from each other: a cluster, and a master with a replica and sentinels.

All are processes on loopback, ended by their number. Start them from the main thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import redis

from tests.redis_server import RedisServer, free_port
from tests.repeating import until

NODE_TIMEOUT_S = 1.0  # a node that is silent for longer has failed
DOWN_AFTER_S = 2.0  # the same, for a sentinel; one that is slow must not be taken for dead
TRIES = 5
SLOTS = 16384
MASTERS = 3


def started(stack: ExitStack, make: Callable[[], RedisServer]) -> RedisServer:
    """Return a server that runs; another process may take the port that was free a moment ago."""
    for left in reversed(range(TRIES)):
        try:
            return stack.enter_context(make())
        except AssertionError:
            if not left:
                raise
    raise AssertionError("unreachable")


class Cluster:
    """Masters, and their replicas: the first ones are of the master at the same place."""

    def __init__(self, masters: list[RedisServer], replicas: list[RedisServer]) -> None:
        self.masters, self.replicas = masters, replicas

    def url(self, tag: str) -> str:
        """Return a URL that names first the master of the tag's slot, which a test may kill."""
        first = self.master_of(tag)
        ports = [first.port, *(one.port for one in self.masters if one is not first)]
        return f"cluster://{','.join(f'127.0.0.1:{port}' for port in ports)}/{tag}"

    def master_of(self, tag: str) -> RedisServer:
        """Return the server that had the slot of `tag` at the start."""
        return self.masters[place_of(tag)]


def place_of(tag: str) -> int:
    """Return the place of the master that has the slot of `tag` at the start."""
    return redis.crc.key_slot(tag.encode()) * MASTERS // SLOTS


@contextmanager
def running_cluster(directory: Path, *, spare: int | None = None) -> Iterator[Cluster]:
    """spare: the place of a master that has a second replica."""
    masters, replicated = MASTERS, [*range(MASTERS), *([] if spare is None else [spare])]
    with ExitStack() as stack:
        servers: list[RedisServer] = []
        buses: list[int] = []
        for number in range(masters + len(replicated)):
            own = directory / str(number)
            own.mkdir()

            def node(own: Path = own) -> RedisServer:
                buses.append(free_port())
                options = ("--cluster-enabled", "yes", "--cluster-port", buses[-1])
                timeout = ("--cluster-node-timeout", int(NODE_TIMEOUT_S * 1000))
                return RedisServer(own, *options, *timeout, "--appendonly", "yes")

            servers.append(started(stack, node))
            del buses[number:-1]  # of tries that failed
        clients = [stack.enter_context(one.client(decode_responses=True)) for one in servers]
        for place, client in enumerate(clients[:masters]):
            first, last = place * SLOTS // masters, (place + 1) * SLOTS // masters - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for server, bus in zip(servers[1:], buses[1:], strict=True):
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", server.port, bus)

        def know_each_other() -> bool:
            return all(len(one.cluster("NODES")) == len(servers) for one in clients)

        until(know_each_other, "the nodes do not know each other")
        ids = [one.execute_command("CLUSTER MYID") for one in clients]
        for place, replica in zip(replicated, clients[masters:], strict=True):

            def follows(replica: redis.Redis = replica, id: object = ids[place]) -> bool:
                with suppress(redis.ResponseError):  # it has not heard yet who that is
                    return bool(replica.execute_command("CLUSTER REPLICATE", id))
                return False

            until(follows, "a replica does not follow")

        def is_complete() -> bool:
            about = [one.info("replication") for one in clients]
            return all(one.cluster("INFO")["cluster_state"] == "ok" for one in clients) and all(
                int(one["connected_slaves"]) == replicated.count(place)
                if place < masters
                else one.get("master_link_status") == "up"
                for place, one in enumerate(about)
            )

        until(is_complete, "the cluster is not complete")
        yield Cluster(servers[:masters], servers[masters:])


class Watched:
    """A master with replicas, watched by sentinels under the name `SERVICE`."""

    SERVICE = "weather"

    def __init__(self, master: RedisServer, ports: list[int]) -> None:
        self.master, self._ports = master, ports

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"sentinel://{hosts}/{self.SERVICE}/0"


@contextmanager
def running_sentinels(
    directory: Path, *, sentinels: int = 3, replicas: int = 1
) -> Iterator[Watched]:
    with ExitStack() as stack:

        def start(name: str, *options: object) -> RedisServer:
            (directory / name).mkdir()
            own = directory / name
            return started(stack, lambda: RedisServer(own, "--appendonly", "yes", *options))

        master = start("master")
        for number in range(replicas):
            start(f"replica{number}", "--replicaof", "127.0.0.1", master.port)
        name, ports = Watched.SERVICE, []
        for number in range(sentinels):
            own = directory / f"sentinel{number}"
            own.mkdir()
            server = RedisServer(own, "--sentinel")
            config = (
                f"sentinel monitor {name} 127.0.0.1 {master.port} {sentinels // 2 + 1}\n"
                f"sentinel down-after-milliseconds {name} {int(DOWN_AFTER_S * 1000)}\n"
                f"sentinel failover-timeout {name} 2000\n"
            )
            stack.callback(server.kill)
            server.start(config=config)
            ports.append(server.port)
        clients = [stack.enter_context(redis.Redis(port=port)) for port in ports]

        def know_each_other() -> bool:
            return all(
                len(one.sentinel_sentinels(name)) == sentinels - 1
                and [slave["flags"] for slave in one.sentinel_slaves(name)] == ["slave"] * replicas
                for one in clients
            )

        until(know_each_other, "the sentinels do not know each other")
        yield Watched(master, ports)
