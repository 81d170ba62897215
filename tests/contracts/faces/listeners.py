"""What the processes of a running ship listen on, as the kernel says: docs of proc(5)."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

_LISTENING, _UNCONNECTED = "0A", "07"  # of TCP and UDP: include/net/tcp_states.h


def listeners(pids: dict[str, int]) -> set[str]:
    """Return "PROCESS tcp", "PROCESS udp", "PROCESS serial" and "PROCESS NAME.sock" of each.

    pids: by the process's name.
    """
    return {f"{name} {kind}" for name, pid in pids.items() for kind in _of(pid)}


def _of(pid: int) -> Iterable[str]:
    held = [_target(one) for one in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {match[1] for one in held if (match := re.fullmatch(r"socket:\[(\d+)\]", one))}
    if any(one.startswith("/dev/pts/") for one in held):
        yield "serial"
    for kind, state in (("tcp", _LISTENING), ("tcp6", _LISTENING), ("udp", _UNCONNECTED)):
        for row in _rows(f"/proc/{pid}/net/{kind}"):
            if row[9] in inodes and row[3] == state:
                yield kind.removesuffix("6")
    for row in _rows(f"/proc/{pid}/net/unix"):
        if len(row) > 7 and row[6] in inodes and row[7].startswith("/"):
            yield Path(row[7]).name


def _target(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:  # closed meanwhile
        return ""


def _rows(path: str) -> list[list[str]]:
    return [line.split() for line in Path(path).read_text().splitlines()[1:]]
