"""What a ship does about a fault, as its own telemetry says it, and what is said of it after."""

import contextlib
import threading
from collections.abc import Callable
from math import hypot

import msgspec

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import BlimpError
from blimp.link.telemetry import TelemetryReader
from blimp.link.timeline import changes
from blimp.types import Snapshot

POLL_S = 0.1
RETRY_S = 0.1
MAX_SEEN = 30
BACK_WITHIN_S = 30.0


class Seen(msgspec.Struct, frozen=True):
    """Something that the ship did. after_ms: from the fault's beginning until it was heard."""

    after_ms: float
    text: str


class Reaction(Closing):
    """Watches one ship from a thread, from its making until `close`.

    open_reader: makes a reader of its telemetry, again after each outage.
    """

    def __init__(self, open_reader: Callable[[], TelemetryReader], *, clock: Clock) -> None:
        self._open_reader = open_reader
        self._clock = clock
        self._news = threading.Condition()
        self._newest: tuple[Snapshot, float] | None = None  # and when it was made
        self._closing = threading.Event()
        self._began_s = clock.now_s()
        self.seen: list[Seen] = []
        self.off_m: float | None = None
        self._thread = threading.Thread(target=self._watch, name="reaction", daemon=True)
        self._thread.start()

    def begin(self, *, within_s: float) -> Snapshot:
        """Return what the ship says now; what it does from here on is noted.

        Raises BlimpError if it says nothing.
        """
        with self._news:
            if not self._news.wait_for(lambda: self._newest is not None, timeout=within_s):
                raise BlimpError("the ship sends no telemetry, so its reaction could not be shown")
            assert self._newest is not None
            self.seen.clear()
            self.off_m = None
            self._began_s = self._clock.now_s()
            return self._newest[0]

    def wait(
        self, is_well: Callable[[Snapshot], bool], *, since_s: float, within_s: float
    ) -> float | None:
        """Return when a snapshot made after `since_s` was well; None if none is in time."""

        def found() -> bool:
            if self._newest is None:
                return False
            snapshot, made_s = self._newest
            return made_s > since_s and is_well(snapshot)

        with self._news:
            if not self._news.wait_for(found, timeout=within_s):
                return None
            return self._clock.now_s()

    def newest(self) -> Snapshot:
        """Return the newest snapshot; there is one after `begin`."""
        with self._news:
            assert self._newest is not None
            return self._newest[0]

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(BlimpError), self._open_reader() as reader:
                for found in reader.follow(poll_s=POLL_S):
                    if self._closing.is_set():
                        return
                    if found is not None:
                        self._take(*found)
            self._closing.wait(RETRY_S)

    def _take(self, snapshot: Snapshot, age_s: float) -> None:
        now_s = self._clock.now_s()
        with self._news:
            if self._newest is not None:
                after_ms = round(1e3 * (now_s - self._began_s))
                for _, text in changes(self._newest[0], snapshot):
                    if len(self.seen) < MAX_SEEN:
                        self.seen.append(Seen(after_ms, text))
            off = off_m(snapshot)
            if off is not None:
                self.off_m = round(max(off, self.off_m or 0.0), 3)
            self._newest = snapshot, now_s - age_s
            self._news.notify_all()


def off_m(snapshot: Snapshot) -> float | None:
    """Return how far a ship is from the place that it keeps; None if it keeps none."""
    wanted = list(zip(snapshot.target_ned_m, snapshot.position_ned_m, strict=True))
    if any(want is None for want, _ in wanted):
        return None
    return hypot(*(want - is_ for want, is_ in wanted if want is not None))


def sentence(
    now: Snapshot, *, words: str, again: str, back_ms: float | None, most_m: float | None
) -> str:
    """Return what every face says of a fault that is over: about the ship, with the evidence.

    words: what was done. again: what was waited for, "" for nothing. back_ms: until that was seen;
    None if it was not. most_m: how far it was at most from the place that it keeps.
    """
    proof = f"{again} after {1e-3 * (back_ms or 0.0):.1f} s; "
    if back_ms is None:
        proof = f"not seen within {BACK_WITHIN_S:g} s that {again}; "
    power = f"armed in {now.mode}" if now.armed else "disarmed"
    state = f"{power}, {round(now.altitude_m, 1) + 0.0} m up"
    now_m = off_m(now)
    if now_m is not None and most_m is not None:
        state += f", {now_m:.2f} m off its place (at most {max(now_m, most_m):.2f} m)"
    failsafe = f"; {now.failsafe}" if now.failsafe else ""
    return f"{words[:1].upper()}{words[1:]}: {proof if again else ''}{state}{failsafe}."
