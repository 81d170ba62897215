"""`schedules`: what an app's workers send by themselves: list, pause, resume, run now.

Tested by test_scheduler.py.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.queue.cli import add_command, add_json, say, say_json

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp


def add_commands(commands: Any) -> None:
    """Add `schedules` to an argparse parser's commands."""
    schedules = add_command(
        commands, "schedules", meaning="list, pause, resume or run scheduled tasks",
        typed="schedules list",
    )  # fmt: skip
    verbs = schedules.add_subparsers(dest="verb", required=True)
    listing = add_command(
        verbs, "list", list_schedules, meaning="list schedules with their last and next tick",
        typed="schedules list",
    )  # fmt: skip
    add_json(listing)
    for verb, run, meaning in (
        ("pause", pause, "stop sending it"),
        ("resume", resume, "send it again from its next tick on"),
        ("run", run_now, "send it now, in addition to its ticks"),
    ):
        one = add_command(verbs, verb, run, meaning=meaning, typed=f"schedules {verb} weather.read")
        one.add_argument("task", help="its name")


def list_schedules(app: TaskApp, options: argparse.Namespace) -> int:
    from blimp.queue.scheduler import Timetable

    with app:
        states = Timetable(app).states()
    if options.json:
        say_json([msgspec.to_builtins(state) for state in states])
        return 0
    for state in states:
        following = "paused" if state.is_paused else f"next {_shown(state.next_s)}"
        last = "-" if state.last_s is None else _shown(state.last_s)
        say(f"{state.name}  {state.schedule}  last {last}  {following}")
    if not states:
        say("no task has a schedule")
    return 0


def pause(app: TaskApp, options: argparse.Namespace) -> int:
    from blimp.queue.scheduler import Timetable

    with app:
        Timetable(app).pause(options.task)
    say(f"{options.task} is paused")
    return 0


def resume(app: TaskApp, options: argparse.Namespace) -> int:
    from blimp.queue.scheduler import Timetable

    with app:
        Timetable(app).resume(options.task)
    say(f"{options.task} is sent from its next tick on")
    return 0


def run_now(app: TaskApp, options: argparse.Namespace) -> int:
    from blimp.queue.scheduler import Timetable

    with app:
        handle = Timetable(app).run(options.task)
    say(f"{options.task} is sent as {handle.id}")
    return 0


def _shown(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).astimezone().isoformat(timespec="seconds")
