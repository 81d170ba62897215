"""What JSON has no word for, by annotation: a receiver makes it again from the JSON of its sender.

Dataclasses, named tuples, attrs classes, msgspec and pydantic models, enums, timedelta and paths,
alone or in lists, dicts, tuples and unions with None.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from blimp.errors import MessageError, ResultError, TaskError

RETURN = "return"  # as Python's __annotations__ name it
_TYPED = (datetime, date, time, UUID, Decimal, bytes)  # kombu has names for these
_MADE = (msgspec.Struct, Enum, timedelta, PurePath)
_building = threading.Lock()  # see blimp/reading.py; two functions may name one class


def is_made(kind: Any) -> bool:
    """Return whether a receiver must make an object of class `kind` from what JSON holds."""
    if not isinstance(kind, type):
        return False
    marks = ("model_validate_json", "__attrs_attrs__", "_fields")
    return is_dataclass(kind) or issubclass(kind, _MADE) or any(hasattr(kind, m) for m in marks)


def to_builtins(value: Any) -> Any:
    """Return an object of such a class as JSON's types, and those that kombu has a name for.

    Raises TypeError for any other, ValueError or RecursionError for what is in it.
    """
    if not is_made(type(value)):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    return msgspec.to_builtins(value, builtin_types=_TYPED, str_keys=True, enc_hook=_write)


def _write(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "model_dump_json"):
        return msgspec.json.decode(value.model_dump_json(by_alias=True, round_trip=True))
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _make(kind: type, plain: Any) -> Any:
    """Make an object of a class that msgspec does not know. Raises TypeError, ValueError."""
    if isinstance(plain, kind):
        return plain
    if issubclass(kind, PurePath) and isinstance(plain, str):
        return kind(plain)
    if hasattr(kind, "model_validate_json"):
        return kind.model_validate_json(msgspec.json.encode(plain))
    raise TypeError(f"Expected `{kind.__name__}`, got `{type(plain).__name__}`")


class Annotations:
    """What the annotations of a function say of its parameters and its result.

    hints: the type of each that has to be made, also of RETURN. problems: why another cannot be.
    has_arguments: whether a parameter has to be.
    """

    def __init__(
        self, function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], result: Any
    ) -> None:
        self.hints: dict[str, Any] = {}
        self.problems: dict[str, str] = {}
        given = {name: one.annotation for name, one in parameters.items()} | {RETURN: result}
        names = getattr(inspect.unwrap(_innermost(function)), "__globals__", {})
        for name, annotation in given.items():
            if annotation is inspect.Parameter.empty:
                continue
            try:
                hint = _resolve(annotation, names)
                if _says(hint):
                    with _building:
                        msgspec.json.Decoder(hint, dec_hook=_make)  # or raises why it cannot
                    self.hints[name] = _of_all(hint, parameters.get(name))
            except Exception as error:  # the annotation is code of anybody
                self.problems[name] = f"{type(error).__name__}: {error}"
        self.has_arguments = bool(self.hints.keys() - {RETURN})
        self._parameters = parameters

    def made(self, bound: inspect.BoundArguments, *, where: str) -> inspect.BoundArguments:
        """Make what is bound to the parameters, in place. Raises MessageError naming which."""
        for name, hint in self.hints.items():
            if name in bound.arguments:
                given = bound.arguments[name]
                bound.arguments[name] = convert(given, hint, f"{where}: {name}")
        return bound

    def result(self, value: Any, *, where: str) -> Any:
        """Make the result. Raises ResultError."""
        hint = self.hints.get(RETURN)
        return value if hint is None else convert(value, hint, where, error=ResultError)

    def check_sent(self, bound: inspect.BoundArguments, *, where: str) -> None:
        """Raise TypeError for what nothing says how to make again from what JSON holds."""
        for name, value in bound.arguments.items():
            if name not in self._parameters or name in self.hints:
                continue
            for one in _values(value, self._parameters[name].kind):
                if is_made(type(one)) and not isinstance(one, str | int | tuple):  # JSON has those
                    why = self.problems.get(name, "its annotation names no such type")
                    raise TypeError(
                        f"{where}: {name} is a {type(one).__name__}, and would arrive as what JSON "
                        f"holds of it: {why}"
                    )


def _values(value: Any, kind: Any) -> Iterable[Any]:
    if kind is inspect.Parameter.VAR_KEYWORD:
        return list(value.values())
    return value if kind is inspect.Parameter.VAR_POSITIONAL else (value,)


def convert(value: Any, hint: Any, where: str, *, error: type[TaskError] = MessageError) -> Any:
    """Make what `hint` says of `value`. Raises `error` naming where and why not."""
    try:
        return msgspec.convert(value, hint, str_keys=True, dec_hook=_make)
    except Exception as wrong:  # a model's own code may raise anything
        raise error(f"{where}: {wrong}") from wrong


def parameters_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of `function`, None if it has none, as some built-in ones."""
    try:
        if sys.version_info >= (3, 14):  # annotations are evaluated when they are asked for
            from annotationlib import Format

            return inspect.signature(function, annotation_format=Format.FORWARDREF)
        return inspect.signature(function)
    except ValueError:
        return None


def _innermost(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return getattr(type(function), "__call__", function)  # noqa: B004


def _resolve(annotation: Any, names: dict[str, Any]) -> Any:
    """Return the type that an annotation names. Raises what its evaluation raises."""

    def holder() -> None: ...

    holder.__annotations__ = {RETURN: annotation}
    return get_type_hints(holder, globalns=names, include_extras=True)[RETURN]


def _of_all(hint: Any, parameter: inspect.Parameter | None) -> Any:
    """Return the type of all that a parameter takes, each of which is a `hint`."""
    if parameter is not None and parameter.kind is parameter.VAR_POSITIONAL:
        return tuple[hint, ...]
    if parameter is not None and parameter.kind is parameter.VAR_KEYWORD:
        return dict[str, hint]
    return hint


def _says(hint: Any) -> bool:
    """Return whether something in `hint` has to be made."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _says(get_args(hint)[0])
    return is_made(origin or hint) or any(map(_says, get_args(hint)))


PLAIN: frozenset[type] = frozenset({str, int, float, bool, type(None), list, dict, tuple})


def are_plain(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether none of them is an object that has to be made."""
    return PLAIN.issuperset(map(type, args)) and PLAIN.issuperset(map(type, kwargs.values()))
