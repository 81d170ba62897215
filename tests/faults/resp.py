"""Where one value of the Redis protocol ends (RESP 2 and 3), and what a request asks for."""

from __future__ import annotations

_LINE = b"+-:_#,("  # types that end with their line
_BULK = b"$!="
_MANY = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2}
PUSH = ord(">")


def end_of(data: bytes | bytearray, start: int = 0) -> int | None:
    """Return where the value that begins at `start` ends; None where it is not all there yet.

    Raises ValueError for what is no value.
    """
    wanted, at = 1, start
    while wanted:
        line = data.find(b"\r\n", at)
        if line < 0:
            return None
        kind, wanted, head = data[at], wanted - 1, bytes(data[at + 1 : line])
        at = line + 2
        if kind in _BULK:
            length = int(head)
            if length >= 0:
                at += length + 2
            if at > len(data):
                return None
        elif kind in _MANY:
            wanted += max(0, int(head)) * _MANY[kind]
        elif kind not in _LINE:
            raise ValueError(f"no RESP value begins with {chr(kind)!r}")
    return at


def words(request: bytes) -> list[bytes]:
    """Return the words of one request, an array of bulk strings."""
    found, at = [], request.index(b"\r\n") + 2
    while at < len(request):
        line = request.index(b"\r\n", at)
        length = int(request[at + 1 : line])
        found.append(request[line + 2 : line + 2 + length])
        at = line + 2 + length + 2
    return found


def split(data: bytearray) -> list[bytes]:
    """Take the whole values from the head of `data`; return them."""
    taken = []
    while data and (end := end_of(data)) is not None:
        taken.append(bytes(data[:end]))
        del data[:end]
    return taken
