"""Status: is the ship there, and what does it say of itself?

`ping` and `limits` go through the mailbox to the flight process. `status` returns the newest
snapshot that the worker has; it is answered in the worker, even if the flight process is silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import TaskError

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.tasks.command import Mailbox


def register_status(app: TaskApp, mailbox: Mailbox) -> None:
    """Add the task `blimp.status` to `app`."""

    @app.task(name="blimp.status", interruptible=False)
    def status() -> dict[str, Any]:
        """Return the newest snapshot, with its age."""
        snapshot = mailbox.snapshot()
        if snapshot is None:
            raise TaskError("no snapshot yet: the flight process has sent nothing")
        return {**msgspec.to_builtins(snapshot), "age_s": mailbox.snapshot_age_s()}
