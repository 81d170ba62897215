"""How deep JSON of a stranger may be nested: as deep on every Python.

A reader in C gives up where the interpreter does: at 1000 levels less the caller's frames on
CPython 3.11, at 10,000 on 3.13, and where the thread's stack ends on 3.14. What one end could
read, another could not, and functions in Python that walk such a value end far below those.
"""

from itertools import accumulate
from typing import TypeVar

# Python allows 1000 frames. A function that walks a value takes two a level on 3.11, itself and
# its comprehension; 200 are left to its callers.
MAX_DEPTH = 400

_OTHERS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


Data = TypeVar("Data", bound=bytes | bytearray | str)


def shallow(data: Data) -> Data:
    """Return `data`. Raises RecursionError if it is JSON nested above the limit.

    The same error as a reader's, so that there is one to catch. It costs 0.1 us for most data.
    """
    raw = data.encode(errors="replace") if isinstance(data, str) else data
    if len(raw) > MAX_DEPTH and raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        plain = raw.replace(rb"\\", b"").replace(rb"\"", b"")  # no escaped quote is left
        brackets = b"".join(plain.split(b'"')[::2]).translate(None, _OTHERS)
        depth = max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)
        if depth > MAX_DEPTH:
            raise RecursionError(
                f"JSON nested {depth} levels deep: the limit of recursion is {MAX_DEPTH}"
            )
    return data
