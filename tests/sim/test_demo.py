"""`blimp demo` as a process: what a killed one leaves."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path

import pytest

from tests.repeating import until

pytestmark = pytest.mark.long

DEADLINE_S = 60.0


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
        until(lambda: not files(home), f"left: {files(home)}")
    finally:
        demo.kill()
        demo.wait(timeout=DEADLINE_S)
        if demo.stderr is not None:
            demo.stderr.close()
        shutil.rmtree(home, ignore_errors=True)
