"""Readings that no working chip gives: bytes may be garbage, and must not become a value."""

from blimp.errors import DeviceError


class Plausible:
    """Refuses what is outside a chip's range, or too far from the reading before.

    A second reading at the far place is accepted: then it is the world that moved.
    """

    def __init__(
        self, what: str, unit: str, *, low: float, high: float, step: float, digits: int = 1
    ) -> None:
        self._what = what
        self._unit = unit
        self._low = low
        self._high = high
        self._step = step
        self._digits = digits
        self._before: float | None = None

    def check(self, value: float) -> float:
        """Return `value`. Raises DeviceError; on NaN, too."""
        before, self._before = self._before, value
        if not self._low <= value <= self._high:
            raise DeviceError(
                f"{self._what} reads {value:.{self._digits}f} {self._unit}, outside the chip's "
                f"{self._low:g} to {self._high:g} {self._unit}"
            )
        if before is not None and abs(value - before) > self._step:
            raise DeviceError(
                f"{self._what} jumped from {before:.{self._digits}f} to "
                f"{value:.{self._digits}f} {self._unit} between two reads: the bytes are garbage"
            )
        return value

    def forget(self) -> None:
        """Accept any next reading in range, as after a start."""
        self._before = None
