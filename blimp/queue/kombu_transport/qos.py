"""Prefetch and settlement of one channel, as kombu asks for them."""

from __future__ import annotations

from typing import Any

from kombu.transport import virtual

FANOUT_TAG = "fanout/"  # a copy of a broadcast: nobody else has it, nothing is recorded


class QoS(virtual.QoS):
    """Counts what the channel has in hand; the leases know what the server thinks of it.

    A settlement that the server refuses, because the lease was lost, raises nothing here, as
    kombu's programs expect; `on_lease_lost` has told of it.
    """

    def ack(self, delivery_tag: str) -> None:
        if not delivery_tag.startswith(FANOUT_TAG):
            if self.channel.lazy_ack:
                self.channel.connection.leases.ack_later(delivery_tag)
            else:
                self.channel.connection.leases.ack(delivery_tag)
        self.forget(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if delivery_tag.startswith(FANOUT_TAG):
            if requeue:
                self.channel.connection.deliver_again(self._delivered[delivery_tag])
        elif requeue:
            self.channel.connection.leases.release([delivery_tag])
        else:
            self.channel.connection.leases.dead_letter(delivery_tag, "rejected")
        self.forget(delivery_tag)

    def forget(self, delivery_tag: str) -> None:
        """Count a delivery as settled, wherever that happened. Any thread."""
        was_full = not self.can_consume()
        self._quick_ack(delivery_tag)
        transport = self.channel.connection
        if was_full and transport is not None:
            transport.wake()

    def restore_unacked(self) -> list[Any]:
        """Put back whatever the channel has not settled. Returns no errors: it raises them."""
        self._flush()
        tags = [tag for tag in self._delivered if not tag.startswith(FANOUT_TAG)]
        self._delivered.clear()
        transport = self.channel.connection
        if transport is not None:
            transport.leases.release(tags)
        return []
