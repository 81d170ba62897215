"""Parameter: read the airframe that flies, and set one number of it.

`airframe` is answered in the worker, from what the flight process has left for others. `param`
has the arguments `name` ("limits.speed_mps") and `value`. The worker refuses what could not fly,
the flight process refuses it while armed; else it ends its flight loop in order and begins
another one with the new number. The task ends when that one flies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from blimp.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Callable

    from blimp.queue.app import TaskApp
    from blimp.queue.context import TaskContext
    from blimp.tasks.command import Mailbox

PARAMETER = "param"
WITHIN_S = 10.0  # for the next flight loop to begin
POLL_S = 0.05
TELEMETRY_S = 0.3  # three periods of telemetry, in which the ground hears of it


class FlownAirframe(Protocol):
    """The airframe that the ship's flight process flies now."""

    def read(self) -> dict[str, Any]:
        """Return all of it. Raises TaskError if no flight process has left one."""
        ...

    def check(self, name: object, value: object) -> tuple[str, ...]:
        """Return what would be warned of with this number, and is not yet.

        Raises Refused, naming the limit, for a number with which the ship could not fly.
        """
        ...

    def has(self, name: object, value: object) -> bool: ...


def register_airframe(app: TaskApp, flown: FlownAirframe) -> None:
    """Add the task `blimp.airframe` to `app`."""

    @app.task(name="blimp.airframe", interruptible=False)
    def airframe() -> dict[str, Any]:
        """Return the airframe that flies, as its file has it."""
        return flown.read()


def checked(
    run: Callable[..., dict[str, Any]], *, flown: FlownAirframe, mailbox: Mailbox
) -> Callable[..., dict[str, Any]]:
    """Return the function of the task `param`: `run` sends it to the flight process."""

    def set_parameter(context: TaskContext, **arguments: Any) -> dict[str, Any]:
        name, value = arguments.get("name"), arguments.get("value")
        warnings = flown.check(name, value)
        before = "" if flown.has(name, value) else _boot(mailbox)
        result = run(context, **arguments)
        clock = context.task.app.clock
        until_s = clock.now_s() + WITHIN_S
        # The next command names the boot that the ground hears: it must be the new one by then.
        while not flown.has(name, value) or (before and _boot(mailbox) == before):
            now_s = clock.now_s()
            if now_s >= until_s:
                raise TaskError(
                    f"{name!r:.60} was accepted, but the flight loop did not start with it "
                    f"within {WITHIN_S:g} s: "
                    "the flight process's log says why"
                )
            clock.sleep_until(now_s + POLL_S)
        if before:
            clock.sleep_until(clock.now_s() + TELEMETRY_S)
        return {**result, "warnings": list(warnings)}

    set_parameter.__name__, set_parameter.__doc__ = run.__name__, run.__doc__
    return set_parameter


def _boot(mailbox: Mailbox) -> str:
    snapshot = mailbox.snapshot()
    return "" if snapshot is None else snapshot.boot_id
