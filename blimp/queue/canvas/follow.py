"""What follows the end of a task: messages, its part in a chord, results of what cannot run.

A success starts its callbacks and the next link of its chain. Any other end starts its errbacks,
and ends the later links: they get the same record, so that no caller waits for ever. Exactly one
of the two follows.

Nothing is written here: `follow` returns it, and the broker writes it with the task's result.
The new ids are made from the task's own, so that what is sent twice, if result and
acknowledgement are two steps, is the same tasks.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from blimp.errors import MessageError, ResultError
from blimp.queue.canvas.parts import ChordPart, ChordUpdate
from blimp.queue.canvas.plan import Ids, Node, Planner, Settings, Then, single
from blimp.queue.canvas.send import settings_of
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
    with_options,
)
from blimp.queue.protocol.message import LIFE, PARENT, STATE, TaskMessage
from blimp.queue.protocol.record import FINAL, Fault, Outcome, Record, State, decode, failure
from blimp.queue.protocol.unique import HEADER as UNIQUE

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Completion
    from blimp.queue.interface import App
    from blimp.queue.results.backend import ResultBackend

MOST_WORDS = 1000  # letters of a reason that is quoted, or was too long
MOST_REPLACED = 100  # times that one task may be replaced
# Headers that messages inherit; their age and delivery count are their own.
_INHERITED = ("blimp_vehicle", "blimp_source", "blimp_authority", LIFE, PARENT, STATE)


class After(msgspec.Struct, kw_only=True):
    """What is written together with the end of a task, or not at all.

    sizes: the chords that start and their numbers of parts. children: the places of the new
    results. records: of tasks that can no longer run. complaints: the reasons why an errback
    does not start.
    """

    messages: list[TaskMessage] = msgspec.field(default_factory=list)
    sizes: list[tuple[str, int]] = msgspec.field(default_factory=list)
    parts: list[ChordPart] = msgspec.field(default_factory=list)
    records: list[Record] = msgspec.field(default_factory=list)
    children: list[Node] = msgspec.field(default_factory=list)
    complaints: list[str] = msgspec.field(default_factory=list)

    def add(self, planner: Planner) -> None:
        self.messages += planner.messages
        self.sizes += planner.sizes

    def add_part(
        self,
        body: Signature | None,
        group_id: str | None,
        index: int | None,
        id: str | None,
        ended: Record | Outcome,
    ) -> None:
        """Add the part of a chord that task `id` is, if it is one."""
        if not (body and group_id and id):
            return
        value = ended.result
        if ended.state is not State.SUCCESS:
            value = (ended.fault or Fault(exc_type=ended.state.value, exc_message=[""])).document()
        self.parts.append(
            ChordPart(
                group_id=group_id, id=id, index=index, state=ended.state, value=value, body=body
            )
        )


# --- for a worker ----------------------------------------------------------------------------


def follow(
    app: App, message: TaskMessage, outcome: Outcome, *, previous: Record | None
) -> tuple[After, Outcome]:
    """Return what follows `message`, and its outcome: a failure if it cannot be followed.

    previous: the record that stood before. If result and acknowledgement are two steps, the
    worker that wrote it may have been killed before it sent what follows: so that is sent
    again, with the same ids. In one step, only the body of a chord may be missing.
    """
    ended: Record | Outcome = outcome
    if outcome.replacement is not None:
        try:
            return replaced(message, outcome.replacement, settings_of(app)), outcome
        except MessageError as error:
            ended = outcome = failure(error)
    if outcome.settled:
        if previous is None or (app.completes_at_once and message.chord is None):
            return After(), outcome
        ended = previous
    try:
        return _after(app, message, ended), outcome
    except MessageError as error:
        if outcome.settled:
            raise
        outcome = failure(error)
        return _after(app, message, outcome), outcome


def _after(app: App, message: TaskMessage, ended: Record | Outcome) -> After:
    settings = settings_of(app)
    found = after(message, ended, settings)
    if app.chords is None:
        found.parts.clear()  # no server counts them
    settings.check(found.messages, found.sizes)
    return found


def update_of(app: App, found: After, outcome: Outcome) -> ChordUpdate | None:
    """Return what the completion writes beside the messages of `found`; None for nothing."""
    if not (found.parts or found.sizes or found.records):
        return None
    return ChordUpdate(
        parts=tuple(found.parts),
        sizes=tuple(found.sizes),
        records=tuple(encode_all(app, found)),
        settled=outcome.settled and app.completes_at_once,
    )


def restated(app: App, completion: Completion) -> tuple[Completion, Record | None]:
    """Return the completion after its result was refused, and the record that stands instead.

    Another worker had the message too, and its result came first: then what follows is that
    one's. None if the record is this worker's own, or is gone. Raises LinkError, ResultError,
    MessageError.
    """
    assert app.results is not None
    stands, own = app.results.get(completion.message.id), decode(completion.record)
    is_own = (stands.state, stands.result, stands.fault) == (own.state, own.result, own.fault)
    if not stands.final or is_own:
        return completion, None
    outcome = Outcome(state=stands.state, settled=True)
    found, outcome = follow(app, completion.message, outcome, previous=stands)
    update = update_of(app, found, outcome)
    completion = msgspec.structs.replace(completion, next=tuple(found.messages), follow_up=update)
    return completion, stands


def encode_all(app: App, found: After) -> list[tuple[str, bytes]]:
    """Return the records of `found` as they are stored; none without a result backend."""
    if app.results is None:
        return []
    now = datetime.fromtimestamp(app.clock.wall_s(), UTC).isoformat()
    return [
        (one.id, _encode(app.results, msgspec.structs.replace(one, date_done=now)))
        for one in found.records
    ]


def _encode(results: ResultBackend, record: Record) -> bytes:
    """Return `record`, its reason cut if it is too long: a caller waits for it."""
    try:
        return results.encode(record)
    except ResultError:
        if record.fault is None:
            raise
        words = [record.fault.text[:MOST_WORDS]]
        fault = msgspec.structs.replace(record.fault, exc_message=words)
        return results.encode(msgspec.structs.replace(record, fault=fault))


# --- what follows ----------------------------------------------------------------------------


def after(message: TaskMessage, ended: Record | Outcome, settings: Settings) -> After:
    """Return what follows `message`, which ended so; nothing if that state is not final.

    Raises MessageError for what cannot be sent after a success, LinkError if the broker's time
    is needed and it does not answer.
    """
    found = After()
    if ended.state not in FINAL or not message.is_followed:
        return found
    settings = within(settings, message)
    if ended.state is State.SUCCESS:
        planner = Planner(settings=settings, ids=Ids(f"{message.lineage}/callback"))
        found.children = [planner.plan(one, (ended.result,)) for one in message.callbacks]
        if message.chain:
            *rest, link = message.chain
            then = Then(chain=tuple(rest))
            found.children.append(planner.plan(link, (ended.result,), then=then))
        found.add(planner)
    else:
        failing = Failing(found, ended, settings)
        failing.call(message.errbacks, message.id, lineage=message.lineage)
        for one in reversed(message.chain):
            failing.signature(one, calls=False)
    found.add_part(message.chord, message.group_id, message.group_index, message.id, ended)
    return found


def replaced(message: TaskMessage, signature: Signature, settings: Settings) -> After:
    """Return what starts in the place of `message`: `signature`, with its id and what follows it.

    Raises MessageError if it cannot be sent, or the task was replaced too often.
    """
    if message.nesting >= MOST_REPLACED:
        raise MessageError(f"{message.task} was replaced {message.nesting} times, the limit")
    nesting = message.nesting + 1
    settings = msgspec.structs.replace(within(settings, message), nesting=nesting)
    planner = Planner(settings=settings, ids=Ids(f"{message.lineage}/replaced/{nesting}"))
    planner.plan(
        single(signature),
        then=Then(
            chain=tuple(with_options(one, replaced_task_nesting=nesting) for one in message.chain),
            chord=message.chord,
            group_id=message.group_id,
            group_index=message.group_index,
            link=message.callbacks,
            link_error=message.errbacks,
            task_id=message.id,
            # Wherever the id goes: its mark is not this task's, and its fence does not fall back.
            replaced_task_nesting=nesting,
            blimp_delivery=message.delivery,
        ),
    )
    settings.check(planner.messages, planner.sizes)
    claim = {UNIQUE: message.headers[UNIQUE]} if UNIQUE in message.headers else {}
    messages = [  # the task's own id again: it has the same parent, and its claim
        msgspec.structs.replace(one, parent_id=message.parent_id, headers=one.headers | claim)
        if one.id == message.id
        else one
        for one in planner.messages
    ]
    return After(messages=messages, sizes=planner.sizes)


def within(settings: Settings, parent: TaskMessage) -> Settings:
    """Return the settings of the messages that follow `parent`."""
    return msgspec.structs.replace(
        settings,
        root_id=parent.root_id or parent.id,
        parent_id=parent.id,
        priority=parent.priority,
        origin=parent.origin,
        headers={name: parent.headers[name] for name in _INHERITED if name in parent.headers},
    )


class Failing(msgspec.Struct, frozen=True):
    """Adds to `found` the ends of signatures that can no longer run, because of one that ended."""

    found: After
    ended: Record | Outcome
    settings: Settings

    def signature(self, signature: Signature, *, calls: bool) -> None:
        """Add the end of a signature that does not run, and of all that would follow it.

        calls: its errbacks start too. Those of a chain's later links do not, as in Celery: the
        link that failed has started its own.
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
            self.call(listed(options.get("link_error")), id)
        if kind != GROUP:  # of a group that Celery froze, each task is a part
            group_id, index = options.get("group_id"), options.get("group_index")
            self.found.add_part(options.get(CHORD), group_id, index, id, self.ended)
        for one in reversed(listed(options.get(CHAIN))):
            self.signature(one, calls=False)

    def _unsent(self, signature: Signature) -> None:
        """Add the ends of a signature in a header: it is not a part of the chord yet."""
        kind = kind_of(signature)
        if kind is None:
            self._record(options_of(signature).get("task_id"), signature)
            return
        for one in (*([body_of(signature)] if kind == CHORD else ()), *parts_of(signature)):
            self._unsent(one)

    def _record(self, id: str | None, signature: Signature) -> None:
        if id:
            ended = self.ended
            self.found.records.append(
                Record(id=id, state=ended.state, fault=ended.fault, name=signature["task"])
            )

    def call(self, errbacks: tuple[Signature, ...], id: str, *, lineage: str = "") -> None:
        """Start `errbacks` with the id of the task that ended."""
        ids = Ids(f"{lineage or id}/errback")
        for number, one in enumerate(errbacks):
            planner = Planner(settings=self.settings, ids=ids)
            try:
                planner.plan(one, (id,))
                self.settings.check(planner.messages, planner.sizes)
            except MessageError as error:  # the task ends all the same
                self.found.complaints.append(f"errback {number} of {id}: {error}")
                continue
            self.found.add(planner)


def _last_id(signature: Signature) -> str | None:
    """Return the id of the result of `signature`, None if it has none yet."""
    kind = kind_of(signature)
    if kind == CHORD:
        return _last_id(body_of(signature))
    if kind == CHAIN and parts_of(signature):
        return _last_id(parts_of(signature)[-1])
    id: str | None = options_of(signature).get("task_id")
    return id
