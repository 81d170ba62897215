"""One station's end of a link: how much it may ask for, and how much it may be sent."""

import math
import secrets
from collections.abc import Callable

MESSAGES_HZ, MESSAGES_AT_ONCE = 100.0, 100.0  # of one peer: sticks and setpoints come at 50 Hz
# A program that sends to a UDP port can name anybody as the sender. A peer there is sent, of what
# may be long, not much more than came from it, until it has answered a question that only it has
# seen. One answer of FTP has 12 times the bytes of its request. The rest is less than the
# telemetry.
ANSWER_FACTOR = 12.0
UNPROVEN_BPS, MOST_UNPROVEN_BYTES = 1000.0, 8192.0
ASK_AGAIN_S = 1.0
MAX_WAITING_BYTES = 65536  # a connection that does not read loses what comes after it


class Bucket:
    """So much a second, and so much at once after a pause. It may be overdrawn once."""

    def __init__(
        self, *, per_s: float, most: float, at_first: float, now_s: Callable[[], float]
    ) -> None:
        self._per_s, self._most, self._now_s = per_s, most, now_s
        self._has, self._at_s = at_first, now_s()

    @property
    def left(self) -> float:
        now_s = self._now_s()
        self._has = min(self._most, self._has + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        return self._has

    def take(self, number: float) -> bool:
        """Take so much if anything is left; return whether it was."""
        if self.left <= 0.0:
            return False
        self._has -= number
        return True

    def give(self, number: float) -> None:
        self._has = min(self._most, self._has + number)


class Peer:
    """See the module. heard_s: when a message came from it last. is_known: whether one ever did.

    address: its machine. line_bps: of a line, which what is long may fill half. waiting: bytes of a
    connection that are not sent yet. is_proven: whether what is sent to it arrives at the sender.
    """

    def __init__(
        self,
        name: str,
        send: Callable[[bytes], object],
        *,
        now_s: Callable[[], float],
        address: str = "",
        line_bps: float | None = None,
        waiting: Callable[[], int] = lambda: 0,
        is_proven: bool = True,
    ) -> None:
        self.name = name
        self.send = send
        self.address = address
        self.rest = b""  # of what came: where a message may have begun
        self._now_s = now_s
        self.heard_s = now_s()
        self.is_known = False
        self.sent_bytes = 0  # as answers, telemetry apart
        self.question = (secrets.randbits(63), secrets.randbits(32))  # of a PING to it
        self.asked_s = -math.inf  # when it was
        self._rate = Bucket(
            per_s=MESSAGES_HZ, most=MESSAGES_AT_ONCE, at_first=MESSAGES_AT_ONCE, now_s=now_s
        )
        self._waiting = waiting
        self._room: Bucket | None = None
        if line_bps is not None:
            half = 0.5 * line_bps
            self._room = Bucket(per_s=half, most=half / 4.0, at_first=half / 4.0, now_s=now_s)
        elif not is_proven:
            self._room = Bucket(
                per_s=UNPROVEN_BPS, most=MOST_UNPROVEN_BYTES, at_first=0.0, now_s=now_s
            )
        self.is_proven = is_proven

    def may_ask(self) -> bool:
        """Count one message of it; return whether it is within its rate."""
        return self._rate.take(1.0)

    def came(self, size: int) -> None:
        """Note what came from it."""
        self.heard_s, self.is_known = self._now_s(), True
        if self._room is not None and not self.is_proven:
            self._room.give(ANSWER_FACTOR * size)

    def is_to_be_asked(self) -> bool:
        """Whether it is time to ask the question again; then it is asked."""
        now_s = self._now_s()
        if self.is_proven or now_s - self.asked_s < ASK_AGAIN_S:
            return False
        self.asked_s = now_s
        return True

    def prove(self) -> None:
        """It has answered the question: what is sent to it arrives."""
        if not self.is_proven:
            self.is_proven, self._room = True, None

    @property
    def room(self) -> float:
        """Return how many bytes of what may wait it may be sent now; one message if above 0."""
        if self._room is not None:
            return self._room.left
        return MAX_WAITING_BYTES / 2 - self._waiting()

    def sent(self, size: int) -> None:
        """Note that so much was sent as an answer."""
        self.sent_bytes += size
        if self._room is not None:
            self._room.give(-size)
