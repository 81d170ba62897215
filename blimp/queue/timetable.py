"""When a task is due by itself: `every("5m")`, `cron("0 7 * * mon-fri", tz="Europe/Berlin")`.

All workers compute the same ticks from the time alone, so that none needs to ask another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import floor, isfinite
from typing import Any, Literal

import msgspec

from blimp.distribution import needing
from blimp.errors import ConfigError

Missed = Literal["latest", "skip"]

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LEAST_S, MOST_S = 1.0, 366.0 * 86_400.0
NICKNAMES = {  # as in crontab(5), but for @reboot
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks, and what a task is called with at each. Times are seconds since the epoch.

    missed: what is done about ticks at which no worker ran: "latest" sends the newest of them
    once, "skip" none that is over a minute late.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    missed: Missed = "latest"

    @property
    def name(self) -> str:
        """What it is called among several of a task, wherever it stands in their list.

        Raises ConfigError for arguments that JSON cannot hold.
        """
        if not self.args and not self.kwargs:
            return str(self)
        try:
            sent = msgspec.json.encode([self.args, self.kwargs], order="deterministic")
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{self}: arguments that JSON cannot hold: {error}") from None
        return f"{self} {sent.decode()}"

    def last_s(self, now_s: float) -> float:
        """Return the newest tick that is not after `now_s`."""
        raise NotImplementedError

    def next_s(self, now_s: float) -> float:
        """Return the first tick after `now_s`."""
        raise NotImplementedError


class Every(Schedule, frozen=True, kw_only=True):
    """Ticks at each whole multiple of `seconds` since the epoch."""

    seconds: float

    def last_s(self, now_s: float) -> float:
        return floor(now_s / self.seconds) * self.seconds

    def next_s(self, now_s: float) -> float:
        return (floor(now_s / self.seconds) + 1) * self.seconds

    def __str__(self) -> str:
        return f"every {self.seconds:g} s"


class Cron(Schedule, frozen=True, kw_only=True):
    """Ticks by cron's five fields, in a time zone; as Debian's cron takes daylight saving."""

    expression: str
    tz: str = "UTC"

    def last_s(self, now_s: float) -> float:
        # Back, and on from there: around daylight saving only ticks that `next_s` gives are any.
        back_s = floor(now_s) + 1.0
        while True:
            back_s = self._next(back_s, reverse=True)
            tick_s = self.next_s(back_s - 1.0)
            if tick_s <= now_s:
                break
        while (later_s := self.next_s(tick_s)) <= now_s:
            tick_s = later_s
        return tick_s

    def next_s(self, now_s: float) -> float:
        return self._next(floor(now_s), reverse=False)

    def _next(self, from_s: float, *, reverse: bool) -> float:
        from zoneinfo import ZoneInfo

        from cronsim import CronSim, CronSimError

        moment = datetime.fromtimestamp(from_s, ZoneInfo(self.tz))
        try:
            return next(CronSim(self.expression, moment, reverse=reverse)).timestamp()
        except (CronSimError, StopIteration):
            raise ConfigError(f"cron {self.expression!r}: it is never due") from None

    def __str__(self) -> str:
        return f"cron {self.expression} {self.tz}"


def every(
    interval: str | float | timedelta,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    missed: Missed = "latest",
) -> Every:
    """Return ticks `interval` apart: seconds, a timedelta, or a text such as "30s", "2h", "1d".

    Raises ConfigError for what is none, or not within a second and a year.
    """
    number: Any = interval
    unit_s = 1.0
    if isinstance(interval, timedelta):
        number = interval.total_seconds()
    elif isinstance(interval, str):
        found = re.fullmatch(r"\s*([0-9.]{1,20})\s*([smhd])\s*", interval)
        number, unit_s = (found[1], _UNITS_S[found[2]]) if found else (None, 1.0)
    try:
        seconds = float(number) * unit_s
    except (TypeError, ValueError):
        seconds = float("nan")
    if not (isfinite(seconds) and LEAST_S <= seconds <= MOST_S):
        raise ConfigError(
            f"every {interval!r:.40}: must be a number with s, m, h or d after it, seconds or "
            f"a timedelta, from {LEAST_S:g} s to {MOST_S / 86_400:g} d"
        )
    return Every(
        seconds=seconds, args=tuple(args), kwargs=dict(kwargs or {}), missed=_missed(missed)
    )


def cron(
    expression: str,
    *,
    tz: str = "UTC",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    missed: Missed = "latest",
) -> Cron:
    """Return ticks by cron's fields: minute, hour, day of month, month, day of week.

    Or by a name: "@yearly", "@monthly", "@weekly", "@daily", "@hourly".
    tz: a zone of the IANA database. Raises ConfigError for an expression or a zone that is none.
    """
    from zoneinfo import ZoneInfo  # every program that sends loads this module

    with needing("schedules", "cron() needs"):
        from cronsim import CronSim, CronSimError
    if isinstance(expression, str) and expression.startswith("@"):
        if expression not in NICKNAMES:
            raise ConfigError(f"cron {expression!r:.80}: must be one of {', '.join(NICKNAMES)}")
        expression = NICKNAMES[expression]
    try:
        zone = ZoneInfo(tz)
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"cron {expression!r:.80}: no time zone {tz!r:.40}") from None
    try:
        next(CronSim(expression, datetime.now(UTC).astimezone(zone)))
    except (CronSimError, AttributeError, TypeError) as error:
        raise ConfigError(f"cron {expression!r:.80}: {error}") from None
    except StopIteration:
        raise ConfigError(f"cron {expression!r:.80}: it is never due") from None
    return Cron(
        expression=expression,
        tz=tz,
        args=tuple(args),
        kwargs=dict(kwargs or {}),
        missed=_missed(missed),
    )


def _missed(missed: object) -> Missed:
    if missed in ("latest", "skip"):
        return missed
    raise ConfigError(f"missed {missed!r:.40}: must be 'latest' or 'skip'")


def schedules_of(given: object) -> Schedule | tuple[Schedule, ...]:
    """Return the schedule of a task, or its several. A text is cron's. Raises ConfigError."""
    made: list[Schedule] = []
    for one in given if isinstance(given, list | tuple) else [given]:
        found = cron(one) if isinstance(one, str) else one
        if not isinstance(found, Schedule):
            raise ConfigError(
                f"schedule {one!r:.80}: must be every(…) or cron(…) of blimp.queue, a text of "
                "cron, or a list of them"
            )
        made.append(found)
    if len(made) == 1:
        return made[0]
    names = [one.name for one in made]
    if not made or len({*names}) < len(made):
        raise ConfigError(f"schedule {names!r:.200}: must be one, or several that differ")
    return tuple(made)
