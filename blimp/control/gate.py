"""The gate in front of a filter's measurement."""

_SPEAKS_S = 0.3  # several samples of a source at 10 Hz


class Gate:
    """One source's: refuses an outlier, and knows for how long it has.

    floor: an innovation within it is never refused. sigmas: of its deviation, nor is one within
    so many.
    """

    __slots__ = ("_bad_since_s", "_floor", "_good_s", "_sigmas", "agrees", "innovation", "seen_s")

    def __init__(self, floor: float, sigmas: float) -> None:
        self._floor = floor
        self._sigmas = sigmas
        self._bad_since_s: float | None = None
        self._good_s: float | None = None
        self.seen_s: float | None = None
        self.innovation = 0.0
        self.agrees = True

    def speaks(self, now_s: float) -> bool:
        """Whether a measurement came just now, accepted or not."""
        return self.seen_s is not None and now_s - self.seen_s <= _SPEAKS_S

    @property
    def last_s(self) -> float | None:
        """When it last accepted."""
        return self._good_s

    def accepts(self, innovation: float, variance: float, now_s: float) -> bool:
        self.seen_s, self.innovation = now_s, innovation
        self.agrees = abs(innovation) <= max(self._floor, self._sigmas * variance**0.5)
        if self.agrees:
            self._bad_since_s = None
            self._good_s = now_s
        elif self._bad_since_s is None:
            self._bad_since_s = now_s
        return self.agrees

    def refuse(self, innovation: float, now_s: float) -> None:
        self.seen_s, self.innovation, self.agrees = now_s, innovation, False
        if self._bad_since_s is None:
            self._bad_since_s = now_s

    def refused_s(self, now_s: float) -> float:
        return 0.0 if self._bad_since_s is None else now_s - self._bad_since_s

    def forgive(self) -> None:
        self._bad_since_s = None

    def forget(self) -> None:
        """What it accepted was wrong."""
        self._good_s = None
