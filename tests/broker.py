"""A real broker of the tests' own, that ends with them, kill -9 included."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from blimp.errors import BlimpError
from blimp.link.paths import socket_path, socket_url
from blimp.processes import Child
from blimp.service.stack.broker import LOG_NAME, answers, find_server_binary, server_arguments


def wait_for_answer(server: Child, *, answers: Callable[[], bool], within_s: float) -> str:
    """Wait until a server answers; return what is wrong where it does not, else nothing."""
    deadline_s = time.monotonic() + within_s
    while not answers():
        status = server.exit_status()
        if status is not None:
            return f"ended with status {status}"
        if time.monotonic() > deadline_s:
            return "does not answer"
        time.sleep(0.02)
    return ""


class EmbeddedBroker:
    """One server process. Use as a context manager; `start()` waits until it answers.

    directory: where socket, log and append-only file live; made with mode 0700.
    options: of the server's configuration, past those it is always given.
    before: words before its command line, such as `env` and its options.
    Start it from the main thread: the kernel takes the end of the starting thread for the
    end of the parent. Raises BlimpError with the server's last words where it does not come up.
    """

    def __init__(
        self,
        *,
        directory: Path,
        binary: Path | None = None,
        start_timeout_s: float = 60.0,
        options: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self._binary = binary
        self._start_timeout_s = start_timeout_s
        self._options = dict(options or {})
        self._before = tuple(before)
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return socket_url(self.directory)

    @property
    def pid(self) -> int:
        if self._child is None:
            raise BlimpError("the broker is not started")
        return self._child.pid

    def start(self) -> Self:
        """Start the server and return when it answers. May be called again after it died."""
        if self._child is not None:
            if self._child.running():
                return self
            self._child.close()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        socket_path(self.directory).unlink(missing_ok=True)
        arguments = server_arguments(
            binary=self._binary or find_server_binary(), directory=self.directory
        )
        for name, value in self._options.items():
            arguments += [f"--{name}", value]
        self._child = Child(
            name="broker",
            arguments=[*self._before, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        path = socket_path(self.directory)
        wrong = wait_for_answer(
            self._child, answers=lambda: answers(path), within_s=self._start_timeout_s
        )
        if wrong:
            self.stop()
            raise BlimpError(f"the broker {arguments[0]} {wrong}: {self._last_words()}")
        return self

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return None if self._child is None else self._child.exit_status()

    def stop(self, *, timeout_s: float = 5.0) -> None:
        """End the server; kill it where it does not listen. Idempotent."""
        if self._child is None:
            return
        self._child.end(within_s=timeout_s)
        self._child = None
        socket_path(self.directory).unlink(missing_ok=True)

    def _last_words(self) -> str:
        try:
            lines = (self.directory / LOG_NAME).read_text(errors="replace").splitlines()
        except OSError:
            return "it left no log"
        return " / ".join(line.strip() for line in lines[-3:]) or "its log is empty"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
