"""A process that has imported everything, and forks workers and clients within milliseconds.

It has one thread, so that a fork is complete. Each line of its input is a JSON object that
describes one process, see `become`; it answers with the number of the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import redis.connection  # noqa: F401  imported here, it is imported in every fork
from kombu.transport import virtual  # noqa: F401

from blimp.processes import Child
from blimp.queue import Worker
from blimp.queue.brokers.streams import consumer
from blimp.queue.brokers.streams.store import StreamsOptions
from tests.faults import client, tasks
from tests.faults.motor import MotorLink
from tests.signals import stop_process

PR_SET_PDEATHSIG = 1


def become(wish: dict[str, Any]) -> int:
    """Become the process that `wish` describes, a worker or a client; return its exit status."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log_file = os.open(wish.pop("log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log_file), (2, log_file)):
        os.dup2(target, number)
    tasks.motor = MotorLink(wish.pop("motor"))
    if "run" in wish:
        return client.send_all(**wish)
    return become_worker(**wish)


def become_worker(*, broker: str, name: str, lease_s: float, options: dict[str, Any]) -> int:
    """Work until stopped; return the exit status."""
    vars(consumer)["StreamsOptions"] = partial(StreamsOptions, lease_s=lease_s)
    timeout_s = options.pop("timeout_s", 2.0)
    with tasks.make_app(broker, timeout_s=timeout_s) as app:
        return Worker(app=app, name=name, **options).run()


WATCHED = b"watched\n"  # the parent can see the process that was forked last


class Zygote:
    """The parent's end of it. A context manager; what it forked dies with it.

    Start it from the main thread.
    """

    def __init__(self) -> None:
        self._child = Child(
            name="zygote",
            arguments=[sys.executable, "-m", "tests.faults.zygote"],
            death_signal=signal.SIGKILL,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def fork(self, *, broker: str, motor: Path, name: str, log: Path, **options: Any) -> Forked:
        """Have a worker of that name; `options` are Worker's, and `lease_s`."""
        lease_s = options.pop("lease_s", StreamsOptions().lease_s)
        wish = {"broker": broker, "motor": str(motor), "name": name, "log": str(log)}
        return self._ask(wish | {"lease_s": lease_s, "options": options})

    def fork_client(
        self, *, broker: str, motor: Path, run: str, log: Path, confirmed: Path
    ) -> Forked:
        """Have a publishing client; see client.py."""
        return self._ask({
            "broker": broker, "motor": str(motor), "run": run, "log": str(log),
            "confirmed": str(confirmed),
        })  # fmt: skip

    def _ask(self, wish: dict[str, Any]) -> Forked:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(wish).encode() + b"\n")
        self._child.stdin.flush()
        forked = Forked(int(self._child.stdout.readline()))
        self._child.stdin.write(WATCHED)
        self._child.stdin.flush()
        return forked

    def close(self) -> None:
        self._child.end(within_s=0.0)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Forked:
    """A process that a zygote forked, watched by a pidfd."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if number is signal.SIGSTOP:
                stop_process(self.pid)
            else:
                signal.pidfd_send_signal(self._pidfd, number)

    def wait(self, timeout_s: float) -> bool:
        """Say whether it has ended by then."""
        import select

        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000.0))

    def kill(self) -> None:
        """End it with SIGKILL, and return when it is gone."""
        self.send(signal.SIGKILL)
        if not self.wait(10.0):
            raise TimeoutError(f"process {self.pid} outlived SIGKILL")

    def close(self) -> None:
        """Kill it, and give up its descriptor. Idempotent."""
        if self._pidfd >= 0:
            self.kill()
            os.close(self._pidfd)
            self._pidfd = -1


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps what ends
    for line in iter(sys.stdin.readline, ""):
        wish = json.loads(line)
        held, release = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                os.close(release)
                os.read(held, 1)  # its end, once it is watched: one that ends before is nobody
                os.close(held)
                status = become(wish)
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(pid, flush=True)
        sys.stdin.readline()
        os.close(release)
        os.close(held)


if __name__ == "__main__":
    main()
