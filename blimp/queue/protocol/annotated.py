"""What JSON has no word for, by annotation: a receiver makes it again from the JSON of its sender.

Dataclasses, named tuples, msgspec and pydantic models, enums, timedelta and paths, alone or in
lists, dicts, tuples and unions with None.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Optional,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

import msgspec

from blimp.errors import MessageError, ResultError

# The type variables of a task: its parameters, and what it returns. Both have a default, so that a
# bare `Task` or `AsyncResult` is one of anything (PEP 696).
if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any, covariant=True)
else:  # before Python 3.13 those of the standard library take no default
    from typing import ParamSpec, TypeVar

    P, R = ParamSpec("P"), TypeVar("R", covariant=True)

RETURN = "return"  # as Python's __annotations__ name it
_TYPED = (datetime, date, time, UUID, Decimal, bytes)  # kombu has names for these
_building = threading.Lock()  # see blimp/reading.py; two functions may name one class


def is_made(kind: Any) -> bool:
    """Return whether a receiver can make an object of class `kind` from what JSON holds."""
    if not isinstance(kind, type):
        return False
    if issubclass(kind, Enum):
        return bool(kind.__members__)
    if issubclass(kind, tuple):
        return hasattr(kind, "_fields")
    if hasattr(kind, "__pydantic_validator__"):  # of a dataclass msgspec would not ask it
        return not is_dataclass(kind) and bool(getattr(kind, "model_fields", None))
    if issubclass(kind, msgspec.Struct):
        return kind is not msgspec.Struct
    return is_dataclass(kind) or issubclass(kind, timedelta | PurePath)


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
    if is_made(type(value)):
        return msgspec.json.decode(value.model_dump_json(by_alias=True, round_trip=True))
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _make(kind: Any, plain: Any) -> Any:
    """Make an object of a class that msgspec does not know. Raises TypeError, ValueError."""
    if isinstance(plain, kind):
        return plain
    if not issubclass(kind, PurePath):
        import json  # few tasks take a model of pydantic

        return kind.model_validate_json(json.dumps(plain, default=_text))
    if isinstance(plain, str):
        return kind(plain)
    raise TypeError(f"Expected `{kind.__name__}`, got `{type(plain).__name__}`")


def _text(typed: Any) -> str:
    """Return what kombu has a name for as pydantic reads it from JSON."""
    if isinstance(typed, bytes):
        return typed.decode()
    return typed.isoformat() if isinstance(typed, date | time) else str(typed)


class Annotations:
    """What the annotations of a function say of its parameters and its result.

    hints: the type of each that has to be made, also of RETURN. problems: why another cannot be.
    has_arguments: whether a parameter has to be. skip: how many arguments come before a sender's:
    a bound task's context.
    """

    def __init__(
        self, function: Callable[..., Any], signature: inspect.Signature | None, *, skip: int
    ) -> None:
        self.hints: dict[str, Any] = {}
        self.problems: dict[str, str] = {}
        self._skip = skip
        self._positional: list[str] = []
        self._keywords: set[str] = set()
        self._rest = self._more = ""  # the names of *args and **kwargs
        if signature is not None:
            self._read(signature, getattr(inspect.unwrap(_innermost(function)), "__globals__", {}))
        self.has_arguments = bool(self.hints.keys() - {RETURN})

    def _read(self, signature: inspect.Signature, names: dict[str, Any]) -> None:
        self._note(RETURN, signature.return_annotation, names)
        for name, one in signature.parameters.items():
            if one.kind is one.VAR_POSITIONAL:
                self._rest = name
            elif one.kind is one.VAR_KEYWORD:
                self._more = name
            else:
                if one.kind is not one.KEYWORD_ONLY:
                    self._positional.append(name)
                if one.kind is not one.POSITIONAL_ONLY:
                    self._keywords.add(name)
            self._note(name, one.annotation, names)
            if one.default is None and name in self.hints:
                self.hints[name] = Optional[self.hints[name]]  # noqa: UP045  `|` is not for all

    def _note(self, name: str, annotation: Any, names: dict[str, Any]) -> None:
        if annotation is inspect.Parameter.empty:
            return
        try:
            hint = _resolve(annotation, names)
            if _says(hint):
                _build(hint)
                self.hints[name] = hint
        except Exception as error:  # the annotation is code of anybody
            self.problems[name] = f"{type(error).__name__}: {error}"

    def _name(self, place: int | str) -> str:
        """Return the parameter that takes an argument, by its number or its keyword."""
        if isinstance(place, str):
            return place if place in self._keywords else self._more
        return self._positional[place] if place < len(self._positional) else self._rest

    def made(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, where: str
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call, made. Raises MessageError naming which cannot be."""

        def make(place: int | str, value: Any) -> Any:
            name = self._name(place)
            hint = self.hints.get(name)
            return value if hint is None else convert(value, hint, f"{where}: {name}")

        own, given = args[: self._skip], args[self._skip :]
        return (
            [*own, *(make(place, value) for place, value in enumerate(given, self._skip))],
            {name: make(name, value) for name, value in kwargs.items()},
        )

    def result(self, value: Any, *, where: str) -> Any:
        """Make the result. Raises ResultError."""
        hint = self.hints.get(RETURN)
        try:
            return value if hint is None else convert(value, hint, where)
        except Exception as error:  # a model's own code may raise anything
            raise ResultError(str(error)) from error

    def check_sent(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        arrives: Callable[[Any], Any],
        where: str,
    ) -> None:
        """Raise TypeError for what would not arrive as what it is.

        arrives: returns JSON's value of what is sent. Nothing is raised for what JSON cannot hold:
        sending it fails.
        """
        given: list[tuple[int | str, Any]] = [*enumerate(args, self._skip), *kwargs.items()]
        for place, value in given:
            if (found := next(_objects(value), None)) is None:
                continue
            name, what = self._name(place), f"a {type(found).__name__}"
            if name not in self.hints:
                why = self.problems.get(name, "its annotation names no such type")
            elif not (why := _changed(value, self.hints[name], arrives)):
                continue
            raise TypeError(f"{where}: {name} holds {what} that would not arrive as it is: {why}")


def _changed(value: Any, hint: Any, arrives: Callable[[Any], Any]) -> str:
    """Return why `value` would not arrive, "" if it would."""
    try:
        plain = arrives(value)
    except (TypeError, ValueError, RecursionError):
        return ""
    try:
        return "" if _same(convert(plain, hint, "sent"), value) else "JSON does not hold it all"
    except Exception as error:  # a model's own code may raise anything
        return str(error)


def convert(value: Any, hint: Any, where: str) -> Any:
    """Make what `hint` says of `value`. Raises MessageError naming where and why not."""
    try:
        return msgspec.convert(value, hint, str_keys=True, dec_hook=_make)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise MessageError(f"{where}: {error}") from error


def _objects(value: Any) -> Iterator[Any]:
    """Yield what has to be made in what is sent. JSON has text, numbers and lists for the rest."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _objects(one)
    elif isinstance(value, dict):
        yield from _objects([*value.values()])
    elif is_made(type(value)) and not isinstance(value, str | int):
        yield value


def _same(made: Any, given: Any) -> bool:
    if isinstance(given, list | tuple):
        return len(made) == len(given) and all(map(_same, made, given))
    if isinstance(given, dict):
        return len(made) == len(given) and all(_same(made.get(k), v) for k, v in given.items())
    if not is_made(type(given)):
        return True  # as JSON has it
    equals: Any = type(given).__eq__
    if equals is object.__eq__:
        return type(made) is type(given) and bool(to_builtins(made) == to_builtins(given))
    return type(made) is type(given) and bool(made == given)


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


def _build(hint: Any) -> None:
    """Have msgspec ready to make a `hint`. Raises TypeError for what it cannot, or not rightly."""
    with _building:
        msgspec.json.Decoder(hint, dec_hook=_make)
        for kind in _classes(msgspec.inspect.type_info(hint), set()):
            if not is_typeddict(kind) and not is_made(get_origin(kind) or kind):
                raise TypeError(f"{kind} is not made from JSON")


def _classes(info: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the classes that msgspec's view of a type names."""
    if isinstance(info, tuple):
        for one in info:
            yield from _classes(one, seen)
    elif isinstance(info, msgspec.Struct) and id(info) not in seen:
        seen.add(id(info))  # a class may name itself
        for name in info.__struct_fields__:
            if name == "cls":
                yield info.cls  # type: ignore[attr-defined]
            else:
                yield from _classes(getattr(info, name), seen)


def _resolve(annotation: Any, names: dict[str, Any]) -> Any:
    """Return the type that an annotation names. Raises what its evaluation raises."""

    def holder() -> None: ...

    holder.__annotations__ = {RETURN: annotation}
    return get_type_hints(holder, globalns=names, include_extras=True)[RETURN]


def _says(hint: Any) -> bool:
    """Return whether something in `hint` has to be made."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _says(get_args(hint)[0])
    return is_made(origin or hint) or any(map(_says, get_args(hint)))


_PLAIN = frozenset({str, int, float, bool, type(None)})


def are_plain(values: Iterable[Any]) -> bool:
    """Return whether JSON has a type of its own for each, and for what is in it."""
    for one in values:
        kind = type(one)
        if kind in _PLAIN:
            continue
        if kind is dict:
            one = one.values()
        elif kind is not list and kind is not tuple:
            return False
        if not are_plain(one):
            return False
    return True
