"""Pilot authority: who may command a ship.

Control of a ship is the only resource of a pool of its own. The holder of its grant is the
ship's pilot, and each of the pilot's commands carries the grant's token. While nobody holds
control, everybody may command the ship.

The worker checks the token just before a command acts and passes one number on to the mailbox.
The number grows whenever control changes: it is twice the pilot's token, or, while nobody holds
control, twice the last token plus one. So the flight process can refuse a command from before
the last change, in either direction.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

from blimp.errors import NotInControl

if TYPE_CHECKING:
    from redis import Redis

    from blimp.queue.redis.client import RedisServer
    from blimp.queue.resources import ResourcePool

HEADER = "blimp_authority"
STOP_ID = "blimp_stop_id"  # header of a task that repeats an emergency stop: the id of that
CONTROL_TTL_S = 120.0
AHEAD_US = 86_400 * 1_000_000  # tokens run ahead of a server whose clock was set back


def pilots(
    link: Redis | RedisServer, vehicle: str, *, ttl_s: float = CONTROL_TTL_S
) -> ResourcePool:
    """Return the pool whose only resource is control of `vehicle`."""
    from blimp.queue.resources import ResourcePool  # loads redis-py: not for `ground --help`

    return ResourcePool(link, f"blimp.pilot.{vehicle}", ttl_s)


def holder_of(pilot: str) -> str:
    """Return a unique holder name for `pilot`: two pilots may have the same name."""
    return f"{pilot}#{secrets.token_hex(8)}"


def pilot_of(holder: str) -> str:
    """Return the pilot in a holder's name."""
    return holder.rpartition("#")[0] or holder


def readable(text: str) -> str:
    """Return a message of a pool with holder names replaced by pilots' names."""
    return re.sub(r"#[0-9a-f]{16}\b", "", text)


class Authority:
    """Checks in the worker, before a command acts, that its sender may command the ship."""

    def __init__(self, *, link: RedisServer, vehicle: str) -> None:
        self._link = link
        self._vehicle = vehicle
        self._pool: ResourcePool | None = None
        self._newest = 0
        self._limit = 0  # no genuine token is greater, as far as is known

    def note_newest(self, number: object) -> None:
        """Remember the newest number the ship has seen, as it says in a refusal."""
        if isinstance(number, int):
            self._newest = max(self._newest, number)

    def admit(self, header: object) -> int:
        """Return the authority number of a command whose token is `header`, None for none.

        Asks the broker each time. Raises NotInControl with the holder's name, LinkError if
        the broker does not answer, LeaseError if the pool's keys are damaged.
        """
        token = _token(header)
        if self._pool is None:
            self._pool = pilots(self._link, self._vehicle)
        found = self._pool.stats()
        # Only the ship itself counts, whatever else somebody has added to the pool.
        holding = next((one for one in found.busy if one.resource == self._vehicle), None)
        if holding is not None and self._is_forged(holding.token):
            holding = None  # it gives nobody control, and keeps nobody out
        if holding is None:
            if token is None:
                return 2 * self._last_token(found.token) + 1
            raise NotInControl(
                f"control of {self._vehicle}, with which this was sent, has ended: take control"
                " again"
            )
        if token == holding.token:
            return 2 * token
        raise NotInControl(held_by(self._vehicle, holding.holder, holding.left_s))

    def _last_token(self, found: int) -> int:
        """Return the pool's last token; advance it if a restarted server lost the newest ones."""
        if self._is_forged(found):
            return self._broker_us()
        if self._pool is None or 2 * found + 1 >= self._newest:
            return found
        return self._pool.advance()

    def _is_forged(self, token: int) -> bool:
        """Whether `token` is of a time to come: a pool's tokens are its server's time in µs."""
        if token > self._limit:
            self._limit = self._broker_us() + AHEAD_US
        return token > self._limit

    def _broker_us(self) -> int:
        seconds, microseconds = self._link.ask(lambda client: client.time())
        return int(seconds) * 1_000_000 + int(microseconds)


def held_by(vehicle: str, holder: str, left_s: float) -> str:
    """Return the message for a ship that another pilot controls."""
    return (
        f"{pilot_of(holder)} holds control of {vehicle}, for another {left_s:.0f} s "
        "unless it is renewed"
    )


def _token(header: Any) -> int | None:
    if header is None:
        return None
    if isinstance(header, bool) or not isinstance(header, int):
        raise NotInControl(f"header {HEADER} is {header!r:.40}: must be the token of a grant")
    return header
