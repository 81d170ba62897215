"""An app without a server: its tasks run here, one after another, on a clock that a test moves.

    def test_reading(blimp_queue):
        queue = blimp_queue(app)
        reading = read.apply_async(("EDDB",), countdown=60.0)
        assert queue.run() == 0
        queue.advance(60.0)
        assert reading.get(timeout=10.0) == 12.5

Each runs in the thread of who calls `run` or `advance`, or waits for a result: then time passes
until it is there. What sends, runs, retries and follows is a Worker, on the broker of
brokers/in_memory.py. Time limits and resource pools are missing, and a broadcast reaches nobody.

Tested by test_in_process.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from blimp.clock import ManualClock
from blimp.errors import ConfigError
from blimp.queue.brokers.in_memory import InMemoryBroker
from blimp.queue.publish.revocations import Revocations
from blimp.queue.redis.clock import BrokerClock
from blimp.queue.testing.in_process import InProcess
from blimp.queue.testing.memory import (
    NO_POOLS,
    InMemoryAwaiting,
    InMemoryChords,
    InMemoryResults,
    InMemoryServer,
)
from blimp.queue.worker.middleware import default_middleware
from blimp.queue.worker.requires import Leftovers, Requires

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.worker.job import CallNext, Job

__all__ = ["InProcess", "in_process"]


@contextlib.contextmanager
def in_process(app: TaskApp, *, start: datetime | None = None) -> Iterator[InProcess]:
    """Have `app` need no server for the block: what it sends waits in the InProcess.

    start: what its clock shows, now by default. Raises ConfigError for one that is so already.
    """
    if isinstance(app.clock, _Clock):
        raise ConfigError(f"app {app.name!r} is in process already")
    with contextlib.ExitStack() as ends:
        ends.callback(_put_back, app, dict(vars(app)))
        start_s = (start or datetime.now(UTC)).timestamp()
        clock = _Clock(start_s=0.0, wall_offset_s=start_s)
        broker = InMemoryBroker(clock)
        _take_over(app, broker, clock)
        queue = InProcess(app, broker=broker, clock=clock)
        if isinstance(app.results, InMemoryResults):
            app.results.queue = queue
        ends.callback(queue.close)
        yield queue


def _put_back(app: TaskApp, saved: dict[str, Any]) -> None:
    vars(app).clear()
    vars(app).update(saved)


def _take_over(app: TaskApp, broker: InMemoryBroker, clock: ManualClock) -> None:
    """Have `app` send to `broker`, and keep results and all else in memory."""
    own = vars(app)
    for name in ("chords", "follow_ups", "awaiting", "kept", "pools", "publisher"):
        own.pop(name, None)
    server: Any = InMemoryServer(clock)
    own |= {
        "clock": clock,
        "broker_kind": broker,
        "capabilities": broker.capabilities,
        "shares_server": False,
        "broker_clock": BrokerClock(link=None, clock=clock),
        "revocations": Revocations(link=None, app=app.name, signer=app.signer),
        "on_sent": None,
        "events": False,
        "awaiting": InMemoryAwaiting(app),
    }
    if app.has_store:
        own |= {
            "_store": server,
            "chords": InMemoryChords(link=server, keep_s=0, signer=app.signer),
        }
    if app.middleware is None:
        layers = default_middleware(app)
        kept = [one for one in layers if not isinstance(one, Requires | Leftovers)]
        own["middleware"] = (*kept, _NoPools())
    if app.results is not None:
        own["results"] = InMemoryResults(clock=clock, limit_bytes=app.result_limit_bytes)


class _Clock(ManualClock):
    """What an app's is while it is in process."""


class _NoPools:
    """In the place of Requires. Of one key never more run at once: nothing does."""

    def wants(self, job: Job) -> bool:
        return job.task.options.requires is not None

    def __call__(self, job: Job, _: CallNext) -> Awaitable[Outcome]:
        raise ConfigError(f"{job.task.name} requires {job.task.options.requires!r}: {NO_POOLS}")
