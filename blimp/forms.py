"""What a form is: the arguments of an action, each with its unit, its limits and its sentence.

Data and the checks that any ship shares. The forms are in `blimp/actions.py`.
"""

import sys
from collections.abc import Mapping
from functools import cache
from math import inf, isfinite
from typing import Any, get_args, get_origin

import msgspec

from blimp.suggest import suggestion
from blimp.types import Mode

MAX_TEXT = 200
# Of the arrows of a number's field in a form, by unit: what a person notices in flight.
STEPS = {"m": 0.5, "m/s": 0.1, "degrees": 5.0, "s": 0.5, "%": 5.0, "us": 10.0}
MAX_FLOAT = sys.float_info.max
MAX_WHOLE = 2**63 - 1  # of a message


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: an unknown argument is a mistake, not something to ignore."""

    def problem(self) -> str:
        """Return why no ship takes these arguments together, "" if one may."""
        return ""


def quantity(
    about: str,
    unit: str = "",
    low: float = -inf,
    high: float = inf,
    *,
    ship: tuple[str, str] = ("", ""),
    option: str = "",
    metavar: str = "",
    names: str = "",
    example: float | None = None,
) -> msgspec.Meta:
    """Describe one argument of a form.

    low, high: in `unit`, for any ship. ship: the limits of the airframe that are narrower, by
    their names; "-speed_mps" is the negative. option, metavar: on a command line; by default an
    argument with a default is an option. names: the kind of thing that it names. example: what a
    form begins with.
    """
    schema: dict[str, Any] = {"x-unit": unit} if unit else {}
    schema |= {"x-step": STEPS[unit]} if unit in STEPS else {}
    schema |= {} if example is None else {"examples": [example]}
    schema |= {k: v for k, v in (("minimum", low), ("maximum", high)) if isfinite(v)}
    schema |= {"x-ship-limits": list(ship)} if any(ship) else {}
    extra = {
        "about": about, "unit": unit, "low": low, "high": high, "ship": ship, "option": option,
        "metavar": metavar, "names": names,
    }  # fmt: skip
    return msgspec.Meta(description=about, extra=extra, extra_json_schema=schema)


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of an action, as `quantity` and its form describe it."""

    name: str
    kind: type
    default: Any  # msgspec.NODEFAULT: it must be given
    about: str
    unit: str
    low: float
    high: float
    ship: tuple[str, str]
    option: str
    metavar: str
    names: str

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.NODEFAULT

    @property
    def is_bounded(self) -> bool:
        return isfinite(self.low) or isfinite(self.high)

    def bounds(self, limits: object) -> tuple[float, float]:
        """Return lowest and highest for the ship with these limits of its airframe."""
        low, high = self.ship
        return _limit(limits, low, self.low), _limit(limits, high, self.high)

    def problem(self, value: Any) -> str:
        """Return why `value` cannot be this argument, whatever the ship; "" if it can."""
        if value is None and not self.is_required:
            return ""
        if self.kind is bool:
            return "" if isinstance(value, bool) else f"{self.name}: must be true or false"
        if self.kind is str:
            if not isinstance(value, str) or len(value) > MAX_TEXT:
                return f"{self.name}: must be a text of up to {MAX_TEXT} letters"
            if any("\ud800" <= letter <= "\udfff" for letter in value):
                return f"{self.name}: {value[:40]!r} is no text: half of a surrogate pair"
            return self._name_problem(value)
        if self.kind in (int, float):
            return self._number_problem(value)
        return ""

    def _name_problem(self, value: str) -> str:
        if self.names != "mode" or value.upper() in Mode.__members__:
            return ""
        close = suggestion(value, map(str.lower, Mode.__members__))
        return f"no mode {value[:40]!r}{close}; modes are {', '.join(Mode.__members__)}"

    def _number_problem(self, value: Any) -> str:
        is_number = isinstance(value, self.kind | int) and not isinstance(value, bool)
        largest = MAX_WHOLE if self.kind is int else MAX_FLOAT
        if is_number and self.low <= value <= self.high and abs(value) <= largest:
            return ""
        what = "a whole number" if self.kind is int else "a finite number"
        if self.is_bounded:
            what += f", {self.low:g} to {self.high:g} {self.unit}"
        try:
            found = str(value)[:40]
        except ValueError:  # Python writes no whole number of more than 4300 digits
            found = "a longer one"
        return f"{self.name} must be {what}, not {found}"


def _limit(limits: object, name: str, otherwise: float) -> float:
    if not name:
        return otherwise
    value = float(getattr(limits, name.removeprefix("-")))
    return -value if name.startswith("-") else value


@cache
def arguments_of(form: type[Arguments]) -> tuple[Argument, ...]:
    """Return the arguments of a form, in order."""
    return tuple(_argument(field) for field in msgspec.structs.fields(form))


def _argument(field: Any) -> Argument:
    kind, meta = get_args(field.type)[:2]
    plain = next((part for part in get_args(kind) if part is not type(None)), kind)
    optional = type(None) in get_args(kind)
    return Argument(
        name=field.name,
        kind=plain if optional else get_origin(kind) or kind,
        default=field.default,
        **meta.extra,
    )


def sent(action: str, form: type[Arguments], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what to send of `arguments`; a None is left out, the ship has the defaults.

    Raises ValueError naming the argument, what it is and what it must be, for what no ship takes.
    """
    known = {one.name: one for one in arguments_of(form)}
    for name in arguments:
        if name not in known:
            raise ValueError(
                f"{action} has no argument {name[:40]!r}{suggestion(name, known)}; "
                f"it has {', '.join(known) or 'none'}"
            )
    for name, argument in known.items():
        if argument.is_required and arguments.get(name) is None:
            raise ValueError(f"{name} is missing: {argument.about.rstrip('.')}")
        if problem := argument.problem(arguments.get(name, argument.default)):
            raise ValueError(problem)
    found = {name: value for name, value in arguments.items() if value is not None}
    try:
        problem = msgspec.convert(found, form).problem()
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    if problem:
        raise ValueError(problem)
    return found
