"""What a canvas adds to the end of a task; nothing of it is there for most."""

from __future__ import annotations

import msgspec

from blimp.tasks.canvas.after import Part


class Canvas(msgspec.Struct, frozen=True, kw_only=True):
    """Written with an end, or not at all.

    parts: to be counted; where one completes its chord, the body has to be added first.
    joined: those that have, and whose body is among what follows. records: of what can run no
    more, by id. sizes: of chords that begin. settled: its result stood already; what follows
    it is only sent where the one who wrote it did not, to begin a body.
    """

    parts: tuple[Part, ...] = ()
    joined: tuple[Part, ...] = ()
    records: tuple[tuple[str, bytes], ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    settled: bool = False
