"""A forked child has its parent's sockets, locks and messages, and must use none of them."""

from __future__ import annotations

import os
import weakref
from functools import cache
from typing import Protocol


class Inherited(Protocol):
    def after_fork(self) -> None:
        """Begin anew in a child, without a word to the server. No other thread runs yet."""
        ...


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def begin_anew_after_fork(one: Inherited) -> None:
    """Have `after_fork` of `one` called in every child forked while it lives."""
    _watch()
    _inherited.add(one)


@cache
def _watch() -> None:
    os.register_at_fork(after_in_child=_begin_anew)


def _begin_anew() -> None:
    for one in list(_inherited):
        one.after_fork()
