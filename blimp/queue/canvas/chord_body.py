"""Beginning the body of a chord, once all parts of it are told: or ending it, as one failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import MessageError, ResultError
from blimp.queue.canvas.chords import read_entries, read_shape
from blimp.queue.canvas.follow import After, Failing, within
from blimp.queue.canvas.plan import Ids, Planner
from blimp.queue.canvas.sending import settings_of
from blimp.queue.protocol.embed import options_of
from blimp.queue.protocol.fault import Fault
from blimp.queue.protocol.record import Record, State

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.base import ChordPart, Completion
    from blimp.queue.results.backend import ResultBackend

FAILED = ("FAILURE", "REVOKED")
MOST_WORDS = 1000  # of what another's end says, in letters


def join(app: TaskApp, ending: Completion, parts: Sequence[ChordPart], client: Any) -> Completion:
    """Return `ending` with what follows the chords that `parts` have completed.

    client: of the server on which they are counted. Raises its errors, and LinkError.
    """
    canvas = ending.chords
    assert canvas is not None
    found = After()
    for part in parts:
        _join(app, ending, part, client, found)
    return msgspec.structs.replace(
        ending,
        next=(*ending.next, *found.messages),
        chords=msgspec.structs.replace(
            canvas,
            parts=(*(one for one in canvas.parts if one not in parts), *found.parts),
            joined=(*canvas.joined, *parts),
            records=(*canvas.records, *encode_all(app, found)),
            sizes=(*canvas.sizes, *found.sizes),
        ),
    )


def encode_all(app: TaskApp, found: After) -> list[tuple[str, bytes]]:
    """Return the records of `found` as they are stored; none where no results are kept."""
    if app.results is None:
        return []
    now = datetime.fromtimestamp(app.clock.wall_s(), UTC).isoformat()
    return [
        (one.id, _encode(app.results, msgspec.structs.replace(one, date_done=now)))
        for one in found.records
    ]


def _encode(results: ResultBackend, record: Record) -> bytes:
    """Return `record`, with fewer words where it would be too long: its end is to be told."""
    try:
        return results.encode(record)
    except ResultError:
        if record.fault is None:
            raise
        words = [record.fault.text[:MOST_WORDS]]
        fault = msgspec.structs.replace(record.fault, exc_message=words)
        return results.encode(msgspec.structs.replace(record, fault=fault))


def _join(app: TaskApp, ending: Completion, part: ChordPart, client: Any, found: After) -> None:
    """Add to `found` what follows one chord."""
    settings = within(settings_of(app), ending.message)
    root_id = options_of(part.body).get("root_id")
    if root_id:
        settings = msgspec.structs.replace(settings, root_id=root_id)
    planner = Planner(settings=settings, ids=Ids(f"{part.group_id}/body"))
    try:
        planner.plan(part.body, (_values(part.group_id, client),))
        settings.check(planner.messages, planner.sizes)
    except (MessageError, ResultError) as error:
        # Cut: each chord quotes the one within it.
        words = str(error)[:MOST_WORDS]
        fault = Fault(exc_type="ChordError", exc_message=[words], exc_module="celery.exceptions")
        failing = Failing(found, state=State.FAILURE, fault=fault, settings=settings)
        failing.signature(part.body, calls=True)
        return
    found.messages += planner.messages
    found.sizes += planner.sizes


def _values(group_id: str, client: Any) -> list[Any]:
    """Return what the parts have returned, in order. Raises ResultError for the first that failed.

    The words are Celery's.
    """
    entries = read_entries(client, group_id)
    for id, state, value in entries:
        if state in FAILED:
            raise ResultError(f"Dependency {id} raised {_written(value)}")
    shape = read_shape(client, group_id)
    if shape is not None:
        try:
            values = {id: value for id, _, value in entries}
            shaped = [_shaped(one, values) for one in shape[1]]
        except (KeyError, TypeError, ValueError, IndexError, RecursionError):
            pass  # not what this chord is of
        else:
            if not values:
                return shaped
    return [value for _, _, value in entries]


def _shaped(written: Any, values: dict[str, Any]) -> Any:
    """Return what stands in `written`, each value taken out of `values`."""
    (id, _), children = written
    return values.pop(id) if children is None else [_shaped(one, values) for one in children]


def _written(fault: Any) -> str:
    """Return an exception as Python would write it."""
    if not isinstance(fault, dict):
        return repr(fault)
    message = fault.get("exc_message")
    words = message if isinstance(message, list | tuple) else [message]
    return f"{fault.get('exc_type')}({', '.join(map(repr, words))})"
