"""What a canvas adds to the end of a task; nothing of it is there for most.

What follows the end of a task: messages, its part in a chord, and what can run no more.

A success begins its callbacks and the next link of its chain. Any other end begins its
errbacks, and is the end of the links that were to come: they get the same record, so that
nobody waits for them for ever. Exactly one of the two kinds follows an end.

Nothing is written here. The ids come from the task's own: sent twice, where result and
acknowledgement are two steps, they are the same tasks.

Between a worker and its canvases: what is to be written with the end of a job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import MessageError
from blimp.queue.canvas.chord_body import encode_all, join
from blimp.queue.canvas.outline import Settings
from blimp.queue.canvas.plan import Ids, Node, Planner
from blimp.queue.canvas.rewriting import Then
from blimp.queue.canvas.sending import check_all, settings_of
from blimp.queue.protocol.embed import (
    CHAIN,
    CHORD,
    GROUP,
    Signature,
    body_of,
    kind_of,
    listed,
    options_of,
    parts_of,
)
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import CELERY_STATUS, FINAL, Fault, Record, State, decode
from blimp.queue.protocol.trace_context import PARENT, STATE
from blimp.queue.worker.job import Verdict, failure

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.worker.job import Ending, Job


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


_INHERITED = ("blimp_vehicle", "blimp_source", "blimp_authority", PARENT, STATE)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one task tells the chord that it is a part of.

    body: what follows when all are told. index: its place, None where it has none.
    """

    group_id: str
    id: str
    index: int | None
    state: State
    value: Any
    body: Signature

    @property
    def entry(self) -> list[Any]:
        """As Celery keeps it until all are there."""
        return [1, self.id, CELERY_STATUS.get(self.state, self.state.value), self.value]


class After(msgspec.Struct, kw_only=True):
    """What is to be written with an end, or not at all.

    sizes: the chords that begin, and of how many parts. children: where the results of what
    begins will be. records: of what can run no more. complaints: of errbacks that are wrong:
    those do not begin.
    """

    messages: list[TaskMessage] = msgspec.field(default_factory=list)
    sizes: list[tuple[str, int]] = msgspec.field(default_factory=list)
    parts: list[Part] = msgspec.field(default_factory=list)
    records: list[Record] = msgspec.field(default_factory=list)
    children: list[Node] = msgspec.field(default_factory=list)
    complaints: list[str] = msgspec.field(default_factory=list)


def after(
    message: TaskMessage,
    *,
    state: State,
    result: Any = None,
    fault: Fault | None = None,
    settings: Settings,
) -> After:
    """Return what follows `message` after it ended in `state`; nothing before it has.

    Raises MessageError for what cannot be done after a success, LinkError where the time had to
    be asked.
    """
    found = After()
    if state not in FINAL or not message.is_followed:
        return found
    settings = within(settings, message)
    if state is State.SUCCESS:
        _succeed(found, message, result, settings)
        value = result
    else:
        value = msgspec.to_builtins(fault or Fault(exc_type=state.value, exc_message=[""]))
        Failing(found, state=state, fault=fault, settings=settings).message(message)
    if message.chord is not None and message.group_id is not None:
        found.parts.append(
            Part(
                group_id=message.group_id,
                id=message.id,
                index=message.group_index,
                state=state,
                value=value,
                body=message.chord,
            )
        )
    return found


def within(settings: Settings, parent: TaskMessage) -> Settings:
    """Return the settings of what `parent` begins."""
    return msgspec.structs.replace(
        settings,
        root_id=parent.root_id or parent.id,
        parent_id=parent.id,
        priority=parent.priority,
        origin=parent.origin,
        headers=_inherited(parent.headers),
    )


def _inherited(headers: dict[str, Any]) -> dict[str, Any]:
    """Return the parent's headers that say for whom, from whom and of which trace.

    Not how old or how often.
    """
    return {name: headers[name] for name in _INHERITED if name in headers}


def _succeed(found: After, message: TaskMessage, result: Any, settings: Settings) -> None:
    planner = Planner(settings=settings, ids=Ids(f"{message.id}/callback"))
    found.children = [planner.plan(one, (result,)) for one in message.callbacks]
    if message.chain:
        *rest, link = message.chain
        found.children.append(planner.plan(link, (result,), then=Then(chain=tuple(rest))))
    found.messages += planner.messages
    found.sizes += planner.sizes


class Failing:
    """Adds to `found` what becomes of signatures that can run no more."""

    def __init__(
        self, found: After, *, state: State, fault: Fault | None, settings: Settings
    ) -> None:
        self._found = found
        self._state = state
        self._fault = fault
        self._settings = settings

    def message(self, message: TaskMessage) -> None:
        """A task that ran, and did not succeed."""
        self._call(message.errbacks, message.id)
        for one in reversed(message.chain):
            self.signature(one, calls=False)

    def signature(self, signature: Signature, *, calls: bool) -> None:
        """One that does not run, and all that would have followed it.

        calls: its errbacks are called, as though it had run. Those of a chain's later links
        are not, nor does Celery: the one that failed has called its own.
        """
        kind, options = kind_of(signature), options_of(signature)
        if kind == CHAIN:
            for number, one in enumerate(parts_of(signature)):
                self.signature(one, calls=calls and not number)
        elif kind == GROUP:
            for one in parts_of(signature):
                self.signature(one, calls=calls)
        elif kind == CHORD:
            for one in parts_of(signature):
                self._unsent(one)
            self.signature(body_of(signature), calls=calls)
        else:
            self._record(options.get("task_id"), signature)
        id = _last_id(signature)
        if calls and id:
            self._call(listed(options.get("link_error")), id)
        if kind != GROUP:  # of one that Celery froze, each task is a part by itself
            self._part(options, id)
        for one in reversed(listed(options.get(CHAIN))):
            self.signature(one, calls=False)

    def _unsent(self, signature: Signature) -> None:
        """One of a header: it is a part of nothing yet."""
        if kind_of(signature) is None:
            self._record(options_of(signature).get("task_id"), signature)
        elif kind_of(signature) == CHORD:
            self._unsent(body_of(signature))
        if kind_of(signature) is not None:
            for one in parts_of(signature):
                self._unsent(one)

    def _record(self, id: str | None, signature: Signature) -> None:
        if id:
            self._found.records.append(
                Record(id=id, state=self._state, fault=self._fault, name=signature["task"])
            )

    def _part(self, options: dict[str, Any], id: str | None) -> None:
        body, group_id = options.get(CHORD), options.get("group_id")
        if body and group_id and id:
            fault = self._fault or Fault(exc_type=self._state.value, exc_message=[""])
            self._found.parts.append(
                Part(
                    group_id=group_id,
                    id=id,
                    index=options.get("group_index"),
                    state=self._state,
                    value=msgspec.to_builtins(fault),
                    body=body,
                )
            )

    def _call(self, errbacks: tuple[Signature, ...], id: str) -> None:
        ids = Ids(f"{id}/errback")
        for number, one in enumerate(errbacks):
            planner = Planner(settings=self._settings, ids=ids)
            try:
                planner.plan(one, (id,))
                self._settings.check(planner.messages, planner.sizes)
            except MessageError as error:  # the end is to be told all the same
                self._found.complaints.append(f"errback {number} of {id}: {error}")
                continue
            self._found.messages += planner.messages
            self._found.sizes += planner.sizes


def _last_id(signature: Signature) -> str | None:
    """Return the id of the result of `signature`, where it has one."""
    kind = kind_of(signature)
    if kind == CHORD:
        return _last_id(body_of(signature))
    if kind == CHAIN and parts_of(signature):
        return _last_id(parts_of(signature)[-1])
    id: str | None = options_of(signature).get("task_id")
    return id


UntilDone = Callable[..., bool]


def follow(app: TaskApp, job: Job, verdict: Verdict) -> tuple[After, Verdict]:
    """Return what follows `job`, and its verdict: a failure where it cannot be followed.

    Where result and acknowledgement are two steps, the worker that wrote the result may not
    have lived to send it: whoever finds the result sends it again, with the same ids. In one
    step, that is so only where it was to begin the body of a chord.
    """
    told: Any = verdict
    if verdict.settled:
        if job.previous is None or (app.completes_at_once and job.message.chord is None):
            return After(), verdict
        told = job.previous
    try:
        return _after(app, job, told), verdict
    except MessageError as error:
        if verdict.settled:
            raise
        verdict = failure(error)
        return _after(app, job, verdict), verdict


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


def canvas_of(app: TaskApp, found: After, verdict: Verdict) -> Canvas | None:
    if not (found.parts or found.sizes or found.records):
        return None
    return Canvas(
        parts=tuple(found.parts),
        sizes=tuple(found.sizes),
        records=tuple(encode_all(app, found)),
        settled=verdict.settled and app.completes_at_once,
    )


def restated(app: TaskApp, ending: Ending) -> Ending:
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
    job.verdict = Verdict(state=stands.state, settled=True)
    found, verdict = follow(app, job, job.verdict)
    return msgspec.structs.replace(
        ending, next=tuple(found.messages), canvas=canvas_of(app, found, verdict)
    )


def _is_same(one: Record, other: Record) -> bool:
    return (one.state, one.result, one.fault) == (other.state, other.result, other.fault)


def count_parts(app: TaskApp, ending: Ending, until_done: UntilDone) -> Ending | None:
    """Do what a canvas needs before the end, where the end is not one step with it.

    Returns the ending to go on with, None where the worker was abandoned before.
    """
    canvas = ending.canvas
    if canvas is None or ending.give_back:
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
        counted: list[Ending] = []
        if not until_done(_count_into, app, ending, counted):
            return None
        ending = counted[0]
        assert ending.canvas is not None
        canvas = ending.canvas
        if not _write(app, canvas.records, until_done):
            return None
    return ending


def _count_into(app: TaskApp, ending: Ending, counted: list[Ending]) -> None:
    counted.append(_counted(app, ending))


def _counted(app: TaskApp, ending: Ending) -> Ending:
    """Return `ending` with its parts counted, and what follows the chords that they complete."""
    canvas, chords = ending.canvas, app.chords
    assert canvas is not None
    assert chords is not None
    complete = [part for part in canvas.parts if chords.count(part)]
    ending = msgspec.structs.replace(
        ending, canvas=msgspec.structs.replace(canvas, parts=tuple(complete), sizes=(), records=())
    )
    if complete:
        return chords.link.ask(lambda client: join(app, ending, complete, client))
    return ending


def note_joined(app: TaskApp, ending: Ending, until_done: UntilDone) -> None:
    """Note which bodies have begun, where that is a step of its own."""
    if ending.canvas is None or app.chords_end_at_once or app.chords is None:
        return
    for part in ending.canvas.joined:
        until_done(app.chords.joined, part)


def _write(app: TaskApp, records: Any, until_done: UntilDone) -> bool:
    results = app.results
    return results is None or not records or until_done(results.write_many, records)
