"""Messages that the server has delivered and no callback has seen yet."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kombu.log import get_logger

from blimp.queue.brokers.streams import envelope as wire

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.session import StreamsSession
    from blimp.queue.brokers.streams.store import Claim

logger = get_logger("blimp.queue.kombu_transport")

Delivery = tuple["Claim", list[bytes]]  # and the fields of its entry
ControlMessage = tuple[str, dict[str, Any]]  # the queue, and kombu's payload


class Inbox:
    """Holds what was delivered, and opens it. One thread's.

    counts: of what never reaches a callback: `undecodable`, `lost_unseen`.
    """

    def __init__(self, *, session: StreamsSession, counts: Counter[str]) -> None:
        self._session = session
        self._leases = session.leases
        self._counts = counts
        self.ready: deque[ControlMessage] = deque()

    def accept(self, deliveries: Sequence[Delivery], *, is_late: bool = False) -> None:
        """Hold what was delivered and have it ready, but for what cannot be read.

        is_late: it lay unread, and unrenewed, so long that some may be another's by now.
        """
        if not deliveries:
            return
        claims = [claim for claim, _ in deliveries]
        self._leases.hold(claims)
        if is_late:
            self._leases.renew(claims)
        for claim, fields in deliveries:
            payload = self.open(claim, fields)
            if payload is not None:
                self.ready.append((claim.queue.name, payload))

    def open(self, claim: Claim, fields: list[bytes]) -> dict[str, Any] | None:
        """Return kombu's payload of what is held; what cannot be read is a dead letter."""
        try:
            payload = wire.unpack(fields)
        except ValueError as error:
            self._counts["undecodable"] += 1
            logger.error("%s: entry %s is undecodable: %s", claim.queue.name, claim.id, error)
            self._leases.dead_letter(claim.tag, f"undecodable: {error}")
            head = dict(zip(fields[::2], fields[1::2], strict=False)).get(wire.HEAD, b"")
            self._session.on_undecodable(head, claim.queue.name, error)
            return None
        properties = payload["properties"]
        properties["delivery_tag"] = claim.tag
        properties["delivery_count"] = claim.fence
        properties["issued_ms"] = claim.issued_ms
        properties["delivery_info"] |= {"redelivered": claim.fence > 1, "queue": claim.queue.name}
        return payload

    def is_lost(self, tag: str) -> bool:
        """Say whether the lease of a delivery ended while it lay here."""
        if tag in self._leases:
            return False
        self._counts["lost_unseen"] += 1
        return True

    def put_back(self, queue: str | None = None) -> None:
        """Put back what is ready, of one queue or of all, as if it had never been delivered."""
        unseen = [one for one in self.ready if queue in (None, one[0])]
        for one in unseen:
            self.ready.remove(one)
        tags = [payload["properties"]["delivery_tag"] for _, payload in unseen]
        self._leases.release(tags, seen=False)
