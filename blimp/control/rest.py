"""The gyro's bias, from a ship that lies on its pad.

Yaw's bias decides how long a heading lasts, so it is yaw that must be still: a hull that wind rocks
on its feet does not turn. A ship that wind turns slowly looks like one with more bias, but it does
not turn evenly: at rest the windows agree to a few times their noise of 0.0001 rad/s. In more wind,
when the ship is never still, the mean over half a minute must do; it is as good as the ship has
turned little, and flight makes it better (`blimp/control/heading.py`). A ship that wind turns into
itself has turned much: what its yaw rate integrates to beside its mean says so, and then the
heading is not known until somebody holds the ship still. The bias of roll and pitch decides how
level the flight is: gravity turns with a swing on the feet, and not with a bias.
"""

from math import hypot

from blimp.types import ZERO3, ImuSample, Vec3

_WINDOW_S = 0.5  # of which mean and spread are taken
_GYRO_SPREAD_RADPS = 0.02  # four times the noise's own: MPU-6050 datasheet, 6.1
_ROCKING_RADPS = 0.06  # spread of roll and pitch on the feet
_ACCEL_SPREAD_MPS2 = 0.6  # of a ship that nobody moves; motors stand still
_WINDOWS = 4  # still for this many windows in a row: the bias is settled
_AGREE_RADPS = 0.0015  # two windows of a still gyro differ by less
_HELD_WINDOWS, _HELD_AGREE_RADPS = 8, 0.0005  # once wind has turned it: it may turn evenly for 3 s
_TRIM = 0.05  # of what a later window says
_SETTLED_AGREE_RADPS = 0.006  # from the settled bias: what warming up may do
_LIMIT_RADPS = 0.4  # MPU-6050 datasheet, 6.1: zero-rate output within 20 deg/s
_SETTLED_SIGMA_RADPS = 3e-4  # what is left of the bias then
_LEFT_SIGMA_RADPS = 1e-3  # flight has moved it on from what rest had shown
_ROUGH_S = 12.0  # in which wind turns a ship to and fro on its pad
_ROUGH_TURN_RAD = 0.15  # what a ship on its pad may turn by in that time, one sigma
_TURN_SHARE = 0.4  # of a turn, what is seen beside its mean rate: 0.4 to 0.9 in wind, simulated
_MAX_SUMS = 240  # half of them are kept when there are as many
UNKNOWN_RADPS = 0.1  # of a bias of which nothing is known


class RestBias:
    """Call `update` at rest and `move` otherwise; read the bias.

    sigma_radps: of yaw's bias.
    """

    def __init__(self) -> None:
        self.bias_radps: Vec3 = ZERO3
        self.sigma_radps = UNKNOWN_RADPS
        self.settled = False  # measured at rest, quietly
        self.still = False  # the last window was at rest
        self.spread_radps = 0.0  # of the last window's yaw rate
        self._window = _Window()
        self._windows = 0
        self._levels = 0  # windows in a row that roll and pitch have learned from
        self._first: tuple[tuple[float, float], tuple[float, float]]
        self._turned_rad = [0.0, 0.0]  # by the gyro since the first of them
        self._agreeing = [0, 0]  # of them in a row, for roll and for pitch; it stays once they did
        self._sum_rad = 0.0
        self._time_s = 0.0
        self._sums: list[tuple[float, float]] = []  # both, at the end of each window
        self._turn_rad = _ROUGH_TURN_RAD  # what wind may have turned it by
        self._flown = False

    @property
    def known(self) -> bool:
        """Whether a ship may take off with it."""
        return self.settled or self.sigma_radps < UNKNOWN_RADPS

    @property
    def turned_rad(self) -> float | None:
        """How far the ship has turned on its pad; None if it has a heading from a flight."""
        return None if self._flown else self._sum_rad - self.bias_radps[2] * self._time_s

    @property
    def turned_sigma_rad(self) -> float | None:
        """Of `turned_rad`; None as there."""
        if self._flown:
            return None
        return 0.0 if self.settled or not self.known else self._turn_rad

    def begin_with(self, bias_radps: Vec3) -> None:
        """Start with the bias that a flight process has left a moment ago."""
        self.bias_radps = bias_radps
        self.sigma_radps = _LEFT_SIGMA_RADPS
        self._flown = True

    def move(self) -> None:
        """The ship is not at rest: what was gathered says nothing of what comes."""
        self._flown = self._flown or self.known
        self._sum_rad = self._time_s = 0.0
        self._sums.clear()
        self._turn_rad = _ROUGH_TURN_RAD
        self.still = False
        self._windows = self._levels = 0
        self._window.clear()

    def update(self, sample: ImuSample, dt_s: float) -> bool:
        """Take a sample; return whether the bias has become known, or better known, by it."""
        if not self.settled:
            self._sum_rad += sample.gyro_body_radps[2] * dt_s
            self._time_s += dt_s
        mean = self._window.add(sample, dt_s)
        if mean is None:
            return False
        self.spread_radps = self._window.spread_radps
        quiet = self._window.quiet
        started = self.settled or self._windows > 0
        off = abs(mean[2] - (self.bias_radps[2] if started else mean[2]))
        windows, agree = _WINDOWS, _AGREE_RADPS
        if self.settled:
            agree = _SETTLED_AGREE_RADPS
        elif self._turn_rad > _ROUGH_TURN_RAD:
            windows, agree = _HELD_WINDOWS, _HELD_AGREE_RADPS
        self.still = quiet and off < agree and max(abs(m) for m in mean) < _LIMIT_RADPS
        if not self.still:
            self._windows = self._levels = 0
            self._window.clear()
            return self._rough()
        self._windows += 1
        share = 1.0 / min(self._windows, 16) if not self.settled else _TRIM
        self._level(mean)
        self._window.clear()
        bx, by, bz = self.bias_radps
        self.bias_radps = bx, by, bz + share * (mean[2] - bz)
        if self._windows >= windows and not self.settled:
            self.settled = True
            self.sigma_radps = _SETTLED_SIGMA_RADPS
            return True
        return False

    def _level(self, mean: Vec3) -> None:
        """Learn the bias of roll and pitch, of a ship that may swing on its feet.

        Four windows in a row that agree show a ship that lies still. One that swings shows its
        bias by what the gyro adds up to beside what gravity has turned by, between the middles of
        the first and the last window.
        """
        bias = list(self.bias_radps)
        down, rates = self._window.down, mean[:2]
        if self._levels == 0:
            self._first = (down, rates)
            self._turned_rad = [0.0, 0.0]
        self._levels += 1
        first_down, first_rates = self._first
        time_s = (self._levels - 1) * _WINDOW_S
        # Of a vector down that a body turns under: y grows with roll, x falls with pitch.
        tilted_rad = (down[1] - first_down[1], first_down[0] - down[0])
        for axis in (0, 1):
            self._turned_rad[axis] += _WINDOW_S * rates[axis]
            off = rates[axis] - bias[axis]
            if self._agreeing[axis] >= _WINDOWS:
                if abs(off) < 2.0 * _AGREE_RADPS:
                    bias[axis] += _TRIM * off
                continue
            agrees = self._levels > 1 and abs(off) < _AGREE_RADPS
            self._agreeing[axis] = self._agreeing[axis] + 1 if agrees else 0
            if agrees or self._levels == 1:
                bias[axis] += off / (self._agreeing[axis] + 1)
            else:
                ends_rad = 0.5 * _WINDOW_S * (first_rates[axis] + rates[axis])
                turned_rad = self._turned_rad[axis] - ends_rad - tilted_rad[axis]
                bias[axis] = turned_rad / time_s
        self.bias_radps = bias[0], bias[1], bias[2]

    def _rough(self) -> bool:
        """Never still: the mean of all there was, as good as the ship has turned little."""
        if self.settled:
            return False
        if len(self._sums) == _MAX_SUMS:
            del self._sums[::2]
        self._sums.append((self._sum_rad, self._time_s))
        if self._time_s < _ROUGH_S:
            return False
        mean = self._sum_rad / self._time_s
        if abs(mean) > _LIMIT_RADPS:
            return False
        self.bias_radps = (self.bias_radps[0], self.bias_radps[1], mean)
        beside = [sum_rad - mean * time_s for sum_rad, time_s in self._sums]
        self._turn_rad = max(self._turn_rad, (max(beside) - min(beside)) / _TURN_SHARE)
        self.sigma_radps = max(_SETTLED_SIGMA_RADPS, self._turn_rad / self._time_s)
        return True


class _Window:
    """Mean of the gyro, and how far gyro and accelerometer spread, over one window."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._time_s = 0.0
        self._count = 0
        self._sum = [0.0] * 6
        self._low = [1e9] * 6
        self._high = [-1e9] * 6

    def add(self, sample: ImuSample, dt_s: float) -> Vec3 | None:
        """Return the mean gyro rates when the window is full."""
        for i, value in enumerate(sample.gyro_body_radps + sample.accel_body_mps2):
            self._sum[i] += value
            if value < self._low[i]:
                self._low[i] = value
            if value > self._high[i]:
                self._high[i] = value
        self._count += 1
        self._time_s += dt_s
        if self._time_s < _WINDOW_S:
            return None
        n = self._count
        return (self._sum[0] / n, self._sum[1] / n, self._sum[2] / n)

    @property
    def down(self) -> tuple[float, float]:
        """Forward and right part of the direction down, by the mean of the accelerometer."""
        x, y, z = self._sum[3:]
        level = hypot(x, y, z)
        return (-x / level, -y / level) if level > 0.0 else (0.0, 0.0)

    @property
    def spread_radps(self) -> float:
        return self._high[2] - self._low[2]

    @property
    def quiet(self) -> bool:
        spread = [high - low for low, high in zip(self._low, self._high, strict=True)]
        return (
            spread[2] < _GYRO_SPREAD_RADPS
            and max(spread[:2]) < _ROCKING_RADPS
            and max(spread[3:]) < _ACCEL_SPREAD_MPS2
        )
