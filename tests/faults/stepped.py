"""A real server whose clock a test steps, and the clocks of those who ask it."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import signal
import struct
import time
from collections.abc import Iterator
from typing import Any

from blimp.queue.redis.client import open_redis
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.forked import ran
from tests.needs import not_run

# What the server reads of the wall clock, plus the ns in a file; monotonic clocks stay.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset_ns;

__attribute__((constructor)) static void open_offset(void) {
  int file = open(getenv("STEP_FILE"), O_RDONLY);
  void *page = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
  if (file < 0 || page == MAP_FAILED) abort();
  offset_ns = page;
}

static int64_t wall_ns(void) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  struct timespec at;
  real(CLOCK_REALTIME, &at);
  return at.tv_sec * INT64_C(1000000000) + at.tv_nsec + (offset_ns ? *offset_ns : 0);
}

int clock_gettime(clockid_t which, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  if (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE) return real(which, at);
  int64_t now_ns = wall_ns();
  at->tv_sec = now_ns / 1000000000;
  at->tv_nsec = now_ns % 1000000000;
  return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  (void)zone;
  int64_t now_ns = wall_ns();
  at->tv_sec = now_ns / 1000000000;
  at->tv_usec = now_ns % 1000000000 / 1000;
  return 0;
}

time_t time(time_t *at) {
  time_t now_s = wall_ns() / 1000000000;
  if (at) *at = now_s;
  return now_s;
}
"""


PATIENCE_S, NEAR_S = 60.0, 0.5


def server_time_s(client: Any) -> float:
    """Return the server's clock as its scripts see it."""
    seconds, microseconds = client.eval("return redis.call('TIME')", 0)
    return float(int(seconds) + int(microseconds) / 1e6)


def until_stepped(client: Any, seconds: float) -> None:
    """Return once the server's clock is ahead of ours by that much.

    Valkey carries its wall clock on with a monotonic one for some ms, before it reads it again.
    """
    until_s = time.monotonic() + PATIENCE_S
    while abs(server_time_s(client) - time.time() - seconds) > NEAR_S:
        assert time.monotonic() < until_s, "the server does not see its clock step"


class SteppedServer:
    """A server under the shim, and what a machine's monotonic clock says to its scripts.

    `step` moves the server's clock alone; `advance` lets time pass, on all clocks, at once.
    """

    def __init__(self, broker: EmbeddedBroker, offset: mmap.mmap) -> None:
        self.url = broker.url
        self.pid = broker.pid
        self.client: Any = open_redis(broker.url, timeout_s=20.0)
        self.machine = "a" * 32
        self._broker = broker
        self._offset = offset
        self._passed_s = 0.0

    def reset(self) -> None:
        """Have an empty server that is in time."""
        self._set(0.0)
        self._passed_s = 0.0
        self.machine = "a" * 32
        self.client.flushall()

    def step(self, seconds: float) -> None:
        self._set(self.offset_s + seconds)

    def die(self, *, offset_s: float, keeps_data: bool) -> None:
        """Kill the server, and have it back with its clock off by `offset_s`."""
        os.kill(self._broker.pid, signal.SIGKILL)
        while self._broker.poll() is None:
            time.sleep(0.001)
        if not keeps_data:
            for path in self._broker.directory.glob("appendonlydir/*"):
                path.unlink()
        self._offset[:8] = struct.pack("q", round(offset_s * 1e9))
        self._broker.start()
        self.pid = self._broker.pid

    def advance(self, seconds: float) -> None:
        self._passed_s += seconds
        self.step(seconds)

    @property
    def offset_s(self) -> float:
        (ns,) = struct.unpack("q", self._offset[:8])
        return float(ns / 1e9)

    def _set(self, seconds: float) -> None:
        self._offset[:8] = struct.pack("q", round(seconds * 1e9))
        until_stepped(self.client, seconds)

    def time_s(self) -> float:
        return server_time_s(self.client)

    def words(self) -> str:
        """Return what `monotonic_words` of a machine with these clocks would."""
        return f"{self.machine} {round((time.monotonic() + self._passed_s) * 1e6)}"


@contextlib.contextmanager
def stepped_server() -> Iterator[SteppedServer]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise not_run("no C compiler here, which makes the server's clock step: install gcc")
    with socket_directory() as directory:
        source, shim, step = (directory / name for name in ("shim.c", "shim.so", "step"))
        source.write_text(SHIM)
        step.write_bytes(bytes(8))
        words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl"]
        ran(words, check=True)
        before = ("env", f"LD_PRELOAD={shim}", f"STEP_FILE={step}")
        with (
            step.open("r+b") as file,
            mmap.mmap(file.fileno(), 8) as offset,
            EmbeddedBroker(directory=directory / "b", before=before) as broker,
        ):
            server = SteppedServer(broker, offset)
            try:
                yield server
            finally:
                server.client.close()
