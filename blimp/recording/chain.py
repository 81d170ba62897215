"""Which logs are one flight: a log names the one that it continues, and the one that continues it.

A flight goes on in a new log if its flight process dies, if its recorder does, or if a log is full.
A log that was cut could not name the next one: then that names it.
"""

import contextlib
from pathlib import Path

from blimp.errors import LogError
from blimp.recording.directory import logs_of
from blimp.recording.part import LogPart


def flight_of(path: Path) -> list[LogPart]:
    """Open the log at `path` and all logs beside it that are of the same flight, in their order.

    A log that is gone or cannot be read ends the flight there. Raises LogError if it is `path`.
    """
    with contextlib.ExitStack() as opened:
        parts = [opened.enter_context(LogPart(path))]
        while (part := _named(parts[0], parts[0].before, known=parts)) is not None:
            parts.insert(0, opened.enter_context(part))
        while (part := _named(parts[-1], _next(parts[-1]), known=parts)) is not None:
            if part.before != parts[-1].path.name:
                part.close()
                break
            parts.append(opened.enter_context(part))
        opened.pop_all()
        return parts


def continued(directory: Path, vehicle: str, boot_ids: tuple[str, ...]) -> str:
    """Return the name of a ship's newest log if it records one of these flight processes, or ""."""
    logs = logs_of(directory, vehicle)
    with contextlib.suppress(LogError):
        if logs:
            with LogPart(logs[-1].path) as part:
                return logs[-1].path.name if part.session.boot_id in boot_ids else ""
    return ""


def _named(part: LogPart, name: str, *, known: list[LogPart]) -> LogPart | None:
    """Return the log of that name beside `part`; None without one, or one that is known."""
    if not name or name != Path(name).name or name in {one.path.name for one in known}:
        return None
    with contextlib.suppress(LogError, ValueError):  # a name of no file
        found = LogPart(part.path.with_name(name))
        if found.session.vehicle == part.session.vehicle:
            return found
        found.close()
    return None


def _next(part: LogPart) -> str:
    """Return the name of the log that may continue `part`: what it says, or the ship's next."""
    if part.after:
        return part.after
    names = iter(one.path.name for one in logs_of(part.path.parent, part.session.vehicle))
    return next(names, "") if part.path.name in names else ""
