"""What the simulated barometers share: offsets, faults, a filter, and formulas solved backwards."""

from collections.abc import Callable

from blimp.sim.chips.chip import Fitting, I2CChip


class Barometer(I2CChip):
    """Channels: pressure in Pa, temperature in °C.

    OFFSET_PA, OFFSET_C: absolute accuracy of the part, by its data sheet.
    """

    KINDS = I2CChip.KINDS | {"wrong_identity"}
    CHANNELS = ("pressure", "temperature")
    DEFAULT_ADDRESS = 0x76
    OFFSET_PA: float
    OFFSET_C: float

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._offset_pa = self.random.uniform(-self.OFFSET_PA, self.OFFSET_PA)
        self._offset_c = self.random.uniform(-self.OFFSET_C, self.OFFSET_C)
        self._filtered: tuple[float, float] | None = None  # raw temperature, raw pressure
        self._last: tuple[float, float] | None = None

    def _felt(self) -> tuple[float, float]:
        """Return temperature in °C and pressure in Pa as this part feels them."""
        celsius = self.truth.temperature_c + self._offset_c
        pascal = self.truth.pressure_pa + self._offset_pa
        if self.faults.altered:
            now_s = self.timeline.now_s
            pascal = self.faults.measure("pressure", pascal, now_s)
            celsius = self.faults.measure("temperature", celsius, now_s)
        return celsius, pascal

    def _feed(
        self,
        raw: tuple[float, float],
        *,
        fresh: int,
        coefficient: int,
        sigma: tuple[float, float],
    ) -> tuple[float, float]:
        """Take `fresh` conversions that ended at `raw` through the IIR filter.

        raw, sigma: of temperature and pressure, in counts. coefficient: a new value counts
        one part in so many.
        """
        raw_t, raw_p = raw
        from_t, from_p = self._last or raw
        self._last = raw
        filtered = self._filtered
        gauss = self.random.gauss
        steps = min(fresh, 5 * coefficient) if coefficient > 1 else 1
        for step in range(steps - 1, -1, -1):
            back = step / fresh  # the share of time between the last call and now
            new_t = raw_t + (from_t - raw_t) * back + gauss(0.0, sigma[0])
            new_p = raw_p + (from_p - raw_p) * back + gauss(0.0, sigma[1])
            if filtered is None:
                filtered = (new_t, new_p)
            else:
                old_t, old_p = filtered
                filtered = (
                    old_t + (new_t - old_t) / coefficient,
                    old_p + (new_p - old_p) / coefficient,
                )
        assert filtered is not None
        self._filtered = filtered
        return filtered


def solve(
    function: Callable[[float], float], wanted: float, guess: float, *, top: float
) -> tuple[float, float]:
    """Return (raw, slope) with function(raw) == wanted to a tenth of a count; Newton.

    raw stays within 0 and `top`.
    """
    slope = 1.0
    for _ in range(20):
        value = function(guess)
        slope = function(guess + 1.0) - value
        step = (wanted - value) / slope
        guess = min(max(guess + step, 0.0), top)
        if abs(step) < 0.1:
            break
    return guess, slope


def quantise(raw: float, bits: int, *, of: int) -> int:
    """Round a raw value of `of` bits to its upper `bits`."""
    coarse = 1 << max(of - bits, 0)
    return min(max(round(raw / coarse) * coarse, 0), (1 << of) - 1)
