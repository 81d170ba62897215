"""Messages that say they are packed: they are not unpacked here, and so refused."""

from __future__ import annotations

from typing import Any


def guard_channel(channel: Any) -> None:
    """Keep kombu from unpacking what `channel` delivers, from now on.

    A small packed body may be larger than this computer. The compression stands as the content
    encoding then, which is refused with its name.
    """
    kind = channel.Message

    def begin(self: Any, payload: Any, channel: Any = None, **options: Any) -> None:
        _keep_packed(payload)
        kind.__init__(self, payload, channel=channel, **options)

    channel.Message = type("Message", (kind,), {"__init__": begin})


def _keep_packed(payload: Any) -> None:
    """Change a message as its driver has it: a dict, or for AMQP an object."""
    if isinstance(payload, dict):
        headers, properties, name = payload.get("headers"), payload, "content-encoding"
    else:
        properties, name = payload.properties, "content_encoding"
        headers = properties.get("application_headers")
    if isinstance(headers, dict) and headers.get("compression"):
        properties[name] = str(headers.pop("compression"))
