"""Chords: their parts are counted on a Redis server, in Celery's keys, and their body starts.

The server is that of the results if it is a Redis server, because Celery's clients write the
size of a chord there; otherwise it is the broker. Usually both are one. Then a part is counted
in the step that completes its delivery, and `join` adds the body to that step if the part was
the last. Otherwise `count_parts` counts in a step of its own, before the acknowledgement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import MessageError, NotGenuine, ResultError
from blimp.nesting import shallow
from blimp.queue.canvas.follow import (
    MOST_WORDS,
    After,
    Failing,
    encode_all,
    follow,
    restated,
    update_of,
    within,
)
from blimp.queue.canvas.parts import ChordUpdate, part_place
from blimp.queue.canvas.plan import SIZE, Ids, Planner
from blimp.queue.canvas.send import settings_of
from blimp.queue.protocol.embed import options_of
from blimp.queue.protocol.record import Fault, Outcome, State
from blimp.queue.redis.client import type_checked
from blimp.queue.redis.keys import chord_keys, group_key

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Completion
    from blimp.queue.canvas.parts import ChordPart, Chords
    from blimp.queue.interface import App
    from blimp.queue.protocol.signing import Signer

FAILED = ("FAILURE", "REVOKED")

UntilDone = Callable[..., bool]


class CanvasFollowUps:
    """The FollowUps of an app; see blimp/queue/extensions.py."""

    def __init__(self, app: App) -> None:
        self.follow = partial(follow, app)
        self.update = partial(update_of, app)
        self.restated = partial(restated, app)
        self.join = partial(join_numbered, app)
        self.count = partial(count_parts, app)
        self.note_joined = partial(note_joined, app)


# --- the body --------------------------------------------------------------------------------


def join_numbered(
    app: App, completion: Completion, complete: Sequence[int], client: Any
) -> Completion:
    """Do `join` for parts by their number in the completion's follow-up."""
    update = completion.follow_up
    assert isinstance(update, ChordUpdate)
    return join(app, completion, [update.parts[number] for number in complete], client)


def join(app: App, completion: Completion, parts: Sequence[ChordPart], client: Any) -> Completion:
    """Return `completion` with the bodies of the chords that `parts` complete.

    client: of the server that counts them. Raises its errors, and LinkError.
    """
    update = completion.follow_up
    assert isinstance(update, ChordUpdate)
    found = After()
    for part in parts:
        _start_body(app, completion, part, client, found)
    return msgspec.structs.replace(
        completion,
        next=(*completion.next, *found.messages),
        follow_up=msgspec.structs.replace(
            update,
            parts=(*(one for one in update.parts if one not in parts), *found.parts),
            joined=(*update.joined, *parts),
            records=(*update.records, *encode_all(app, found)),
            sizes=(*update.sizes, *found.sizes),
        ),
    )


def _start_body(
    app: App, completion: Completion, part: ChordPart, client: Any, found: After
) -> None:
    """Add the body of one chord to `found`; if a part failed, the failure of the body."""
    settings = within(settings_of(app), completion.message)
    root_id = options_of(part.body).get("root_id")
    if root_id:
        settings = msgspec.structs.replace(settings, root_id=root_id)
    planner = Planner(settings=settings, ids=Ids(f"{part.group_id}/body"))
    try:
        planner.plan(part.body, (_values(part, client, app.signer),))
        settings.check(planner.messages, planner.sizes)
    except (MessageError, ResultError) as error:  # one that is not genuine, too
        words = str(error)[:MOST_WORDS]  # each chord quotes the one within it
        fault = Fault(exc_type="ChordError", exc_message=[words], exc_module="celery.exceptions")
        ended = Outcome(state=State.FAILURE, fault=fault)
        Failing(found, ended, settings).signature(part.body, calls=True)
        return
    found.add(planner)


def _values(part: ChordPart, client: Any, signer: Signer | None) -> list[Any]:
    """Return the results of all parts in order. Raises ResultError as Celery words it.

    With a key, all must be signed, and as many as the chord began with: that is in its body.
    """
    group_id = part.group_id
    entries = read_entries(client, group_id, signer)
    for id, state, value in entries:
        if state in FAILED:
            raise ResultError(f"Dependency {id} raised {_repr(value)}")
    values = {id: value for id, _, value in entries}
    if signer is not None:
        size = options_of(part.body).get(SIZE)
        if size is not None and size != len(values):
            raise NotGenuine(f"chord {group_id} has {len(values)} parts, and began with {size}")
        return [value for _, _, value in entries]
    # Celery stores the shape of a header with groups in it. It may be missing, or that of
    # something else.
    with contextlib.suppress(ResultError, ValueError, TypeError, LookupError, RecursionError):
        raw = type_checked(lambda: client.get(group_key(group_id)))
        shaped = [_shaped(one, values) for one in msgspec.json.decode(shallow(raw))["result"][1]]
        if not values:
            return shaped
    return [value for _, _, value in entries]


def read_entries(
    client: Any, group_id: str, signer: Signer | None = None
) -> list[tuple[str, str, Any]]:
    """Return id, state and value of each part, in order.

    Raises ResultError, NotGenuine for a part that no key has signed at its place, redis-py's
    errors.
    """
    found = []
    key = chord_keys(group_id)[0]
    for raw, place in type_checked(lambda: client.zrange(key, 0, -1, withscores=True)):
        if signer is not None:
            signer.check_appended(raw, place=part_place(group_id, place))
        try:
            _, id, state, value = msgspec.json.decode(shallow(raw))[:4]
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            raise ResultError(f"a part of chord {group_id} cannot be read: {error}") from None
        found.append((str(id), str(state), value))
    return found


def _shaped(written: Any, values: dict[str, Any]) -> Any:
    """Return the values in the shape `written`; each is removed from `values`."""
    (id, _), children = written
    return values.pop(id) if children is None else [_shaped(one, values) for one in children]


def _repr(fault: Any) -> str:
    """Return an exception as Python's `repr` writes it."""
    if not isinstance(fault, dict):
        return repr(fault)
    message = fault.get("exc_message")
    words = message if isinstance(message, list | tuple) else [message]
    return f"{fault.get('exc_type')}({', '.join(map(repr, words))})"


# --- if counting is a step of its own --------------------------------------------------------


def count_parts(app: App, completion: Completion, until_done: UntilDone) -> Completion | None:
    """Do the steps of chords that come before the completion.

    until_done: repeats a call until its server answers; False if the worker is ended first.
    Returns the completion to go on with, None if the worker is ended first.
    """
    update = completion.follow_up
    if not isinstance(update, ChordUpdate) or completion.requeue:
        return completion
    if not app.completes_at_once and not _write(app, update.records, until_done):
        return None
    chords = app.chords
    if app.chords_end_at_once or chords is None:
        return completion
    while update.parts or update.sizes:
        if update.sizes and not until_done(chords.begin, update.sizes):
            return None
        counted: list[Completion] = []
        if not until_done(_count_into, app, chords, completion, counted):
            return None
        completion = counted[0]
        update = completion.follow_up
        assert isinstance(update, ChordUpdate)
        if not _write(app, update.records, until_done):
            return None
    return completion


def _count_into(
    app: App, chords: Chords, completion: Completion, counted: list[Completion]
) -> None:
    """Append `completion` with its parts counted, and the bodies of the chords they complete."""
    update = completion.follow_up
    assert isinstance(update, ChordUpdate)
    complete = tuple(part for part in update.parts if chords.count(part))
    update = msgspec.structs.replace(update, parts=complete, sizes=(), records=())
    completion = msgspec.structs.replace(completion, follow_up=update)
    if complete:
        completion = chords.link.ask(lambda client: join(app, completion, complete, client))
    counted.append(completion)


def note_joined(app: App, completion: Completion, until_done: UntilDone) -> None:
    """Mark the bodies as started, if that was not done with the completion."""
    update = completion.follow_up
    if not isinstance(update, ChordUpdate) or app.chords_end_at_once or app.chords is None:
        return
    for part in update.joined:
        until_done(app.chords.joined, part)


def _write(app: App, records: Any, until_done: UntilDone) -> bool:
    results = app.results
    return results is None or not records or until_done(results.write_many, records)
