"""A canvas in the one step that ends a delivery on streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blimp.tasks.canvas.chords import DONE_S, chord_keep_s, keys_of, size_key, words_of
from blimp.tasks.results.redis import result_key
from blimp.tasks.transport.end import Chorded

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.canvas.ending import Canvas
    from blimp.tasks.message import TaskMessage
    from blimp.tasks.work.job import Ending


def puts_of(ending: Ending) -> tuple[TaskMessage, ...]:
    """Return what is sent with `ending`: nothing that was sent when its result was written."""
    canvas = ending.canvas
    if canvas is not None and canvas.settled and not canvas.joined:
        return ()
    return ending.next


def chorded_of(canvas: Canvas, app: TaskApp) -> Chorded:
    """Return what complete.lua is told of `canvas`."""
    is_silent = canvas.settled and not canvas.joined
    here = app.chords_end_at_once
    return Chorded(
        parts=tuple((keys_of(one.group_id), words_of(one)) for one in canvas.parts if here),
        bodies=tuple(keys_of(one.group_id) for one in canvas.joined if here),
        records=tuple((result_key(id), data) for id, data in canvas.records)
        if app.completes_at_once and not is_silent
        else (),
        begun=tuple((size_key(group_id), size) for group_id, size in canvas.sizes)
        if here and not is_silent
        else (),
        records_keep_s=app.results.keep_s if app.results is not None else 0,
        keep_s=chord_keep_s(app.results),
        done_s=DONE_S,
    )
