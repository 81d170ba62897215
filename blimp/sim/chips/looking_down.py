"""What a ranger fixed to the ship sees of a flat floor."""

from blimp.sim.chips.chip import Fitting


class LookingDown:
    """A beam along body down, from near the hull's centre line.

    The row's option `rest_m` is what it reads while the ship stands on its pad: its height
    above the floor there, 0 where it is not given.
    """

    def __init__(self, fitting: Fitting, *, least_cosine: float) -> None:
        self._truth = fitting.truth
        self._rest_m = float(fitting.device.options.get("rest_m", 0.0))
        self._least_cosine = least_cosine

    def slant_m(self) -> float | None:
        """Return the distance along the beam to the floor.

        None where the ship leans so far that nothing comes back.
        """
        _, x, y, _ = self._truth.attitude
        cosine = 1.0 - 2.0 * (x * x + y * y)
        if cosine < self._least_cosine:
            return None
        return max(self._rest_m - self._truth.position_ned_m[2], 0.0) / cosine
