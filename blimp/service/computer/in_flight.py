"""Whether a ship flies on this computer: to be known before anything that would stop its motors.

A ship that cannot be asked is flying. What is broken, and on the ground, says its owner.
"""

import sys
from pathlib import Path

from blimp.clock import Clock
from blimp.errors import BlimpError, ConfigError
from blimp.link.flight_record import RecordFile
from blimp.link.mailbox import MailboxClient, is_served
from blimp.link.paths import ON_BOARD_DIR, RuntimePaths
from blimp.service.computer.systemd import FLIGHT, active_state
from blimp.types import Snapshot

ANSWER_S = 2.0  # forty of its snapshots
_ENDED = ("inactive", "failed")  # states of a unit that has made its outputs safe


def running_snapshot(paths: RuntimePaths, *, clock: Clock) -> Snapshot | None:
    """Return what the running flight process sees; None if none runs.

    Raises BlimpError, which says what was tried, if one may run and cannot be asked.
    """
    if not is_served(paths.flight):
        state = active_state(FLIGHT) if paths.directory == ON_BOARD_DIR else ""
        if state and state not in _ENDED:
            raise BlimpError(f"{FLIGHT} is {state}, and nothing answers at {paths.flight}")
        return None
    with MailboxClient(server_path=paths.flight, clock=clock) as mailbox:
        mailbox.greet(link=False)  # if its queue is full, it was asked and does not answer
        answer = mailbox.next_snapshot(None, timeout_s=ANSWER_S)
    if answer is None:
        raise BlimpError(
            f"the flight process at {paths.flight} does not answer within {ANSWER_S:g} s"
        )
    return answer[0]


def demand_on_ground(
    paths: RuntimePaths, *, clock: Clock, force: bool, yes: bool, ended: bool = False
) -> None:
    """Raise BlimpError if a ship is armed here, or cannot be asked and so may be flying.

    force: go on if it cannot be asked, once a person agrees, or without one if `yes`. A ship that
    answers is never overruled: it can be landed. ended: nor may it run disarmed.
    """
    try:
        flying = _flying(paths, clock=clock, ended=ended)
    except BlimpError as error:
        _overrule(str(error), force=force, yes=yes)
        return
    if flying:
        raise BlimpError(flying)


def _flying(paths: RuntimePaths, *, clock: Clock, ended: bool) -> str:
    """Return why the ship must be left alone, "" if it is at rest. Raises BlimpError."""
    snapshot = running_snapshot(paths, clock=clock)
    if snapshot is None:
        return ""
    if snapshot.armed:
        return f"{snapshot.vehicle} is armed: land it and disarm it first"
    if ended:
        return (
            f"{snapshot.vehicle}: its flight process runs, disarmed, and keeps the outputs safe; "
            "a motor on the bench stops at `ground estop`"
        )
    if _is_resuming(paths.record):
        return (
            f"{snapshot.vehicle}: its flight process died in flight, and its successor has not "
            "found out yet whether it is in the air: ask again in a few seconds"
        )
    return ""


def _is_resuming(path: Path) -> bool:
    """Whether the running flight process still has the record of one that died armed."""
    if not path.exists():  # RecordFile would make it
        return False
    try:
        with RecordFile(path) as file:
            record = file.read()
    except ConfigError as error:
        raise BlimpError(str(error)) from error
    return record is not None and record.armed


def _overrule(why: str, *, force: bool, yes: bool) -> None:
    if not force:
        raise BlimpError(
            f"the ship cannot be asked, so it may be flying: {why}. If it is on the ground and "
            "its flight process is broken, use --force"
        )
    question = f"The ship cannot be asked: {why}. Stop its motors?"
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BlimpError(f"{question} There is no terminal to ask on: give --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise BlimpError("not confirmed: nothing was done")
