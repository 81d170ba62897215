"""Emergency stop: every output safe at once, past every queue.

It arrives in two ways. The broadcast is the fast one: the worker's broadcast thread calls the
mailbox without a queue, a pool or prefetch in between. The task of the same name is for
programs that can only send tasks; it has the highest priority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blimp.tasks.command import ASK_S, command_result, printable_source
from blimp.types import Command

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.extensions import Broadcast
    from blimp.tasks.command import Mailbox


def register_broadcast(app: TaskApp, mailbox: Mailbox) -> None:
    """Have `app` pass an emergency stop broadcast to the mailbox and confirm it."""

    @app.on_broadcast("estop")
    def estop(broadcast: Broadcast) -> dict[str, Any] | None:
        command = Command(
            id=broadcast.id,
            name="estop",
            source=printable_source(broadcast.payload.get("source", "")),
        )
        outcome = mailbox.call(command, timeout_s=ASK_S)
        if outcome is None:
            return None  # not confirmed: the client repeats the broadcast
        return command_result(outcome, accepted_s=outcome.accepted_s)
