"""Signatures, chains, groups and chords as a program writes them: dicts that Celery can read.

chain(add.s(2, 2), add.s(4)).delay().get(timeout=5.0)    # 8
chord([add.s(1, 1), add.s(2, 2)])(total.s()).get(timeout=5.0)
(group(fetch.s(name) for name in names) | merge.s() | store.s()).delay()
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, cast

from blimp.errors import ConfigError, MessageError
from blimp.queue.protocol.embed import (
    CHAIN,
    CHORD,
    GROUP,
    MAP,
    STARMAP,
    check_signature,
    kind_of,
    listed,
    members,
)
from blimp.queue.protocol.embed import Signature as Plain
from blimp.queue.protocol.message import zoned
from blimp.queue.results.backend import awaited

if TYPE_CHECKING:
    from blimp.queue.interface import App
    from blimp.queue.results.handle import AsyncResult, GroupResult


class Signature(dict[str, Any]):
    """A task with arguments and options, not sent yet. Made by `signature` or `task.s`."""

    app: App | None = None

    def __init__(
        self,
        task: str,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        *,
        kind: str | None = None,
        immutable: bool = False,
        app: App | None = None,
        parts: Iterable[Any] = (),
    ) -> None:
        """parts: signatures that it is made of; their app is its own if it is given none."""
        super().__init__(
            task=task,
            args=list(args),
            kwargs=dict(kwargs or {}),
            options=_plain(options or {}),
            subtask_type=kind,
            immutable=immutable,
        )
        self.app = app or next(filter(None, map(_app_of, parts)), None)

    @property
    def options(self) -> dict[str, Any]:
        """The options it is sent with; see `set`. May be changed in place."""
        return cast("dict[str, Any]", self.setdefault("options", {}))

    @property
    def tasks(self) -> list[Any]:
        """The links of a chain, the members of a group, the header of a chord, in order."""
        kwargs = self["kwargs"]
        return cast("list[Any]", kwargs["header"].tasks if "header" in kwargs else kwargs["tasks"])

    @property
    def id(self) -> str | None:
        """The id of its task; None if it gets a new one when it is sent."""
        return cast("str | None", self.options.get("task_id"))

    def set(self, *, immutable: bool | None = None, **options: Any) -> Self:
        """Change options, see SendOptions. Returns the signature itself."""
        if immutable is not None:
            self["immutable"] = immutable
        self.options.update(_plain(options))
        return self

    def link(self, callback: Plain) -> Plain:
        """Run `callback` with the result after a success. Returns `callback`."""
        return self._append("link", callback)

    def link_error(self, errback: Plain) -> Plain:
        """Run `errback` with the task's id after any other end. Returns `errback`."""
        return self._append("link_error", errback)

    def on_error(self, errback: Plain) -> Self:
        """Do the same as `link_error`. Returns the signature itself."""
        self.link_error(errback)
        return self

    def clone(self, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Self:
        """Return a copy with these arguments before its own, unless it is immutable."""
        found = copy.deepcopy(self)
        if not self.get("immutable"):
            found["args"] = [*args, *self["args"]]
            found["kwargs"] = {**self["kwargs"], **(kwargs or {})}
        return found

    def delay(self, /, *args: Any, **kwargs: Any) -> AsyncResult:
        """Send the signature with these arguments before its own."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, /, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """Send the signature with these arguments before its own; see SendOptions.

        Returns the last task's AsyncResult; for a group, a GroupResult. Raises LinkError,
        MessageError, and ConfigError if there is no app, or no Redis server to count a chord.
        """
        sent: AsyncResult = self._app().send_canvas(self, args, kwargs, **options)
        return sent

    @property
    def awaiting(self) -> Any:
        return self._app().awaiting

    adelay = awaited(delay)
    aapply_async = awaited(apply_async)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a task in this thread; send a chain, group or chord."""
        if kind_of(self) is None:
            task = self._app().get_task(self["task"])
            return task(*args, *self["args"], **{**self["kwargs"], **kwargs})
        return self.apply_async(args, kwargs)

    def __or__(self, other: object) -> Signature:  # type: ignore[override]
        return chain(self, other) if isinstance(other, dict) else NotImplemented

    def __ror__(self, other: object) -> Signature:  # type: ignore[override]
        return chain(other, self) if isinstance(other, dict) else NotImplemented

    __ior__ = __or__

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy everything but the app."""
        found = self.__class__.__new__(self.__class__)
        memo[id(self)] = found
        dict.__init__(found, copy.deepcopy(dict(self), memo))
        found.app = self.app
        return found

    def __repr__(self) -> str:
        args = [repr(one) for one in self["args"]]
        args += [f"{name}={value!r}" for name, value in self["kwargs"].items()]
        return f"{self['task']}({', '.join(args)})"

    def _append(self, what: str, one: Plain) -> Plain:
        if not isinstance(one, dict):
            raise MessageError(f"{what} is {type(one).__name__}, must be a signature")
        found = listed(self.options.get(what))
        self.options[what] = list(found if one in found else (*found, one))
        return one

    def _app(self) -> App:
        if self.app is None:
            raise ConfigError(
                f"{self!r:.200} has no app: make it with `task.s(…)` or `signature(…, app=app)`"
            )
        return self.app


class chain(Signature):  # noqa: N801  # as Celery has them
    """Tasks one after the other, each with the result of the one before it.

    chain(add.s(2, 2), add.s(4)), or add.s(2, 2) | add.s(4). Its result is the last task's.
    """

    def __init__(self, *tasks: Any, app: App | None = None, **options: Any) -> None:
        found: list[Any] = []
        for one in _several(tasks):
            is_open = isinstance(one, chain) and not one["options"] and not one["args"]
            found.extend(one.tasks if is_open else [one])
        super().__init__(
            "celery.chain",
            kwargs={"tasks": found},
            options=options,
            kind=CHAIN,
            app=app,
            parts=found,
        )

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks)) or "chain()"


class group(Signature):  # noqa: N801
    """Tasks side by side: group(add.s(n, n) for n in range(3)).

    `delay` and `apply_async` return a GroupResult, whose `get` gives a list, in order.
    """

    def __init__(self, *tasks: Any, app: App | None = None, **options: Any) -> None:
        found = [inner for one in _several(tasks) for inner in _opened(one)]
        super().__init__(
            "celery.group",
            kwargs={"tasks": found},
            options=options,
            kind=GROUP,
            app=app,
            parts=found,
        )

    def apply_async(
        self, /, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> GroupResult:
        if self._is_empty:
            from blimp.queue.results.handle import empty_group

            return empty_group()
        return cast("GroupResult", super().apply_async(args, kwargs, **options))

    def delay(self, /, *args: Any, **kwargs: Any) -> GroupResult:
        """Send all members with these arguments before their own."""
        return self.apply_async(args, kwargs)

    @property
    def awaiting(self) -> Any:
        return None if self._is_empty else super().awaiting

    @property
    def _is_empty(self) -> bool:
        """Whether it is of no rows: there is nothing to send, and no app to know of."""
        return self.app is None and not members(self.tasks)

    adelay: Callable[..., Coroutine[Any, Any, GroupResult]] = awaited(delay)
    aapply_async: Callable[..., Coroutine[Any, Any, GroupResult]] = awaited(apply_async)

    def link(self, callback: Plain) -> Plain:  # noqa: ARG002
        raise MessageError("a group has no link: use a chord, whose body gets all its results")

    def link_error(self, errback: Plain) -> Plain:
        """Run `errback` with the id of each member that does not succeed."""
        for one in self.tasks:
            one.link_error(errback)
        return errback

    def __len__(self) -> int:
        return len(self.tasks)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"group({', '.join(map(repr, self.tasks))})"


class chord(Signature):  # noqa: N801
    """Tasks side by side, and a body that gets all their results in order after all succeed.

    chord([add.s(1, 1), add.s(2, 2)])(total.s()) sends it; group(…) | total.s() is the same.
    If one task fails the body ends as FAILURE with a ChordError, and its errbacks run.
    """

    def __init__(
        self,
        header: Any,
        body: Plain | None = None,
        *,
        app: App | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(header, group):
            header = group(header)
        super().__init__(
            "celery.chord",
            kwargs={"header": header, "body": body, "kwargs": {}},
            options=options,
            kind=CHORD,
            app=app,
            parts=(header, body),
        )

    @property
    def body(self) -> Any:
        """The signature that gets the results; None if there is none yet."""
        return self["kwargs"]["body"]

    def __call__(self, body: Plain | None = None, **options: Any) -> AsyncResult:
        whole = self.clone()
        if body is not None:
            whole["kwargs"]["body"] = body
            whole.app = whole.app or _app_of(body)
        return whole.apply_async(**options)

    def link(self, callback: Plain) -> Plain:
        """Run `callback` with the body's result."""
        return cast("Signature", self.body).link(callback)

    def link_error(self, errback: Plain) -> Plain:
        """Run `errback` with the body's id if the body, or a task of the header, fails."""
        return cast("Signature", self.body).link_error(errback)

    def __repr__(self) -> str:
        return f"chord({self['kwargs']['header']!r}, {self.body!r})"


def signature(
    task: Any,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    *,
    immutable: bool = False,
    app: App | None = None,
    **more: Any,
) -> Signature:
    """Return a signature of a task or a task's name, or read one from a dict, Celery's too.

    more: further options. Raises MessageError for a dict that is no signature.
    """
    if isinstance(task, dict):
        return _from_dict(copy.deepcopy(check_signature(task, where="signature")), app)
    if not isinstance(task, str):
        task, app = task.name, app or task.app
    both = dict(options or {}) | more
    return Signature(task, args, kwargs, both, immutable=immutable, app=app)


def mapped(task: Plain, items: Iterable[Any], *, star: bool = False) -> Signature:
    """Return one task that calls `task` with each item in turn and returns all results.

    star: each item is a list of arguments, not one argument.
    """
    kwargs = {"task": dict(task), "it": [list(one) if star else one for one in items]}
    name = STARMAP if star else MAP
    return Signature(name, kwargs=kwargs, immutable=True, app=_app_of(task))


def chunks(task: Plain, items: Iterable[Any], size: int) -> group:
    """Return a group of `starmap` tasks with up to `size` items each."""
    if size < 1:
        raise MessageError(f"chunks of {size} items: the size must be 1 or more")
    rest = list(items)
    return group(
        mapped(task, rest[start : start + size], star=True) for start in range(0, len(rest), size)
    )


def _from_dict(plain: Plain, app: App | None) -> Signature:
    """Return `plain` and all signatures in it as Signature. It is a copy that may be changed."""
    kind = kind_of(plain)
    kwargs = plain["kwargs"] = dict(plain.get("kwargs") or {})
    if kind in (CHAIN, GROUP):
        kwargs["tasks"] = [_from_dict(one, app) for one in kwargs["tasks"]]
    elif kind == CHORD:
        header = [_from_dict(one, app) for one in listed(kwargs["header"])]
        is_group = len(header) == 1 and isinstance(header[0], group)
        kwargs["header"] = header[0] if is_group else group(header)
        kwargs["body"] = _from_dict(kwargs["body"], app)
    kinds: dict[Any, type[Signature]] = {CHAIN: chain, GROUP: group, CHORD: chord}
    made = kinds.get(kind, Signature)
    found = made.__new__(made)
    dict.__init__(found, {"args": [], "options": {}} | plain)
    found.app = app or _app_of(plain)
    return found


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with times as text, for JSON."""
    return {
        name: zoned(value, name).isoformat() if isinstance(value, datetime) else value
        for name, value in options.items()
    }


def _several(tasks: tuple[Any, ...]) -> Iterable[Any]:
    """Return signatures that were passed one by one, or in one list or generator."""
    if len(tasks) == 1 and not isinstance(tasks[0], dict):
        tasks = tuple(tasks[0])
    for number, one in enumerate(tasks):
        if not isinstance(one, dict):
            raise MessageError(f"tasks[{number}] is {type(one).__name__}, must be a signature")
    return tasks


def _opened(one: Any) -> list[Any]:
    return members([one]) if isinstance(one, group) and not one["options"] else [one]


def _app_of(one: Any) -> App | None:
    return one.app if isinstance(one, Signature) else None
