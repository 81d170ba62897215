"""Lines out of a byte stream that may hold anything."""

import re

_NUMBER = re.compile(r"[+-]?(?:\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})", re.ASCII)


class LineReader:
    """Cuts bytes into ASCII lines; keeps a partial line for the next call.

    A line longer than `limit` characters is dropped up to its end, so that a stream without
    line feeds cannot fill the memory. What is no printable ASCII makes a line garbage.
    `garbage` counts the dropped lines.
    """

    def __init__(self, *, limit: int) -> None:
        self.garbage = 0
        self._limit = limit
        self._rest = b""
        self._dropping = False

    def feed(self, data: bytes) -> list[str]:
        """Return the lines completed by `data`, without their ends; blank ones are left out."""
        *complete, self._rest = (self._rest + data).split(b"\n")
        lines = []
        for raw in complete:
            dropped, self._dropping = self._dropping, False
            line = raw.strip(b"\r \0")
            if dropped or not line:
                continue
            if len(line) > self._limit or not line.isascii():
                self.garbage += 1
                continue
            text = line.decode("ascii")
            if text.isprintable():
                lines.append(text)
            else:
                self.garbage += 1
        if len(self._rest) > self._limit + 2:
            if not self._dropping:
                self.garbage += 1
            self._dropping = True
            self._rest = b""
        return lines

    def clear(self) -> None:
        """Forget a partial line, as after a port was opened again."""
        self._rest = b""
        self._dropping = False


def number(text: str) -> float | None:
    """Read a plain decimal number; None for anything else, "nan" and "inf" included."""
    return float(text) if _NUMBER.fullmatch(text) else None
