"""The page as a process, and requests to it, right or wrong."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser import chromium
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
        self.token = parse_qs(urlsplit(self.url).query)["token"][0]

    def ask(
        self, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Send a request; return its status and the JSON of its answer.

        token: "" for none; the printed one by default. headers: `Content_Type` as a keyword.
        """
        parts = urlsplit(self.url)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token != "":
            sent["Authorization"] = f"Bearer {token or self.token}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE_S)
        try:
            link.request("GET" if body is None else "POST", path, data, sent)
            answer = link.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            link.close()

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
