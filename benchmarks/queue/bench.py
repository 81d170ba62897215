"""One peer measured once: its worker idle, paced, and on a backlog; its publisher."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from benchmarks.queue import tally, usage
from benchmarks.queue.catalogue import ROOT, Peer
from tests.redis_server import RedisServer

SETTLE_S = 2.0
IDLE_S = 5.0
RATE_HZ = 50.0
START_S = 30.0
STOP_S = 10.0
STILL_S = 20.0  # no progress for so long is the end of a measurement
PUBLISHER = "benchmarks.queue.publish"


class Stalled(Exception):
    """A peer that does not start, or stops working; with the end of its log."""


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    memory_mb: float
    proportional_mb: float
    processes: int
    threads: int
    wake_ups_per_s: float
    commands_per_s: float


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    enqueued_per_s: float
    executed_per_s: float
    span_s: float
    processor_us: float  # of the worker, for one task; what it takes to start is left out
    memory_mb: float  # at its end


class Bench:
    """The server, the environments and what is common to all measurements."""

    def __init__(self, *, server: RedisServer, guests: Path) -> None:
        self._url, self._client = server.url, server.client()
        self._guests = guests

    def idle_and_paced(self, peer: Peer, *, messages: int) -> tuple[Idle, list[float]]:
        """Return what the worker uses while idle, and latencies in ms at 50 Hz."""
        with self._worker(peer) as (pid, read):
            self._publish(peer, count=0)
            _until(lambda: read().count >= 1, within_s=START_S)
            time.sleep(SETTLE_S)
            idle = self._idle(pid)
            self._publish(peer, count=messages, rate_hz=RATE_HZ)
            _until(lambda: len(read().latencies_ms) >= messages, within_s=START_S)
            return idle, read().latencies_ms

    def backlog(self, peer: Peer, *, messages: int) -> Backlog:
        """Queue `messages`, then start a worker and see how long it takes over them."""
        self._client.flushall()
        took_s = self._publish(peer, count=messages)
        with self._worker(peer, clear=False) as (pid, read):
            best, moved_s = 0, time.monotonic() + START_S
            begun = (0, 0.0)  # executed, and the processor time until then
            while best <= messages:  # one more was sent to connect
                time.sleep(0.05)
                count = read().count
                if count > best:
                    if not best:
                        begun = (count, usage.processor_s(usage.tree(pid)))
                    best, moved_s = count, time.monotonic()
                elif time.monotonic() - moved_s > STILL_S:
                    raise Stalled(f"{count} of {messages + 1} executed, and no more")
            span_s = read().span_s
            memory_mb, _ = usage.memory_mb(usage.tree(pid))
            used_s = usage.processor_s(usage.tree(pid)) - begun[1]
        return Backlog(
            messages=messages,
            enqueued_per_s=messages / took_s,
            executed_per_s=messages / span_s,
            span_s=span_s,
            processor_us=1e6 * used_s / max(1, best - begun[0]),
            memory_mb=memory_mb,
        )

    def _idle(self, pid: int) -> Idle:
        pids = usage.tree(pid)
        memory_mb, proportional_mb = usage.memory_mb(pids)
        before, commands, began_s = usage.wake_ups(pids), self._commands(), time.monotonic()
        time.sleep(IDLE_S)
        after, asked, ended_s = usage.wake_ups(pids), self._commands(), time.monotonic()
        woken = sum(count - before.get(thread, 0) for thread, count in after.items())
        return Idle(
            memory_mb=memory_mb,
            proportional_mb=proportional_mb,
            processes=len(pids),
            threads=len(after),
            wake_ups_per_s=woken / (ended_s - began_s),
            commands_per_s=(asked - commands - 1) / (ended_s - began_s),  # asking is one
        )

    def _commands(self) -> int:
        return int(self._client.info("stats")["total_commands_processed"])

    def _publish(self, peer: Peer, *, count: int, rate_hz: float = 0.0) -> float:
        """Send from a process of its own; return how many seconds it took."""
        python = str(peer.environment(self._guests) / "python")
        words = ["--count", str(count), "--rate", str(rate_hz)]
        command = [python, "-m", PUBLISHER, peer.module, *words]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Stalled(f"publisher of {peer.name}: {done.stderr[-2000:]}")
        return float(done.stdout.splitlines()[-1])

    @contextlib.contextmanager
    def _worker(
        self, peer: Peer, *, clear: bool = True
    ) -> Iterator[tuple[int, Callable[[], tally.Reading]]]:
        """Run the peer's worker; yield its process id and what reads its count."""
        if clear:
            self._client.flushall()
        with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                peer.command(self._guests),
                cwd=ROOT,
                env=self._environment({tally.DIRECTORY: directory}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield process.pid, lambda: tally.Reading(Path(directory))
            except Stalled as error:
                log.seek(0)
                text = log.read().decode(errors="replace")
                raise Stalled(f"{peer.name}: {error}\n{text[-2000:]}") from None
            finally:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=STOP_S)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _environment(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        own = {tally.URL: self._url, "PYTHONPATH": str(ROOT), "PATH": path}
        return {**os.environ, **own, **(extra or {})}


def _until(ask: Callable[[], bool], *, within_s: float) -> None:
    end_s = time.monotonic() + within_s
    while not ask():
        if time.monotonic() > end_s:
            raise Stalled(f"it did not come about in {within_s:g} s")
        time.sleep(0.01)
