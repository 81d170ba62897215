"""A proving ground for a test, and workers forked in milliseconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blimp.queue import TaskApp
from tests.faults.ground import Ground, proving_ground
from tests.faults.proxy import Proxy
from tests.faults.server_side import ServerSide
from tests.faults.tasks import APP, make_app
from tests.faults.workload import LEASE_S
from tests.faults.zygote import Forked, Zygote

IGNORING_SIGXFSZ = ("env", "--ignore-signal=XFSZ")
Fork = Callable[..., Forked]


@pytest.fixture
def ground() -> Iterator[Ground]:
    # A file that may not grow is an error to the server then, not its end.
    with proving_ground(before=IGNORING_SIGXFSZ, appendfsync="always") as ground:
        yield ground


@pytest.fixture
def proxy(ground: Ground) -> Iterator[Proxy]:
    """A proxy before the ground's server."""
    upstream = ground.directory / "b" / "broker.sock"
    with contextlib.closing(Proxy(path=ground.directory / "p", upstream=upstream)) as proxy:
        yield proxy


@pytest.fixture
def through_proxy(ground: Ground, proxy: Proxy) -> str:
    """The server's URL by way of the proxy."""
    return f"redis+socket://{ground.directory / 'p'}?virtual_host=0"


@pytest.fixture
def side(ground: Ground) -> Iterator[ServerSide]:
    side = ServerSide(ground.url, queue=APP)
    yield side
    side.close()


@pytest.fixture
def faults(ground: Ground) -> Iterator[TaskApp]:
    """The sender's end of the app that forked workers run."""
    with make_app(ground.url) as app:
        yield app


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as zygote:
        yield zygote


@pytest.fixture
def fork(ground: Ground, zygote: Zygote) -> Iterator[Fork]:
    """Fork a worker of a name, with short leases; it is killed when the test ends."""
    forked: list[Forked] = []

    def fork_one(name: str, *, broker: str = "", **options: Any) -> Forked:
        worker = zygote.fork(
            broker=broker or ground.url,
            motor=ground.socket,
            name=name,
            log=ground.directory / f"{name}.log",
            **({"lease_s": LEASE_S} | options),
        )
        forked.append(worker)
        return worker

    yield fork_one
    for worker in forked:
        worker.close()
