"""Parameters: the numbers of an airframe that a person may set, with units and limits.

They are the fields of some of its tables, named "limits.speed_mps". Geometry, masses and wiring
are none: they are measured, and stand in the airframe's file.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.inspect import FloatType, IntType, StructType, UnionType, type_info

from blimp.airframe import Airframe
from blimp.suggest import suggestion

SECTIONS = ("limits", "gains", "battery", "ground", "home", "estimator")  # one table each
_UNITS = {  # of a field's last word; what has none here is a bare number
    "m": "m", "mps": "m/s", "mps2": "m/s²", "rad": "rad", "radps": "rad/s", "kg": "kg", "v": "V",
    "a": "A", "ah": "Ah", "ohm": "Ω", "deg": "°", "s": "s", "n": "N", "nm": "N m", "t": "T",
}  # fmt: skip
_ENDLESS = 1e99
_TINY, _HUGE = 1e-6, 1e6  # beyond them a limit is the schema's way to say above 0, and finite


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """unit: "" for a bare number. limits: in words: "above 0", "0 to 90"."""

    section: str
    name: str
    value: float | int
    unit: str
    limits: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"


def parameters(airframe: Airframe) -> Iterator[Parameter]:
    """Yield every parameter of the ship."""
    for section in SECTIONS:
        part = getattr(airframe, section)
        for field in _fields(part):
            value = getattr(part, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            yield Parameter(
                section=section,
                name=field.name,
                value=value,
                unit=_UNITS.get(field.name.rpartition("_")[2], "") if "_" in field.name else "",
                limits=_limits(field.type),
            )


def find(airframe: Airframe, path: str) -> Parameter:
    """Return the parameter of that name. Raises ValueError if the ship has none."""
    known = {one.path: one for one in parameters(airframe)}
    if path not in known:
        near = suggestion(path, known)
        raise ValueError(f"no parameter {path[:60]!r}{near}: 'ground param' lists them")
    return known[path]


def with_parameter(airframe: Airframe, path: str, value: float) -> Airframe:
    """Return the ship with one parameter set. Raises ValueError naming it and its limits.

    Only the schema's limits are judged here; `blimp airframe check` says whether it can fly so.
    """
    one = find(airframe, path)
    value = max(-_ENDLESS, min(_ENDLESS, value))  # an integer may be too long for a float
    part = getattr(airframe, one.section)
    number = int(value) if isinstance(one.value, int) and float(value).is_integer() else value
    try:
        changed = msgspec.convert(msgspec.structs.asdict(part) | {one.name: number}, type(part))
    except msgspec.ValidationError:
        whole = ", a whole number" if isinstance(one.value, int) else ""
        unit = f" {one.unit}" if one.unit else ""
        far = " and below a million" if abs(value) >= _HUGE else ""
        reason = f"{path} is {value:g}{unit}, must be {one.limits}{unit}{far}{whole}"
        raise ValueError(reason) from None
    return msgspec.structs.replace(airframe, **{one.section: changed})


def _fields(part: msgspec.Struct) -> tuple[Any, ...]:
    info = type_info(type(part))
    assert isinstance(info, StructType)
    return info.fields


def _limits(kind: Any) -> str:
    """Return what the schema allows: "above 0", "0 to 90"."""
    if isinstance(kind, UnionType):
        kind = next((one for one in kind.types if isinstance(one, FloatType | IntType)), kind)
    low, above = getattr(kind, "ge", None), getattr(kind, "gt", None)
    high, below = getattr(kind, "le", None), getattr(kind, "lt", None)
    if low is not None and 0.0 < low < _TINY:
        low, above = None, 0.0
    if high is None and below is not None and below < _HUGE:
        high = below
    if high is not None and high >= _HUGE:
        high = None
    if low is not None and low <= -_HUGE:
        low = None
    least = f"above {above:g}" if above is not None else f"{low:g}" if low is not None else ""
    if high is not None:
        return f"{least} to {high:g}" if least else f"at most {high:g}"
    return "any number" if not least else least if above is not None else f"at least {least}"
