"""`ground stick` without options: the keys of a terminal fly the ship by hand.

A terminal reports no release of a key, only its repeats: a key is held for HELD_S after each.
What is held is sent again and again, each time for DEMAND_S: a ship whose link fails lets go, too.
"""

import threading
from functools import partial

from blimp.clock import Clock
from blimp.errors import BlimpError
from blimp.tasks.reply import Reply
from ground_station.every_ship import EveryShip
from ground_station.plain import Ship
from ground_station.report import DONE, reply_status
from ground_station.session import Session
from ground_station.watch import STOP_KEY, StopKey, terminate_as_interrupt

PERIOD_S = 0.05
HELD_S = 0.25  # keyboards repeat every 30 to 50 ms; with DEMAND_S, half a second from the release
DEMAND_S = 0.25  # on board: five periods, which may be late
TTL_S = 0.25  # in the queue
REST_S = 3.0
ESCAPE_S = 0.1  # in which the rest of an arrow's sequence arrives, over ssh as well
FIRST_PERCENT, STEP_PERCENT, MOST_PERCENT = 50, 10, 100

# Where they can be they are those of the page: W in one must not be another way in the other.
KEYS = {
    "w": ("forward", 1), "s": ("forward", -1), "d": ("turn", 1), "a": ("turn", -1),
    "\x1b[A": ("up", 1), "\x1b[B": ("up", -1), "\x1b[C": ("turn", 1), "\x1b[D": ("turn", -1),
    ".": ("right", 1), ",": ("right", -1),
}  # fmt: skip
AXES = ("forward", "right", "up", "turn")
HELP = (
    "W S: forward, back. A D or left, right: turn. Up, down: height. , . : sideways. "
    f"+ -: how strong. Space: let go. {STOP_KEY}: stop every motor. Esc or Q: end, and hold."
)


class Keys:
    """What the keys ask for at this moment. `take` is called from any thread."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, float]] = {}  # direction of an axis, and until when
        self._pending = ""  # the begin of an arrow's sequence, or Esc itself
        self._pending_s = 0.0
        self._has_ended = False
        self.percent = FIRST_PERCENT

    def take(self, typed: str) -> None:
        """Take what the terminal gives; "", its end, ends the flight by keys."""
        now_s = self._clock.now_s()
        with self._lock:
            self._has_ended |= not typed
            text, self._pending = self._pending + typed, ""
            while text:
                length = _length(text)
                if not length:
                    self._pending, self._pending_s = text, now_s
                    return
                # Some terminals send the arrows as "ESC O", with the same letters.
                self._press(text[:length].replace("\x1bO", "\x1b["), now_s)
                text = text[length:]

    def _press(self, key: str, now_s: float) -> None:
        if key.lower() in ("\x1b", "q"):
            self._has_ended = True
        elif key == " ":
            self._held.clear()
        elif key in ("+", "-"):
            changed = self.percent + (STEP_PERCENT if key == "+" else -STEP_PERCENT)
            self.percent = min(MOST_PERCENT, max(STEP_PERCENT, changed))
        elif found := KEYS.get(key if key.startswith("\x1b") else key.lower()):
            axis, direction = found
            self._held[axis] = direction, now_s + HELD_S

    @property
    def has_ended(self) -> bool:
        with self._lock:
            is_escape = self._clock.now_s() - self._pending_s > ESCAPE_S
            return self._has_ended or (self._pending == "\x1b" and is_escape)

    def sticks(self) -> dict[str, float]:
        """Return the arguments of `stick`: per cent, 0 of an axis whose key is released."""
        now_s = self._clock.now_s()
        with self._lock:
            held = {axis: way for axis, (way, until_s) in self._held.items() if now_s < until_s}
            return {f"{axis}_percent": float(held.get(axis, 0) * self.percent) for axis in AXES}


def _length(text: str) -> int:
    """Return the letters of the first key in `text`, 0 if more of it may follow.

    A sequence ends with its first letter from "@" to "~" (ECMA-48, 5.4): an arrow with Ctrl is
    "ESC [ 1 ; 5 D", and its D is no key.
    """
    if text[0] != "\x1b":
        return 1
    if len(text) == 1:
        return 0
    if text[1] not in "[O":
        return 1
    return next((at + 1 for at in range(2, len(text)) if "@" <= text[at] <= "~"), 0)


def fly(session: Session) -> int:
    """Fly the ship by the keys of this terminal until Esc or Q; return the exit status."""
    if session.options.dry_run:
        session.report.say("dry run: the keys would fly the ship by hand, nothing is sent")
        return DONE
    session.check_there()
    keys = Keys(clock=session.clock)
    name = session.ship.vehicle
    with (
        EveryShip(session, broker=session.ship.broker) as stops,
        Ship.of(session) as ship,
        terminate_as_interrupt(),
    ):
        stops.ready(name)
        stop_key = StopKey(partial(stops.stop, name), other=keys.take)
        try:
            with stop_key.listening():
                session.report.say(HELP)
                refused = _follow(session, ship, keys, stop_key)
        except KeyboardInterrupt:
            refused = None
        if stop_key.was_pressed:
            session.report.say(f"ground: {stop_key.words}")
        if refused is not None:
            session.report.say(f"ground: {refused.reason or refused.state.lower()}")
            if not stop_key.was_pressed:
                session.report.say("ground: to fly by hand: ground mode ALTHOLD, then ground stick")
            return reply_status(refused)
        return _rest(session, ship)


def _follow(session: Session, ship: Ship, keys: Keys, stop_key: StopKey) -> Reply | None:
    """Send what the keys ask for until they end it; return the ship's refusal, if it refuses."""
    trouble = before = ""
    while not keys.has_ended:
        next_s = session.clock.now_s() + PERIOD_S
        wanted = keys.sticks()
        try:
            refused = ship.push([("stick", "stick", {**wanted, "seconds": DEMAND_S})], ttl_s=TTL_S)
            trouble = ""
        except BlimpError as error:  # no link now: the ship lets go by itself
            refused, trouble = None, str(error)
        if refused is not None:
            return refused
        shown = "  ".join(f"{axis} {wanted[f'{axis}_percent']:+4.0f} %" for axis in AXES)
        shown += f"  of {keys.percent} %  {trouble or stop_key.words}"
        if shown != before:
            session.report.progress(shown)
            before = shown
        session.clock.sleep_until(next_s)
    return None


def _rest(session: Session, ship: Ship) -> int:
    """Have the ship hold, as the page does when its sticks are let go."""
    reply = ship.command("hold", {}, timeout_s=REST_S, coalesce="stick")
    words = "the ship holds" if reply.state == "SUCCESS" else f"hold: {reply.reason or reply.state}"
    session.report.say(f"ground: {words}")
    return reply_status(reply)
