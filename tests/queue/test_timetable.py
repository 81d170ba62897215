"""When a task is due by itself."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from blimp.errors import ConfigError
from blimp.queue import TaskApp, cron, every
from blimp.queue.timetable import Schedule

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, *, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


def ticks(schedule: Schedule, from_s: float, count: int) -> list[str]:
    found = []
    for _ in range(count):
        from_s = schedule.next_s(from_s)
        found.append(datetime.fromtimestamp(from_s, BERLIN).isoformat())
    return found


@pytest.mark.parametrize(
    ("interval", "seconds"),
    [("5m", 300.0), ("30s", 30.0), ("1.5 h", 5400.0), ("1d", 86400.0), (2, 2.0)],
)
def test_an_interval_has_its_ticks_at_its_multiples(interval: str | float, seconds: float) -> None:
    schedule = every(interval)
    assert schedule.seconds == seconds
    assert schedule.last_s(10.5 * seconds) == 10 * seconds
    assert schedule.last_s(10 * seconds) == 10 * seconds
    assert schedule.next_s(10 * seconds) == 11 * seconds


@pytest.mark.parametrize(
    "wrong", ["5", "m", "-5m", "0s", "0.5s", "400d", "1w", float("nan"), None, "1e9h"]
)
def test_an_interval_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="must be a number with s, m, h or d after it"):
        every(wrong)


def test_cron_keeps_its_zones_time_of_day() -> None:
    schedule = cron("0 7 * * mon-fri", tz="Europe/Berlin")
    assert ticks(schedule, at("2026-10-23T07:00"), 2) == [
        "2026-10-26T07:00:00+01:00", "2026-10-27T07:00:00+01:00",
    ]  # fmt: skip
    assert schedule.last_s(at("2026-10-25T12:00")) == at("2026-10-23T07:00")
    assert schedule.last_s(at("2026-10-26T07:00")) == at("2026-10-26T07:00")


def test_an_hour_that_is_twice_or_not_at_all_has_one_tick_a_day() -> None:
    schedule = cron("30 2 * * *", tz="Europe/Berlin")
    assert ticks(schedule, at("2026-03-28T12:00"), 2) == [
        "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00",
    ]  # fmt: skip
    assert ticks(schedule, at("2026-10-24T12:00"), 2) == [
        "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00",
    ]  # fmt: skip


@pytest.mark.parametrize("expression", ["30 2 * * *", "*/30 * * * *", "15 */2 * * *", "0 3 29 2 *"])
@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25", "2026-07-01"])
def test_the_last_tick_is_one_of_those_that_come_next(expression: str, day: str) -> None:
    schedule = cron(expression, tz="Europe/Berlin")
    for half_hour in range(48):
        now_s = at(f"{day}T00:00") + 1800.0 * half_hour + 7.0
        last_s = schedule.last_s(now_s)
        assert last_s <= now_s
        assert schedule.next_s(last_s - 1.0) == last_s
        assert schedule.next_s(last_s) > now_s


@pytest.mark.parametrize(
    ("expression", "tz", "reason"),
    [
        ("61 * * * *", "UTC", "Bad minute"),
        ("* * * *", "UTC", "Wrong number of fields"),
        ("", "UTC", "Wrong number of fields"),
        ("0 0 31 2 *", "UTC", "Bad day-of-month|never due"),
        ("0 7 * * *", "Europe/Nowhere", "no time zone 'Europe/Nowhere'"),
        ("@reboot", "UTC", "must be one of @yearly, "),
        ("0 7 * * *", "../../etc/passwd", "no time zone"),
    ],
)
def test_a_cron_line_that_is_none_is_refused(expression: str, tz: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        cron(expression, tz=tz)


def test_other_mistakes_are_named(app: TaskApp) -> None:
    with pytest.raises(ConfigError, match="missed 'all': must be 'latest' or 'skip'"):
        every("5m", missed="all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"schedule 5: must be every\(…\) or cron\(…\)"):
        app.task(name="x", schedule=[5])(print)  # type: ignore[list-item]
