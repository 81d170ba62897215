"""The page as a process, and requests to it, right or wrong."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser import chromium
from tests.http_client import asked, token_of
from tests.queue.conftest import DEADLINE_S

__all__ = ["chromium"]

APP = "tests.queue.page_app:app"


class PageProcess:
    """`python -m blimp.queue page` on any free port. url: what it has printed."""

    def __init__(self, broker: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "blimp.queue", "page", "-A", APP, "--port", "0", *options],
            env=os.environ | {"KILLED_BROKER": broker},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.token = token_of(self.url)

    def ask(
        self, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Send a request; return its status and the JSON of its answer.

        token: "" for none; the printed one by default. headers: `Content_Type` as a keyword.
        """
        return asked(
            self.url, path, body,
            token=None if token == "" else token or self.token,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
            within_s=DEADLINE_S,
        )  # fmt: skip

    def end(self, number: int) -> int:
        """Send a signal; return the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@pytest.fixture
def start_page() -> Iterator[Callable[..., PageProcess]]:
    started: list[PageProcess] = []

    def start(broker: str, *options: str) -> PageProcess:
        started.append(PageProcess(broker, *options))
        return started[-1]

    yield start
    for page in started:
        if page.process.poll() is None:
            page.end(9)
