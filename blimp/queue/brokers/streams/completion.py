"""From a `Completion` to the keys and arguments of `complete.lua`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blimp.queue.brokers.base import MARK_KEEP_S
from blimp.queue.brokers.streams.envelope import post
from blimp.queue.redis.keys import result_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blimp.queue.brokers.base import Completion, ConsumerOptions
    from blimp.queue.brokers.streams.envelope import Claim, Envelope
    from blimp.queue.redis.keys import Keys, QueueKeys


class CompletionArguments:
    """Gathers the keys and arguments of several completions."""

    def __init__(self, *, options: ConsumerOptions, keys: Keys) -> None:
        self._options = options
        self._keys = keys
        self.keys: list[str] = []
        self.args: list[Any] = []

    def add(self, completion: Completion, claim: Claim | None) -> None:
        """Add one. claim: None if it was acknowledged before it ran.

        Raises MessageError, ResultError if JSON cannot hold what follows.
        """
        options, follow_up = self._options, completion.follow_up
        if claim is not None and not (
            follow_up is not None
            or completion.next
            or completion.dead
            or completion.mark
            or (completion.record and options.completes_results)
        ):
            self.keys.append(claim.stream)
            self.args += ("", claim.id, claim.fence)
            return
        following = () if follow_up is not None and follow_up.is_silent else completion.next
        puts = [
            (
                self._keys.queue(one.queue),
                post(one, signer=options.signer, limit_bytes=options.limit_bytes),
            )
            for one in following
        ]
        update = None if follow_up is None else follow_up.arguments(options)
        # Without a pending entry, a key of its own identifies a repetition.
        needs_key = claim is None and (puts or update)
        self.write(
            claim=claim,
            once=self._keys.once(completion.delivery.tag) if needs_key else "",
            result=result_key(completion.message.id),
            record=completion.record if options.completes_results else b"",
            keep_s=options.result_keep_s,
            puts=puts,
            reason=completion.dead if claim is not None else "",
            mark=completion.mark,
            update=update,
        )

    def write(
        self,
        *,
        claim: Claim | None = None,
        once: str = "",
        result: str = "",
        record: bytes = b"",
        keep_s: int = 0,
        puts: Sequence[tuple[QueueKeys, Envelope]] = (),
        reason: str = "",
        mark: str = "",
        update: tuple[list[str], list[Any]] | None = None,
    ) -> None:
        """Add what complete.lua reads of one."""
        count: int | str = len(puts)
        if update is not None or mark:
            count = f"{'*' * bool(mark)}{'+' * (update is not None)}{count}"
        if claim is None:
            self.keys += (once, "", result)
            self.args += (count, "", 0, 0)
        else:
            self.keys += (claim.stream, claim.queue.dead, result)
            self.args += (count, claim.id, claim.fence, claim.level)
        self.args += (reason, record, keep_s)
        if mark:
            self.keys.append(mark)
            self.args.append(MARK_KEEP_S)
        for queue, put in puts:
            self.keys += (queue.levels[put.level], queue.later, queue.bell)
            self.args += (put.level, put.due_ms, put.head, put.body, put.tenant)
        if update is not None:
            self.keys += update[0]
            self.args += update[1]
