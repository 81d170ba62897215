"""Whether a pilot is at a page that runs on the ship itself.

There the page's program never loses the ship: what is lost is the phone. So its heartbeat is the
browsers': each that may command proves its socket for stops once a second (static/lib/stop.js).
"""

from blimp.clock import Clock

SILENT_S = 2.0  # one proof that is late by its own time; then the ship holds 3 s later


class Pilots:
    """The browsers that may command. Any thread may ask."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._heard_s = float("-inf")
        self._have_left = False

    def heard(self) -> None:
        """A browser has proved its socket for stops."""
        self._heard_s = self._clock.now_s()

    def are_present(self) -> bool:
        """Whether one was heard lately: without one the ship misses its pilot."""
        return not self._have_left and self._clock.now_s() - self._heard_s < SILENT_S

    def leave(self) -> None:
        """The page ends. It says no goodbye for them: in flight the ship is to miss them."""
        self._have_left = True
