"""Coalescing: of the waiting messages with one key only the newest runs.

The server numbers the messages of a queue as they are sent, and remembers the newest of each key.
A message is published first and remembered then: a sender that is killed in between leaves an
older one that runs as well, never one that is dropped for a newer that never came. A worker that
is about to start an older one finds the newer, and ends it as SUPERSEDED. A retry and a redelivery
keep the number of their message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError, MessageError
from blimp.queue.protocol.message import check_name
from blimp.queue.redis.keys import newest_key, number_key
from blimp.queue.redis.scripts import Script

if TYPE_CHECKING:
    from blimp.queue.interface import KnownTask
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.redis.client import RedisServer

NEWEST_KEEP_S = 7 * 86_400  # what waits for longer runs, though a newer one came

# Returns a number above all before: microseconds on the server's clock, if that is one.
# KEYS[1] the last number. ARGV[1] seconds to keep it.
NUMBER = Script("""
local time = redis.call('TIME')
local number = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
if number <= last then
  number = last + 1
end
local text = string.format('%.0f', number)
redis.call('SET', KEYS[1], text, 'EX', ARGV[1])
return text
""")

# KEYS[1] the newest of a key, "number id". ARGV: number, id, seconds to keep it.
REMEMBER = Script("""
local known = redis.call('GET', KEYS[1])
if known and tonumber(string.match(known, '^%d+')) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'EX', ARGV[3])
return 1
""")


def coalescing_key(task: KnownTask, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """Return the key of a call, None if its task does not coalesce.

    Raises MessageError if the arguments do not fill in the template.
    """
    template = task.options.coalesce
    if template is False:
        return None
    if template is True:
        return task.name
    try:
        key = template.format_map(task.named_arguments(args, kwargs))
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        raise MessageError(
            f"coalesce={template!r} of {task.name!r}: the arguments do not fill it in: {error!r}"
        ) from None
    return f"{task.name}:{key}"


class Coalescing:
    """What the server knows of the newest messages. Methods raise LinkError."""

    def __init__(self, *, link: RedisServer) -> None:
        self._link = link

    def number(self, queue: str, key: str) -> int:
        """Return the next message's number. Raises MessageError for a key that is none."""
        check_name(key, "coalescing key")
        place = number_key(queue)
        return int(self._link.run(NUMBER, [place], [NEWEST_KEEP_S]))

    def remember(self, message: TaskMessage) -> None:
        """Have older messages superseded by `message`, which is published."""
        arguments = (message.coalesce_number, message.id, NEWEST_KEEP_S)
        with contextlib.suppress(LinkError):  # older ones run as well
            self._link.run(REMEMBER, [_place(message)], arguments)

    def newer(self, message: TaskMessage) -> str | None:
        """Return the id of the message that supersedes `message`, None if it is the newest."""
        found: Any = self._link.ask(lambda client: client.get(_place(message)))
        if found is None:
            return None
        number, _, id = found.decode(errors="replace").partition(" ")
        return id if int(number) > (message.coalesce_number or 0) else None


def _place(message: TaskMessage) -> str:
    return newest_key(message.queue, message.coalesce or "")
