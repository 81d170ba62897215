"""What follows the end of a task: messages, its part in a chord, and what can no longer run.

A success starts its callbacks and the next link of its chain. Any other end starts its
errbacks, and ends the links that were to come: they get the same record, so that no caller
waits for them for ever. Exactly one of the two kinds follows an end.

Nothing is written here. The ids come from the task's own: sent twice, when result and
acknowledgement are two steps, they are the same tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import MessageError
from blimp.queue.brokers.base import ChordPart
from blimp.queue.canvas.plan import Ids, Node, Planner, Settings
from blimp.queue.canvas.rewriting import Then, single
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
from blimp.queue.protocol.fault import Fault
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import FINAL, Record, State
from blimp.queue.protocol.trace_context import PARENT, STATE

if TYPE_CHECKING:
    pass


MOST_REPLACED = 100  # times that one task may be replaced
_INHERITED = ("blimp_vehicle", "blimp_source", "blimp_authority", PARENT, STATE)


class After(msgspec.Struct, kw_only=True):
    """What is to be written with an end, or not at all.

    sizes: the chords that begin, and of how many parts. children: where the results of what
    begins will be. records: of what can run no more. complaints: of errbacks that are wrong:
    those do not begin.
    """

    messages: list[TaskMessage] = msgspec.field(default_factory=list)
    sizes: list[tuple[str, int]] = msgspec.field(default_factory=list)
    parts: list[ChordPart] = msgspec.field(default_factory=list)
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
        value = (fault or Fault(exc_type=state.value, exc_message=[""])).document()
        Failing(found, state=state, fault=fault, settings=settings).message(message)
    if message.chord is not None and message.group_id is not None:
        found.parts.append(
            ChordPart(
                group_id=message.group_id,
                id=message.id,
                index=message.group_index,
                state=state,
                value=value,
                body=message.chord,
            )
        )
    return found


def replaced(message: TaskMessage, signature: Signature, settings: Settings) -> After:
    """Return what starts in the place of `message`: `signature`, with its id and what follows it.

    Raises MessageError if it cannot be sent, or the task was replaced too often.
    """
    if message.nesting >= MOST_REPLACED:
        raise MessageError(f"{message.task} was replaced {message.nesting} times, the limit")
    nesting = message.nesting + 1
    settings = msgspec.structs.replace(within(settings, message), nesting=nesting)
    planner = Planner(settings=settings, ids=Ids(f"{message.id}/replaced/{nesting}"))
    planner.plan(
        with_options(single(signature), task_id=None),
        then=Then(
            chain=tuple(with_options(one, replaced_task_nesting=nesting) for one in message.chain),
            chord=message.chord,
            group_id=message.group_id,
            group_index=message.group_index,
            link=message.callbacks,
            link_error=message.errbacks,
            task_id=message.id,
        ),
    )
    settings.check(planner.messages, planner.sizes)
    # The task's own id again: it has the same parent, and its fence must not fall back.
    own = {"parent_id": message.parent_id, "delivery": message.delivery}
    messages = [
        msgspec.structs.replace(one, **own) if one.id == message.id else one
        for one in planner.messages
    ]
    return After(messages=messages, sizes=planner.sizes)


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
                ChordPart(
                    group_id=group_id,
                    id=id,
                    index=options.get("group_index"),
                    state=self._state,
                    value=fault.document(),
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
