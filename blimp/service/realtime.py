"""What the kernel can do for a punctual loop: keep its memory, run it first, clock the buses.

None of it is needed to fly: what is refused, or too slow, is reported, and no more.
"""

import ctypes
import os
import resource
from pathlib import Path

from blimp.config import realtime_from_environment

PRIORITY = 50  # of SCHED_FIFO, as in the unit: below the kernel's own threads for buses
BUS_SHARE = 0.4  # of a cycle that transfers on one bus may take: the rest is for the loop
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4  # mlockall(2)
_CAP_IPC_LOCK = 14  # capabilities(7)


def make_realtime() -> tuple[str, ...]:
    """Lock this process's memory, and have its threads to come scheduled by SCHED_FIFO.

    Call it before threads are started. Returns what was refused, each as "what: why". Raises
    ConfigError if BLIMP_REALTIME is neither 0 nor 1.
    """
    refused = {"mlockall": _lock_memory(), "SCHED_FIFO": _schedule_first()}
    return tuple(f"{what}: {why}" for what, why in refused.items() if why)


def i2c_speed_hz(bus: str, root: Path = Path("/")) -> int:
    """Return what the kernel clocks `bus` ("i2c-1") with, in Hz; 0 if it does not say."""
    speed = root / f"sys/class/i2c-adapter/{bus}/of_node/clock-frequency"
    return int.from_bytes(speed.read_bytes()[:4], "big") if speed.exists() else 0


class BusLoad:
    """How full the I2C buses are: `note` after each cycle, then ask `slow`."""

    def __init__(self, *, rate_hz: float) -> None:
        self._rate_hz = rate_hz
        self._before: dict[str, int] = {}
        self._worst: dict[str, int] = {}  # bits of the fullest cycle

    def note(self, bits: dict[str, int]) -> None:
        """Take how many bits each bus has carried so far."""
        for bus, count in bits.items():
            cycle = count - self._before.get(bus, count)
            self._worst[bus] = max(self._worst.get(bus, 0), cycle)
        self._before = bits

    def slow(self, root: Path = Path("/")) -> tuple[str, ...]:
        """Return each bus whose fullest cycle takes more than `BUS_SHARE` of the period, and why.

        A bus whose speed the kernel does not tell is not among them: `blimp doctor` warns of it.
        """
        found = []
        for bus, worst in self._worst.items():
            speed_hz, bits_per_s = i2c_speed_hz(bus, root), worst * self._rate_hz
            if 0 < speed_hz < bits_per_s / BUS_SHARE:
                found.append(
                    f"{bus}: {speed_hz // 1000} kHz, at which transfers take up to "
                    f"{100.0 * bits_per_s / speed_hz:.0f} % of a cycle, {BUS_SHARE:.0%} are to be "
                    f"had: clock it with {bits_per_s / BUS_SHARE / 1000:.0f} kHz or more"
                )
        return tuple(found)


def _lock_memory() -> str:
    """Have no page read from a card in flight; return why not, "" if it is done."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit != resource.RLIM_INFINITY and not _may_lock_any():
        # It might succeed now, and then an allocation in flight would fail.
        return f"RLIMIT_MEMLOCK is {limit} bytes, must be unlimited"
    libc = ctypes.CDLL(None, use_errno=True)
    # What is mapped now is read in. What comes later is kept once it is used: all of it would
    # include 8 MB of stack for each thread.
    for flags in (_MCL_CURRENT, _MCL_FUTURE | _MCL_ONFAULT):
        if libc.mlockall(flags):
            return os.strerror(ctypes.get_errno())
    return ""


def _may_lock_any() -> bool:
    """Whether this process has CAP_IPC_LOCK, for which the limit does not count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> _CAP_IPC_LOCK & 1)
    return False


def _schedule_first() -> str:
    if os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):
        return ""  # the service manager has done it
    if not realtime_from_environment():
        return "not asked for: BLIMP_REALTIME is 0"
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except OSError as error:
        return error.strerror or str(error)
    return ""
