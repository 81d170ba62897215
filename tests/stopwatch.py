"""How soon something happens, apart from what the rest of the machine does meanwhile."""

import os
import time
from pathlib import Path

PRESSURE = Path("/proc/pressure")  # see the kernel's Documentation/accounting/psi.rst
STEAL = 8  # the column of /proc/stat: what a hypervisor gave to others


class Stopwatch:
    """Measures from its making, for a limit that a figure of the ship asks for.

    A loaded machine makes anything late, and says for how long something waited for a processor
    or a disk: that is no fault of what is measured. Alone on a machine nearly nothing waits.
    """

    def __init__(self) -> None:
        self._waited_s = _waited_s()
        self._began_s = time.monotonic()

    def undisturbed_s(self, until_s: float | None = None) -> float:
        """Return the seconds until now, or that moment, in which nothing waited."""
        until_s = time.monotonic() if until_s is None else until_s
        return until_s - self._began_s - self.disturbed_s()

    def disturbed_s(self) -> float:
        """Return the seconds in which something on this machine waited; without a count, 0."""
        return _waited_s() - self._waited_s


def _waited_s() -> float:
    """Return for how long something has waited since the machine started."""
    waited_s = 0.0
    for name in ("cpu", "io"):
        try:
            some = (PRESSURE / name).read_text().splitlines()[0]
        except OSError:  # a kernel without it
            continue
        waited_s += int(some.rpartition("total=")[2]) / 1e6
    stolen = Path("/proc/stat").read_text().split("\n", 1)[0].split()[STEAL]
    return waited_s + int(stolen) / os.sysconf("SC_CLK_TCK")
