"""Between a worker and its canvases: what is written with the end of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import MessageError
from blimp.queue.brokers.base import ChordUpdate
from blimp.queue.canvas.chord_body import encode_all, join
from blimp.queue.canvas.follow import After, after, replaced
from blimp.queue.canvas.sending import check_all, settings_of
from blimp.queue.protocol.outcome import Outcome, failure
from blimp.queue.protocol.record import Record, decode

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.base import Completion
    from blimp.queue.worker.job import Job


UntilDone = Callable[..., bool]


def follow(app: TaskApp, job: Job, outcome: Outcome) -> tuple[After, Outcome]:
    """Return what follows `job`, and its verdict: a failure where it cannot be followed.

    Where result and acknowledgement are two steps, the worker that wrote the result may not
    have lived to send it: whoever finds the result sends it again, with the same ids. In one
    step, that is so only where it was to begin the body of a chord.
    """
    told: Any = outcome
    if outcome.replacement is not None:
        try:
            return replaced(job.message, outcome.replacement, settings_of(app)), outcome
        except MessageError as error:
            told = outcome = failure(error)
    if outcome.settled:
        if job.previous is None or (app.completes_at_once and job.message.chord is None):
            return After(), outcome
        told = job.previous
    try:
        return _after(app, job, told), outcome
    except MessageError as error:
        if outcome.settled:
            raise
        outcome = failure(error)
        return _after(app, job, outcome), outcome


def _after(app: TaskApp, job: Job, told: Any) -> After:
    found = after(
        job.message,
        state=told.state,
        result=told.result,
        fault=told.fault,
        settings=settings_of(app),
    )
    if app.chords is None:
        found.parts.clear()  # of a chord within its chain: nobody counts it
    check_all(app, found.messages, found.sizes)
    return found


def canvas_of(app: TaskApp, found: After, outcome: Outcome) -> ChordUpdate | None:
    if not (found.parts or found.sizes or found.records):
        return None
    return ChordUpdate(
        parts=tuple(found.parts),
        sizes=tuple(found.sizes),
        records=tuple(encode_all(app, found)),
        settled=outcome.settled and app.completes_at_once,
    )


def restated(app: TaskApp, ending: Completion) -> Completion:
    """Return `ending` as it is where the result that stands is its own; else what follows that.

    Another had the message as well, and its result came first. Raises LinkError, ResultError,
    MessageError.
    """
    job = ending.job
    assert app.results is not None
    stands, own = app.results.get(job.message.id), decode(ending.record)
    if not stands.final or _is_same(stands, own):
        return ending  # forgotten just now; or written before, and the answer was lost
    job.previous = stands
    job.outcome = Outcome(state=stands.state, settled=True)
    found, outcome = follow(app, job, job.outcome)
    return msgspec.structs.replace(
        ending, next=tuple(found.messages), chords=canvas_of(app, found, outcome)
    )


def _is_same(one: Record, other: Record) -> bool:
    return (one.state, one.result, one.fault) == (other.state, other.result, other.fault)


def count_parts(app: TaskApp, ending: Completion, until_done: UntilDone) -> Completion | None:
    """Do what a canvas needs before the end, where the end is not one step with it.

    Returns the ending to go on with, None where the worker was abandoned before.
    """
    canvas = ending.chords
    if canvas is None or ending.requeue:
        return ending
    if not app.completes_at_once and not _write(app, canvas.records, until_done):
        return None
    if app.chords_end_at_once:
        return ending
    chords = app.chords
    if chords is None:
        return ending
    while canvas.parts or canvas.sizes:
        if canvas.sizes and not until_done(chords.begin, canvas.sizes):
            return None
        counted: list[Completion] = []
        if not until_done(_count_into, app, ending, counted):
            return None
        ending = counted[0]
        assert ending.chords is not None
        canvas = ending.chords
        if not _write(app, canvas.records, until_done):
            return None
    return ending


def _count_into(app: TaskApp, ending: Completion, counted: list[Completion]) -> None:
    counted.append(_counted(app, ending))


def _counted(app: TaskApp, ending: Completion) -> Completion:
    """Return `ending` with its parts counted, and what follows the chords that they complete."""
    canvas, chords = ending.chords, app.chords
    assert canvas is not None
    assert chords is not None
    complete = [part for part in canvas.parts if chords.count(part)]
    ending = msgspec.structs.replace(
        ending, chords=msgspec.structs.replace(canvas, parts=tuple(complete), sizes=(), records=())
    )
    if complete:
        return chords.link.ask(lambda client: join(app, ending, complete, client))
    return ending


def note_joined(app: TaskApp, ending: Completion, until_done: UntilDone) -> None:
    """Note which bodies have begun, where that is a step of its own."""
    if ending.chords is None or app.chords_end_at_once or app.chords is None:
        return
    for part in ending.chords.joined:
        until_done(app.chords.joined, part)


def _write(app: TaskApp, records: Any, until_done: UntilDone) -> bool:
    results = app.results
    return results is None or not records or until_done(results.write_many, records)
