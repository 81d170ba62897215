"""What is reset in a forked child. Tested by test_client.py."""

from __future__ import annotations

import os
import weakref
from functools import cache
from typing import Any


@cache
def _inherited() -> weakref.WeakSet[Any]:
    """Return what `reset_after_fork` was called with and still lives."""
    found: weakref.WeakSet[Any] = weakref.WeakSet()
    if hasattr(os, "register_at_fork"):  # Windows never forks
        os.register_at_fork(after_in_child=lambda: [one.after_fork() for one in list(found)])
    return found


def reset_after_fork(one: Any) -> None:
    """Have `one.after_fork()` called in every child forked while `one` lives.

    A forked child has its parent's sockets, locks and messages, and must use none of them: it
    starts again, and sends the server nothing. No other thread runs then.
    """
    _inherited().add(one)
