"""`blimp demo` as a process: what a killed one leaves."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from blimp.service.show.demo import _ends

pytestmark = pytest.mark.long

DEADLINE_S = 60.0


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < until_s, what
        threading.Event().wait(0.05)


def files(home: Path) -> list[str]:
    """Return what is there, also while it is being removed."""
    return [f"{at}/{name}" for at, *names in os.walk(home) for name in chain(*names)]


def test_a_killed_demo_leaves_no_file() -> None:
    home = Path(tempfile.mkdtemp(prefix="blimp-test-"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BLIMP_")}
    environment |= {"XDG_RUNTIME_DIR": str(home), "TMPDIR": str(home), "BLIMP_LOG_MB": "0"}
    demo = subprocess.Popen(
        [sys.executable, "-m", "blimp", "demo", "--headless", "--no-page"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert demo.stderr is not None
        assert "is ready" in demo.stderr.readline()
        demo.send_signal(signal.SIGKILL)
        demo.wait(timeout=DEADLINE_S)
        wait_until(lambda: not files(home), f"left: {files(home)}")
    finally:
        demo.kill()
        demo.wait(timeout=DEADLINE_S)
        if demo.stderr is not None:
            demo.stderr.close()
        shutil.rmtree(home, ignore_errors=True)


def test_its_summary_names_the_ends_of_tasks_that_did_not_succeed() -> None:
    late = {"task": "blimp.ping", "state": "EXPIRED", "reason": "older than 2 s"}
    hold = {"task": "blimp.hold", "state": "REFUSED", "reason": "not armed"}
    tasks = {"sent": 206, "pings": 198, "succeeded": 202, "unsuccessful": [late, hold, late]}
    assert _ends(tasks) == (
        "7 of 8 succeeded, 1 blimp.hold REFUSED: not armed",
        "195 of 198 answered, 2 EXPIRED: older than 2 s, 1 not sent",
    )
    tasks = {"sent": 10, "pings": 2, "succeeded": 10, "unsuccessful": []}
    assert _ends(tasks) == ("8 of 8 succeeded", "2 of 2 answered")
