"""Signatures, chains, groups and chords as people write them: dicts that Celery reads as well.

chain(add.s(2, 2), add.s(4)).delay().get(timeout=5.0)    # 8
chord([add.s(1, 1), add.s(2, 2)])(total.s()).get(timeout=5.0)
(group(fetch.s(name) for name in names) | merge.s() | store.s()).delay()
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, cast

from blimp.errors import ConfigError, MessageError
from blimp.queue.protocol.embed import CHAIN, CHORD, GROUP, kind_of, members
from blimp.queue.protocol.embed import Signature as Plain

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.results.group import GroupResult
    from blimp.queue.results.handle import AsyncResult
    from blimp.queue.task import Task


class Signature(dict[str, Any]):
    """A task with arguments and options, not sent yet. Make one with `signature` or `task.s`."""

    app: TaskApp | None = None

    def __init__(
        self,
        task: str,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        *,
        kind: str | None = None,
        immutable: bool = False,
        app: TaskApp | None = None,
    ) -> None:
        super().__init__(
            task=task,
            args=list(args),
            kwargs=dict(kwargs or {}),
            options=_plain(options or {}),
            subtask_type=kind,
            immutable=immutable,
        )
        self.app = app

    @property
    def options(self) -> dict[str, Any]:
        """How it is sent: see `set`. Changed in place."""
        return cast("dict[str, Any]", self.setdefault("options", {}))

    @property
    def id(self) -> str | None:
        """The id it is to have, None where it gets one when it is sent."""
        id: str | None = self.options.get("task_id")
        return id

    def set(self, *, immutable: bool | None = None, **options: Any) -> Self:
        """Change options; see SendOptions. Returns itself."""
        if immutable is not None:
            self["immutable"] = immutable
        self.options.update(_plain(options))
        return self

    def link(self, callback: Plain) -> Plain:
        """Have `callback` begin with the result, after a success. Returns it."""
        return self._append("link", callback)

    def link_error(self, errback: Plain) -> Plain:
        """Have `errback` begin with the task's id, after any other end. Returns it."""
        return self._append("link_error", errback)

    def on_error(self, errback: Plain) -> Self:
        """The same as `link_error`, but returns itself."""
        self.link_error(errback)
        return self

    def clone(self, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Self:
        """Return a copy, with arguments before its own where it takes any."""
        found = copy.deepcopy(self)
        if not self.get("immutable"):
            found["args"] = [*args, *self["args"]]
            found["kwargs"] = {**self["kwargs"], **(kwargs or {})}
        return found

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Send it, with these arguments before its own."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """Send it, with arguments before its own; see SendOptions.

        Returns where the last result will be; of a group, a GroupResult. Raises LinkError,
        MessageError, and ConfigError where a chord has no Redis to count on.
        """
        return self._app().send_canvas(self, args, kwargs, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a task here and now; send a chain, group or chord."""
        if kind_of(self) is None:
            task = self._app().get_task(self["task"])
            return task(*args, *self["args"], **{**self["kwargs"], **kwargs})
        return self.apply_async(args, kwargs)

    def __or__(self, other: object) -> Signature:  # type: ignore[override]
        if not isinstance(other, dict):
            return NotImplemented
        return chain(self, other)

    def __ror__(self, other: object) -> Signature:  # type: ignore[override]
        if not isinstance(other, dict):
            return NotImplemented
        return chain(other, self)

    def __ior__(self, other: object) -> Signature:  # type: ignore[override]
        return self.__or__(other)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy all but the app."""
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
        found = self.options.get(what) or []
        found = [found] if isinstance(found, dict) else list(found)
        if one not in found:
            found.append(one)
        self.options[what] = found
        return one

    def _parts(self) -> Iterable[Any]:
        return ()

    def _app(self) -> TaskApp:
        found = self._find_app()
        if found is None:
            raise ConfigError(
                f"{self!r:.200} belongs to no app: use `task.s(…)`, or `signature(…, app=app)`"
            )
        return found

    def _find_app(self) -> TaskApp | None:
        if self.app is None:
            for one in self._parts():
                if isinstance(one, Signature) and (app := one._find_app()) is not None:
                    return app
        return self.app


class chain(Signature):  # noqa: N801  # as Celery has them
    """Tasks one after the other, each with the result of the one before.

    chain(add.s(2, 2), add.s(4)), or add.s(2, 2) | add.s(4); what it returns is the last one's.
    """

    def __init__(self, *tasks: Any, app: TaskApp | None = None, **options: Any) -> None:
        super().__init__("celery.chain", kwargs={"tasks": []}, options=options, kind=CHAIN, app=app)
        for one in _several(tasks):
            is_open = isinstance(one, chain) and not one["options"] and not one["args"]
            self.tasks.extend(one.tasks if is_open else [one])
            self.app = self.app or _app_of(one)

    @property
    def tasks(self) -> list[Any]:
        """Its links, in order."""
        return cast("list[Any]", self["kwargs"]["tasks"])

    def _parts(self) -> Iterable[Any]:
        return self.tasks

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks)) or "chain()"


class group(Signature):  # noqa: N801
    """Tasks side by side: group(add.s(n, n) for n in range(3)).

    `delay` and `apply_async` return a GroupResult, whose `get` gives a list, in order.
    """

    def __init__(self, *tasks: Any, app: TaskApp | None = None, **options: Any) -> None:
        found = [inner for one in _several(tasks) for inner in _opened(one)]
        super().__init__(
            "celery.group", kwargs={"tasks": found}, options=options, kind=GROUP, app=app
        )

    @property
    def tasks(self) -> list[Any]:
        """What is in it, in order."""
        return cast("list[Any]", self["kwargs"]["tasks"])

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> GroupResult:
        return cast("GroupResult", super().apply_async(args, kwargs, **options))

    def delay(self, *args: Any, **kwargs: Any) -> GroupResult:
        """Send all, with these arguments before their own."""
        return self.apply_async(args, kwargs)

    def link(self, callback: Plain) -> Plain:  # noqa: ARG002
        raise MessageError("a group has no link: use a chord, whose body gets all its results")

    def link_error(self, errback: Plain) -> Plain:
        """Have `errback` begin with the id of each task of it that does not succeed."""
        for one in self.tasks:
            one.link_error(errback)
        return errback

    def _parts(self) -> Iterable[Any]:
        return self.tasks

    def __len__(self) -> int:
        return len(self.tasks)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"group({', '.join(map(repr, self.tasks))})"


class chord(Signature):  # noqa: N801
    """Tasks side by side, and a body that gets all their results, in order, once all succeeded.

    chord([add.s(1, 1), add.s(2, 2)])(total.s()) sends it; so does group(…) | total.s(), sent.
    Where one does not, the body ends as FAILURE with a ChordError, and its errbacks begin.
    """

    def __init__(
        self, header: Any, body: Plain | None = None, *, app: TaskApp | None = None, **options: Any
    ) -> None:
        if not isinstance(header, group):
            header = group(header)
        super().__init__(
            "celery.chord",
            kwargs={"header": header, "body": body, "kwargs": {}},
            options=options,
            kind=CHORD,
            app=app,
        )

    @property
    def tasks(self) -> list[Any]:
        """Its header, in order."""
        return cast("group", self["kwargs"]["header"]).tasks

    @property
    def body(self) -> Any:
        """What gets the results; None where none is given."""
        return self["kwargs"]["body"]

    def __call__(self, body: Plain | None = None, **options: Any) -> AsyncResult:
        whole = self.clone()
        if body is not None:
            whole["kwargs"]["body"] = body
        return whole.apply_async(**options)

    def link(self, callback: Plain) -> Plain:
        """Have `callback` begin with the body's result."""
        return cast("Signature", self.body).link(callback)

    def link_error(self, errback: Plain) -> Plain:
        """Have `errback` begin with the body's id where it, or one of the header, fails."""
        return cast("Signature", self.body).link_error(errback)

    def _parts(self) -> Iterable[Any]:
        return (*self.tasks, self.body)

    def __repr__(self) -> str:
        return f"chord({self['kwargs']['header']!r}, {self.body!r})"


def signature(
    task: str | Task | Plain,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    *,
    immutable: bool = False,
    app: TaskApp | None = None,
    **more: Any,
) -> Signature:
    """Return a signature of a task, by its name or itself; or of what Celery has as a dict.

    more: further options. Raises MessageError for a dict that is none.
    """
    if isinstance(task, dict):
        return _from_dict(task, app)
    name = task if isinstance(task, str) else task.name
    if not isinstance(task, str):
        app = app or task.app
    both = dict(options or {}) | more
    return Signature(name, args, kwargs, both, immutable=immutable, app=app)


def _from_dict(plain: Plain, app: TaskApp | None) -> Signature:
    from blimp.queue.protocol.embed import check_signature

    check_signature(plain, where="signature")
    kinds: dict[Any, type[Signature]] = {CHAIN: chain, GROUP: group, CHORD: chord}
    kind = kinds.get(kind_of(plain), Signature)
    found = kind.__new__(kind)
    dict.__init__(found, copy.deepcopy(dict(plain)))
    found.app = app or _app_of(plain)
    kwargs = found.setdefault("kwargs", {})
    found.setdefault("args", [])
    found.setdefault("options", {})
    if kind in (chain, group):
        kwargs["tasks"] = [_from_dict(one, app) for one in kwargs["tasks"]]
    elif kind is chord:
        header = kwargs["header"]
        kwargs["header"] = (
            _from_dict(header, app)
            if isinstance(header, dict) and kind_of(header) == GROUP
            else group(
                [_from_dict(one, app) for one in ([header] if isinstance(header, dict) else header)]
            )
        )
        kwargs["body"] = _from_dict(kwargs["body"], app)
    return found


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Return options as JSON has them: it has no times."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in options.items()
    }


def _several(tasks: tuple[Any, ...]) -> Iterable[Any]:
    """Return what was given one by one, or in one list or generator."""
    if len(tasks) == 1 and not isinstance(tasks[0], dict):
        tasks = tuple(tasks[0])
    for number, one in enumerate(tasks):
        if not isinstance(one, dict):
            raise MessageError(f"tasks[{number}] is {type(one).__name__}, must be a signature")
    return tasks


def _opened(one: Any) -> list[Any]:
    return members([one]) if isinstance(one, group) and not one["options"] else [one]


def _app_of(one: Any) -> TaskApp | None:
    return one._find_app() if isinstance(one, Signature) else None
