"""Cleans up after a killed supervisor: `python -m blimp.guard DIR REGISTRATION AIRFRAME`.

kill -9 leaves no time for a last word, so this process waits for the end of the
supervisor's pipe. The kernel has told the children to end by then (PR_SET_PDEATHSIG); what
is left to do is to see that they have, in the right order, that the outputs are safe, and
that no file stays behind. It imports nothing heavy: it sleeps for the life of the stack.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

from blimp.registry import unregister

FLIGHT_GRACE_S = 0.3  # to drive its outputs safe on its own
END_GRACE_S = 2.0


def main() -> int:
    """Wait for the pipe's end; return 0 when all was clean, 1 when something had to be forced."""
    directory, registration = Path(sys.argv[1]), Path(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # its one reason to end is the pipe's end
    children: dict[str, int] = {}  # role -> pidfd, opened while the number is surely its own
    claimed = False  # before that, the directory may be another ship's
    for line in sys.stdin:
        words = line.split()
        if words == ["done"]:
            return 0
        if words == ["claimed"]:
            claimed = True
        if len(words) == 3 and words[0] == "pid":
            with contextlib.suppress(ProcessLookupError):
                children[words[1]] = os.pidfd_open(int(words[2]))
    return clean_up(children, directory, registration, sys.argv[3]) if claimed else 0


def clean_up(children: dict[str, int], directory: Path, registration: Path, airframe: str) -> int:
    """End what still runs, the ship before its world, and remove the files."""
    started_s = time.monotonic()
    forced = (
        [] if "flight" not in children or _ended(children["flight"], FLIGHT_GRACE_S) else ["flight"]
    )
    unreached = _make_safe(directory, airframe) if "world" in children else []
    safe_s = time.monotonic() - started_s
    for role in ("worker", "flight", "world", "broker"):
        if role in children:
            _signal(children[role], signal.SIGTERM)
    for role, pidfd in children.items():
        if not _ended(pidfd, END_GRACE_S):
            forced.append(role)
            _signal(pidfd, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)
    unregister(registration, runtime_dir=directory)
    report = {
        "event": "cleaned",
        "outputs_safe": not unreached,
        "safe_after_s": round(safe_s, 3),
        "clean_after_s": round(time.monotonic() - started_s, 3),
        "forced": forced,
    }
    print(json.dumps(report), file=sys.stderr, flush=True)
    return 1 if unreached or forced else 0


def _make_safe(directory: Path, airframe: str) -> list[str]:
    from blimp.app import make_safe  # heavy: only when it is needed

    return make_safe(airframe=airframe, runtime_dir=directory, simulated=True)


def _ended(pidfd: int, within_s: float) -> bool:
    return bool(select.select([pidfd], [], [], within_s)[0])


def _signal(pidfd: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


if __name__ == "__main__":
    sys.exit(main())
