"""A stream of setpoints: absolute, each with a time to live, the newest wins.

In the queue a newer setpoint supersedes waiting ones with its key, and overtakes every mission. On
board each setpoint ends by itself.
"""

from __future__ import annotations

import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

from blimp.queue.protocol.message import HIGH

if TYPE_CHECKING:
    from blimp.tasks.client import VehicleClient
    from blimp.tasks.reply import Pending, Reply

KEPT_RESULTS = 20  # those of one second: an older setpoint has ended; as many are forgotten at once


class Setpoints:
    """Sends setpoints by `client`, in the order of the calls."""

    def __init__(self, client: VehicleClient) -> None:
        self._client = client
        self._sent: deque[str] = deque()

    def send(
        self,
        key: str,
        task: str,
        arguments: dict[str, Any],
        *,
        ttl_s: float,
        asked_s: float | None = None,
    ) -> Pending:
        """Send one. ttl_s: for how long it may wait, from `asked_s` (client's clock; None: now) on.

        A broker that hangs before it takes the setpoint makes it no younger. Raises LinkError.
        """
        asked_s = self._client.clock.now_s() if asked_s is None else asked_s
        id = str(uuid.uuid4())
        sent = self._client.send(
            task, arguments, ttl_s=ttl_s, priority=HIGH, id=id, coalesce=key, asked_s=asked_s
        )
        self._sent.append(id)
        if len(self._sent) >= 2 * KEPT_RESULTS:
            self._client.forget(*(self._sent.popleft() for _ in range(KEPT_RESULTS)))
        return sent

    def refusal(self, sent: Pending, *, within_s: float) -> Reply | None:
        """Wait until the ship has accepted a setpoint; return its reply if it refuses it.

        None without an answer in time, too: the next one is sent, and may be heard.
        """
        with sent:
            for step in sent.events(timeout_s=within_s):
                if step.stage == "executing":
                    break
        is_refused = sent.reply is not None and sent.reply.state in ("REFUSED", "FAILURE")
        return sent.reply if is_refused else None
