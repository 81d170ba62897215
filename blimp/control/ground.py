"""Whether the ship is on the ground, by height and climb, and by what raw heights say."""

AIRBORNE_M = 0.35  # higher than feet give way
_GROUND_M = 0.15  # lower than this it stands on its feet
_GROUND_CLIMB_MPS = 0.15  # if it neither sinks nor rises by more
_GROUND_S = 0.5  # for so long
_AIRBORNE_S = 0.1  # longer than a spike


class GroundDetector:
    """Down after half a second low and slow; up as soon as it is clearly higher.

    Not while two families of sensors say that the ground carries it: an accelerometer alone, or a
    barometer, lifts no ship off its pad.
    """

    def __init__(self) -> None:
        self.down = True
        self._since_s: float | None = None

    def declare(self) -> None:
        self.down = True
        self._since_s = None

    def update(
        self, height_m: float, climb_mps: float, now_s: float, *, touches: bool = False
    ) -> None:
        if self.down:
            changing = height_m > AIRBORNE_M and not touches
            needed_s = _AIRBORNE_S
        else:
            changing = height_m < _GROUND_M and abs(climb_mps) < _GROUND_CLIMB_MPS
            needed_s = _GROUND_S
        if not changing:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s >= needed_s:
            self.down = not self.down
            self._since_s = None
