"""Revoked: what was called back does not begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blimp.errors import Revoked
from blimp.queue.protocol.outcome import failure
from blimp.queue.protocol.record import State

if TYPE_CHECKING:
    from blimp.queue.protocol.outcome import Outcome
    from blimp.queue.publish.revocations import Revocations
    from blimp.queue.worker.job import Job
    from blimp.queue.worker.middleware import CallNext


class SkipRevoked:
    """Looks into what this worker knows; it asks nobody."""

    def __init__(self, *, revocations: Revocations) -> None:
        self._revocations = revocations

    async def __call__(self, job: Job, call_next: CallNext) -> Outcome:
        if job.message.id in self._revocations:
            return revoked("before it began")
        return await call_next(job)


def revoked(when: str) -> Outcome:
    return failure(Revoked(f"revoked {when}"), state=State.REVOKED)
