"""What may wait: parameters, plans, logs and files. All that is asked for goes through one queue.

Each peer has its turn, and as much as it has room for; all have one rate together. Between two
messages whatever else came is heard: no stop, arm or mode waits for this.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ground_station.mavlink.peer import Peer

BYTES_AT_ONCE, PAUSE_S = 6000, 0.01  # of all peers, then a pause: a UDP buffer holds them
LEAST_BYTES = 40  # what a request counts that is not answered
MAX_WAITING = 64  # requests of one peer: one that asks for more loses them, as on the air
MAX_STREAMS = 4  # answers of several messages that one peer is sent; the newest are


class Job(Protocol):
    """One request. step: sends the next message of its answer; whether there is another one."""

    async def step(self) -> bool: ...


class _Jobs:
    """Those of one peer. A new one is begun before another one goes on: it may end that."""

    def __init__(self) -> None:
        self.new: deque[Job] = deque()
        self.streams: deque[Job] = deque(maxlen=MAX_STREAMS)

    async def step(self) -> None:
        job = (self.new or self.streams).popleft()
        if await job.step():
            self.streams.append(job)


class Bulk:
    """Used in one event loop. reaches: whether a peer is still there."""

    def __init__(self, *, reaches: Callable[[Peer], bool]) -> None:
        self._reaches = reaches
        self._waiting: dict[Peer, _Jobs] = {}
        self._serving: asyncio.Task[Any] | None = None

    def add(self, peer: Peer, job: Job) -> None:
        jobs = self._waiting.setdefault(peer, _Jobs())
        if len(jobs.new) < MAX_WAITING:
            jobs.new.append(job)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())

    async def close(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._serving

    async def _serve(self) -> None:
        while True:
            left, is_idle = BYTES_AT_ONCE, False
            while left > 0 and not is_idle:
                is_idle = True
                for peer in list(self._waiting):
                    if not self._reaches(peer):
                        del self._waiting[peer]
                    elif left > 0 and peer.room > 0.0:
                        left -= await self._step(peer)
                        is_idle = False
                        await asyncio.sleep(0)
            if not self._waiting:
                return
            await asyncio.sleep(PAUSE_S)

    async def _step(self, peer: Peer) -> int:
        """Do a step for a peer, which goes to the end of the round; return how much it counts."""
        jobs, before = self._waiting[peer], peer.sent_bytes
        await jobs.step()
        del self._waiting[peer]
        if jobs.new or jobs.streams:
            self._waiting[peer] = jobs
        return max(LEAST_BYTES, peer.sent_bytes - before)
