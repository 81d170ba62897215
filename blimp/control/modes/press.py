"""What holds a light ship on the ground: by how much it is pushed, and what is said of it."""

from math import inf

from blimp.constants import AIR_DENSITY_KGM3, GRAVITY_MPS2
from blimp.control.bounds import FELT
from blimp.control.modes.mode import Ship

_MARGIN = 0.3  # of its thrust, beside what its lift takes: half a battery lasts an hour of it
_LIFTED = 1.25  # times its lift, though it drives over the ground with that
_HARDER = 1.5  # times that, for a ship that came off the ground under it
_REPORT_S = 3.0  # motors and servos have followed by then
_NEWS = 1.25  # by such a ratio a number has changed enough to be reported again


class Press:
    """Thrust against lift. heaviness_kg: what the ship is taken to weigh, light is negative.

    short: it lifts more than thrust can push down with.
    """

    def __init__(self, *, ship: Ship) -> None:
        self._ship = ship
        self.heaviness_kg = 0.0
        self.short = False
        self._press_n = self._most_n = 0.0  # onto the ground, and what can be had
        self._grips_n = inf  # with which it stays in its place
        self._reported_s = 0.0
        self._given_n: float | None = None  # as last reported
        self._lasts_s: float | None = None  # the same, of the battery

    @property
    def force_n(self) -> float:
        least_n = max(self._grips_n, _LIFTED * self._lift_n)
        return min(self._press_n, self._most_n, least_n)

    @property
    def _lift_n(self) -> float:
        return max(0.0, -GRAVITY_MPS2 * self.heaviness_kg)

    def begin(self) -> None:
        """Push by the lift with a margin from now on."""
        self._most_n = self._ship.push_n()
        least_n = GRAVITY_MPS2 * FELT * AIR_DENSITY_KGM3 * self._ship.airframe.hull.volume_m3
        self._press_n = max(self._press_n, self._lift_n + max(_MARGIN * self._most_n, least_n))
        self._given_n, self._lasts_s = min(self._press_n, self._most_n), None

    def harder(self) -> None:
        self._press_n = max(self._press_n, min(_HARDER * self._press_n, self._most_n))

    def compare(self, dt_s: float) -> None:
        """Note on the way down whether the ship lifts more than thrust can push."""
        weight = self._ship.weight()
        if self._is_due(dt_s) and weight.weighed:
            self.heaviness_kg = weight.mean_kg
            self.short = self._lift_n > self._most_n

    def report(self, dt_s: float) -> None:
        """Note what the thrust gives, again only if that has changed by much."""
        if not self._is_due(dt_s):
            return
        self._grips_n = self._ship.grips_n()
        given_n, lasts_s = self._ship.pushes_n(), self._ship.lasts_s()
        if _is_news(given_n, self._given_n) or _is_news(lasts_s, self._lasts_s):
            self._given_n, self._lasts_s = given_n, lasts_s

    def _is_due(self, dt_s: float) -> bool:
        self._reported_s += dt_s
        if self._reported_s < _REPORT_S:
            return False
        self._reported_s, self._most_n = 0.0, self._ship.push_n()
        return True

    def note(self, *, held: bool, loose: bool) -> str:
        """Return what a person must know of a light ship, or ""."""
        if not held and not self.short:
            return ""
        light = f"light by about {max(0.1, -1e3 * self.heaviness_kg):.1f} g"
        if not held:
            return (
                f"{light}: cannot be brought down: thrust pushes down with {self._most_n:.2g} N at "
                f"the most, and it lifts {self._lift_n:.2g} N"
            )
        if loose:
            return f"{light}: off the ground, pushed down; secure the ship, then disarm"
        if self._given_n is None:
            return (
                f"{light}: pressed down with {self._press_n:.2g} N if what is said to be broken "
                "gives it; secure the ship, then disarm"
            )
        if self._given_n < self._lift_n:
            return (
                f"{light}: cannot be held down: thrust gives {self._given_n:.2g} N and it lifts "
                f"{self._lift_n:.2g} N; secure the ship at once, then disarm"
            )
        minutes = self._lasts_s
        lasts = "" if minutes is None else f" for about {minutes / 60.0:.0f} min of its battery"
        return (
            f"{light}: held down by thrust of {self._given_n:.2g} N{lasts}, still armed; "
            "secure the ship, then disarm"
        )


def _is_news(now: float | None, before: float | None) -> bool:
    if now is None or before is None:
        return now is not before
    return not (now < _NEWS * before and before < _NEWS * now) and max(now, before) > 1e-3
