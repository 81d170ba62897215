"""`ground` in a terminal of its own, as a person sees it and types."""

import os
import pty
import re
import select
import subprocess
import sys

from blimp.closing import Closing
from tests.ground_station.ship import FlyingShip
from tests.repeating import PATIENCE_S

COLOURS = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal(Closing):
    """text: all that was shown so far, without its colours."""

    def __init__(self, twin: FlyingShip, *words: str) -> None:
        self._lead, follow = pty.openpty()
        self._shown = b""
        address = ("--broker", twin.broker.url, "--vehicle", twin.vehicle)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ground_station", *address, *words],
            stdin=follow, stdout=follow, stderr=follow, start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
        )  # fmt: skip
        os.close(follow)

    @property
    def text(self) -> str:
        return COLOURS.sub(b"", self._shown).decode(errors="replace")

    def _read(self) -> bytes:
        """Return what is shown next, nothing at its end."""
        if not select.select([self._lead], [], [], PATIENCE_S)[0]:
            return b""
        try:
            data = os.read(self._lead, 65536)
        except OSError:  # the other end is closed
            return b""
        self._shown += data
        return data

    def read_until(self, words: str) -> None:
        while words not in self.text:
            assert self._read(), f"{words!r} was not shown: {self.text[-2000:]!r}"

    def type(self, words: str) -> None:
        os.write(self._lead, words.encode())

    def end(self) -> int:
        """Return its exit status, once it has ended."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._lead)
