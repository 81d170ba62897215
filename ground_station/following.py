"""Waiting for the end of a command that was sent, as long as there may be one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from blimp.actions import START_TTL_S
from blimp.errors import LinkError, LinkLost
from blimp.tasks.client import TASK_PREFIX
from ground_station.session import SILENT_S

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.tasks.client import VehicleClient
    from blimp.tasks.reply import Pending, Reply

OUTAGE_S = 20.0  # how long the broker may be unreachable while a command is under way
SLICE_S = 0.25  # in which a thread notices that nobody waits any more
RETRY_S = 0.25
AIRFRAME_S = 5.0  # in which a ship says what it flies
QUIET_S = 30.0  # chosen: a command under way reports every second


class CommandListener:
    """Hears of a command under way, in the thread that waits for its end."""

    def sent(self, id: str) -> None:
        """The command is sent."""

    def progress(self, stage: str, fraction: float | None) -> None:
        """See `Pending.wait`."""

    def silent(self) -> None:
        """Nothing was heard of it for SILENT_S. May raise why there is no ship."""

    def outage(self, reason: str) -> None:
        """The broker is unreachable from now on."""


def follow(
    sent: Pending,
    *,
    client: VehicleClient,
    clock: Clock,
    within_s: float,
    outage_s: float = OUTAGE_S,
    is_wanted: Callable[[], bool] = lambda: True,
    listener: CommandListener | None = None,
) -> Reply:
    """Return how a command ended, TIMEOUT if that is not known; wait through an outage, too.

    The state is TIMEOUT before `within_s`, if no end is to be expected: nobody has begun the
    command in its time to live, or it has begun, and nothing was heard of it for QUIET_S.
    is_wanted: asked every SLICE_S. Raises LinkLost if the broker is unreachable for `outage_s`, and
    what the listener raises.
    """
    listener = listener or CommandListener()
    is_silent = False
    began_s = now_s = clock.now_s()
    lost_s: float | None = None
    was_lost = False  # and a report with it
    while now_s - began_s < within_s and is_wanted():
        if now_s - began_s >= SILENT_S and not (is_silent or sent.is_heard or was_lost):
            is_silent = True
            listener.silent()
        try:
            reply = sent.wait(min(SLICE_S, within_s - (now_s - began_s)), listener.progress)
            if reply.state != "TIMEOUT":
                return reply
            lost_s, now_s = None, clock.now_s()
            if not (sent.is_heard or was_lost):
                if now_s - began_s > START_TTL_S + SILENT_S:
                    return sent.timed_out(round(now_s - began_s, 1))
            elif now_s - max(began_s, sent.heard_s) > QUIET_S:
                known = client.result(sent.id)  # its end was perhaps not heard
                if known.state != "TIMEOUT":
                    return known
                reply = sent.timed_out(QUIET_S)
                reason = f"{reply.reason}; no report of it for {QUIET_S:g} s"
                return msgspec.structs.replace(reply, reason=reason)
        except LinkError as error:
            now_s = clock.now_s()
            if lost_s is None:
                was_lost, lost_s = True, now_s
                listener.outage(str(error))
            if now_s - lost_s >= outage_s:
                name = sent.task.removeprefix(TASK_PREFIX)
                reason = f"{name}: the link is lost for {outage_s:g} s: {error}"
                raise LinkLost(f"{reason}: its outcome is unknown", id=sent.id) from error
            clock.sleep_until(now_s + RETRY_S)
            now_s = clock.now_s()
    return sent.timed_out(within_s)
