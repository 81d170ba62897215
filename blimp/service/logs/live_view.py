"""What is recorded, live in Foxglove's viewer: its WebSocket, on this machine only.

Needs foxglove-sdk, the extra `foxglove`. Viewers can look and nothing else: the server offers no
capability. It drops what a slow viewer does not take, in threads of the SDK's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from blimp.closing import Closing
from blimp.distribution import needing
from blimp.errors import ConfigError
from blimp.recording.tape import Session
from blimp.recording.topics import Message, schemas

if TYPE_CHECKING:
    from foxglove import Channel

HOST = "127.0.0.1"
BACKLOG = 256  # messages for a viewer that does not keep up: about two seconds


class LiveView(Closing):
    """A server on `port` of this machine. Raises ConfigError if it cannot be started."""

    def __init__(self, port: int) -> None:
        with needing("foxglove", "the live view needs"):
            import foxglove
        self._context = foxglove.Context()
        try:
            self._server = foxglove.start_server(
                name="blimp", host=HOST, port=port, context=self._context,
                message_backlog_size=BACKLOG, capabilities=[],
            )  # fmt: skip
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"live view on port {port}: {error}") from error
        self.port = self._server.port
        self._channels: dict[str, Channel] = {}

    def begin(self, session: Session) -> None:
        """Offer the topics of a session in place of those before."""
        from foxglove import Channel, Schema

        for channel in self._channels.values():
            channel.close()
        self._channels = {
            topic: Channel(
                topic,
                message_encoding="json",
                schema=Schema(name=name, encoding="jsonschema", data=msgspec.json.encode(schema)),
                context=self._context,
            )
            for topic, (name, schema) in schemas(session).items()
        }

    def send(self, message: Message) -> None:
        """Send a message to the viewers that look at its topic."""
        channel = self._channels.get(message.topic)
        if channel is not None:
            channel.log(message.data, log_time=message.time_ns)

    def close(self) -> None:
        self._server.stop()
