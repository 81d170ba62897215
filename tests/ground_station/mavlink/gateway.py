"""`blimp mavlink` beside a stack."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.sim.running import RunningStack


class Gateway(NamedTuple):
    """port: the first that it listens on."""

    process: "subprocess.Popen[str]"
    port: int


@contextmanager
def begun(stack: RunningStack, *words: str) -> Iterator[Gateway]:
    """Yield it once it listens; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "blimp", "mavlink", *words],
        stderr=subprocess.PIPE, text=True, env=stack.environment,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        yield Gateway(process, int(process.stderr.readline().split()[-1]))
    finally:
        process.kill()
        process.communicate()
