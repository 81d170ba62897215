"""Parameters that were set on this ship: kept in a file of its own, beside the airframe's."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from blimp import airframe as airframes
from blimp.airframe import Airframe
from blimp.errors import AirframeError, ConfigError, Refused, TaskError
from blimp.parameters import find, parameters, with_parameter
from blimp.service.files import write_whole


class _Set(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """was: the airframe's own number when it was set. What was changed last goes first."""

    was: float
    value: float


class Found(NamedTuple):
    """A ship with what was set, and why a number of the file was not."""

    airframe: Airframe
    passed_over: tuple[str, ...]


class ParameterFile:
    """JSON: for each parameter that was set, its number, and that of the airframe's file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def onto(self, airframe: Airframe) -> Found:
        """Return the ship with what is in the file, if there is one.

        A number that was changed in the airframe's file since then is passed over. Raises
        ConfigError, with the cure, for a file that is none, or a number that cannot be.
        """
        passed_over: list[str] = []
        found = airframe
        try:
            if not self.path.exists():
                return Found(airframe, ())
            entries = msgspec.json.decode(self.path.read_bytes(), type=dict[str, _Set])
            for name, entry in entries.items():
                if name in airframes.RETIRED:
                    passed_over.append(f"{name} has no effect in this version: {entry.value:g}")
                    continue
                own = find(airframe, name).value
                if own == entry.was:
                    found = with_parameter(found, name, entry.value)
                else:
                    passed_over.append(
                        f"{name} is {own:g}: {entry.value:g} was set when the airframe's file "
                        f"had {entry.was:g}"
                    )
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"parameters {self.path}: {error}: remove the file to reset all parameters"
            ) from error
        return Found(found, tuple(passed_over))

    def keep(self, flown: Airframe, *, own: Airframe) -> None:
        """Write how `flown` differs from the ship's `own` airframe. Raises ConfigError."""
        before = {one.path: one.value for one in parameters(own)}
        entries = {
            one.path: _Set(was=before[one.path], value=one.value)
            for one in parameters(flown)
            if one.value != before[one.path]
        }
        write_whole(self.path, msgspec.json.encode(entries).decode() + "\n", mode=0o600)


class FlownFile:
    """The airframe that the flight process leaves in its runtime directory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """Return the airframe. Raises TaskError if no flight process has left one."""
        found: dict[str, Any] = msgspec.to_builtins(self.load())
        return found

    def check(self, name: object, value: object) -> tuple[str, ...]:
        """Judge the ship with one number set; see `blimp.tasks.parameter.FlownAirframe`."""
        airframe = self.load()
        if not isinstance(name, str):
            raise Refused("param: name: must be a text such as limits.speed_mps")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused("param: value: must be a number")
        try:
            changed = with_parameter(airframe, name, value)
        except ValueError as error:
            raise Refused(f"param: {error}") from None
        from blimp.service.airframes.check import check  # 0.1 s, which few workers need

        report, before = check(changed), check(airframe)
        # A ship on the bench may be unfit to fly already: what is new is refused.
        if errors := [text for text in report.errors if text not in before.errors]:
            raise Refused(f"param: with {name} {value:g} it cannot fly: {'; '.join(errors)}")
        return tuple(text for text in report.warnings if text not in before.warnings)

    def has(self, name: object, value: object) -> bool:
        """Whether the airframe that flies now has this number."""
        try:
            return find(self.load(), str(name)).value == value
        except (TaskError, ValueError):
            return False  # between two flight loops there is none

    def load(self) -> Airframe:
        try:
            return airframes.load(str(self._path))
        except AirframeError as error:
            raise TaskError(f"no flight process has written its airframe here: {error}") from None
