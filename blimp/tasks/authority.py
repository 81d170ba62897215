"""Who may command a ship: pilots' control of it, and the pool of ships on a broker.

Control of a ship is the one resource of a pool of its own; who holds its grant is its pilot,
and puts the grant's token into each command. While nobody holds it, everybody commands.

What the worker finds when a command is about to act goes on to the mailbox as one number
that grows whenever control changes hands: twice the pilot's token; while nobody holds control,
one more than twice the last token. So also a command from before somebody took control, or
from before he gave it back, is known for old.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

from blimp.errors import NotInControl

if TYPE_CHECKING:
    from redis import Redis

    from blimp.queue.redis.server import RedisServer
    from blimp.queue.resources import ResourcePool

HEADER = "blimp_authority"
FLEET = "blimp.ships"
CONTROL_TTL_S = 120.0
FLIGHT_TTL_S = 30.0  # of a dispatch, which renews it: so long is its ship kept when it dies


def pilots(
    link: Redis | RedisServer, vehicle: str, *, ttl_s: float = CONTROL_TTL_S
) -> ResourcePool:
    """Return the pool whose one resource is control of `vehicle`."""
    from blimp.queue.resources import ResourcePool

    return ResourcePool(link, f"blimp.pilot.{vehicle}", ttl_s)


def ships(link: Redis | RedisServer, *, ttl_s: float = FLIGHT_TTL_S) -> ResourcePool:
    """Return the pool of the ships that fly on this broker."""
    from blimp.queue.resources import ResourcePool

    return ResourcePool(link, FLEET, ttl_s)


def holder_of(pilot: str) -> str:
    """Return a holder's name for `pilot` that nobody else has, not even his namesake."""
    return f"{pilot}#{secrets.token_hex(8)}"


def pilot_of(holder: str) -> str:
    """Return the pilot in a holder's name."""
    return holder.rpartition("#")[0] or holder


def readable(text: str) -> str:
    """Return `text`, a pool's words, with pilots for holders."""
    return re.sub(r"#[0-9a-f]{16}\b", "", text)


class Authority:
    """The worker's question before a command acts: may its sender, and with what number?"""

    def __init__(self, *, link: RedisServer, vehicle: str) -> None:
        self._link = link
        self._vehicle = vehicle
        self._pool: ResourcePool | None = None
        self._seen = 0

    def seen(self, number: object) -> None:
        """Take note of the number that the ship has refused a smaller one for."""
        if isinstance(number, int):
            self._seen = max(self._seen, number)

    def admit(self, told: object) -> int:
        """Return what the mailbox is told for a command with the token `told`, None for none.

        Asks the broker each time. Raises NotInControl with the holder's name; LinkError where
        the broker cannot be asked, LeaseError where the pool's keys are damaged.
        """
        token = _token(told)
        if self._pool is None:
            self._pool = pilots(self._link, self._vehicle)
        found = self._pool.stats()
        # Of the ship itself: whatever else was added to the pool is nobody's control.
        holding = next((one for one in found.busy if one.resource == self._vehicle), None)
        if holding is None:
            if token is None:
                return 2 * self._last_token(found.token) + 1
            raise NotInControl(
                f"the control of {self._vehicle} that this was sent under has ended: take it again"
            )
        if token == holding.token:
            return 2 * token
        raise NotInControl(held_by(self._vehicle, holding.holder, holding.left_s))

    def _last_token(self, found: int) -> int:
        """Return the pool's last token, past what a server that lost its last second forgot."""
        if self._pool is None or 2 * found + 1 >= self._seen:
            return found
        return self._pool.advance()


def held_by(vehicle: str, holder: str, left_s: float) -> str:
    """Return the words for a ship that another pilot holds."""
    return (
        f"{pilot_of(holder)} holds control of {vehicle}, for another {left_s:.0f} s "
        "unless it is renewed"
    )


def _token(told: Any) -> int | None:
    if told is None:
        return None
    if isinstance(told, bool) or not isinstance(told, int):
        raise NotInControl(f"header {HEADER} is {told!r:.40}: must be the token of a grant")
    return told
