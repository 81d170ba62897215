"""Whether a command may act at all, whatever it asks: its boot and its age."""

from math import isfinite

from blimp.types import Command

_AHEAD_S = 1.0  # by this much a command may seem to come from the future: clocks are read in turn


class Refusal(Exception):
    """The ship says no. Its text is the reason."""


def admit(command: Command, *, boot_id: str) -> None:
    """Raise Refusal for a command that is stale or meant for another boot than `boot_id`."""
    if command.name == "estop":
        return
    if command.boot_id and command.boot_id != boot_id:
        raise Refusal(
            f"the flight process was restarted since it was sent (boot {command.boot_id}, now "
            f"{boot_id}): send it again"
        )
    if not isfinite(command.age_s):
        raise Refusal(f"age_s is {command.age_s}, must be a finite number")
    if command.ttl_s is not None and not isfinite(command.waited_s):
        raise Refusal(
            "sent_s is missing, a time to come or before this flight process began: "
            "its age is not known"
        )
    age_s = command.age_s + command.waited_s
    if command.ttl_s is not None and not age_s <= command.ttl_s:
        raise Refusal(f"stale: {age_s:.1f} s old, limit {command.ttl_s:g} s")
    if command.ttl_s is not None and command.age_s < -_AHEAD_S:
        # It would not age for as long: no time to live then holds.
        raise Refusal(f"issued {-command.age_s:.1f} s in the future, limit {_AHEAD_S:g} s")
