"""A GPS receiver that speaks NMEA 0183: GGA and RMC of every epoch, in this order.

Errors: a slow wander (Gauss-Markov, as the satellites' own errors do over minutes) and a
little white noise. Earth's radii: WGS 84 at the pad, so a local plane, good for kilometres.
"""

from datetime import UTC, datetime
from math import atan2, cos, degrees, exp, hypot, radians, sin, sqrt

from blimp.sim.chips.chip import Fitting, SerialChip

_SOLVING_S = 0.05  # from the epoch to the first byte
_WANDER_M = (1.2, 1.2, 2.0)  # standard deviation, north, east, up
_WANDER_S = 120.0  # time constant
_WHITE_M = 0.05
_VELOCITY_MPS = 0.05
_KNOTS = 1.0 / 0.514444
_GEOID_M = -36.0
_SATELLITES = 10
_HDOP = 0.9
_GARBAGE_BYTES = 140
_A_M = 6378137.0  # WGS 84
_E2 = 6.69437999014e-3


class GpsNmea(SerialChip):
    """Channels: north, east, up in m, north_speed and east_speed in m/s."""

    CHANNELS = ("north", "east", "up", "north_speed", "east_speed")
    MAX_RATE_HZ = 10.0
    POWER_ON_HZ = 0.0  # 0: the row's rate, as the receiver was set and saved
    SATELLITES = _SATELLITES

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self._period_s = 1.0 / (self.POWER_ON_HZ or min(fitting.device.rate_hz, self.MAX_RATE_HZ))
        self._start_utc_s = fitting.start_utc_s
        self._home = fitting.airframe.home
        latitude = radians(self._home.latitude_deg)
        w = sqrt(1.0 - _E2 * sin(latitude) ** 2)
        self._meridian_m = _A_M * (1.0 - _E2) / w**3
        self._parallel_m = _A_M / w * cos(latitude)
        gauss = self.random.gauss
        self._wander = [gauss(0.0, sigma) for sigma in _WANDER_M]
        self._epoch: list[bytes] | None = None
        self._measured: list[float] = []
        self._due_s = 0.0
        self._plan()

    def _plan(self) -> None:
        self._due_s += self._period_s
        self.timeline.at(self._due_s, self._fix)

    def _fix(self) -> None:
        self._plan()
        faults = self.faults
        self._move_wander()
        if faults.no_answer:
            return
        if faults.garbage:
            self.send(faults.random.randbytes(_GARBAGE_BYTES), after_s=_SOLVING_S)
            return
        if not faults.frozen or self._epoch is None:
            self._measured = self._measure()
            self._epoch = self._epoch_messages()
        # One message after the other, at the speed of the line.
        start_s = _SOLVING_S
        for sentence in self._epoch:
            self.send(sentence, after_s=start_s)
            start_s += len(sentence) * 10.0 / self.device.baud

    def _move_wander(self) -> None:
        keep = exp(-self._period_s / _WANDER_S)
        push = sqrt(1.0 - keep * keep)
        for axis, sigma in enumerate(_WANDER_M):
            self._wander[axis] = keep * self._wander[axis] + push * self.random.gauss(0.0, sigma)

    def _geodetic(self, north_m: float, east_m: float, up_m: float) -> tuple[float, float, float]:
        """Return latitude and longitude in degrees, and altitude above mean sea level."""
        return (
            self._home.latitude_deg + degrees(north_m / self._meridian_m),
            self._home.longitude_deg + degrees(east_m / self._parallel_m),
            self._home.altitude_msl_m + up_m,
        )

    def _epoch_messages(self) -> list[bytes]:
        """Return GGA and RMC of what was measured."""
        north, east, up, north_speed, east_speed = self._measured
        latitude, longitude, altitude_m = self._geodetic(north, east, up)
        where = f"{_angle(latitude, 2, 'NS')},{_angle(longitude, 3, 'EW')}"
        utc = datetime.fromtimestamp(self._start_utc_s + self.timeline.now_s, UTC)
        time = f"{utc:%H%M%S}.{utc.microsecond // 10000:02d}"
        knots = hypot(north_speed, east_speed) * _KNOTS
        course = degrees(atan2(east_speed, north_speed)) % 360.0
        gga = _sentence(
            f"GPGGA,{time},{where},1,{_SATELLITES:02d},{_HDOP:.2f},"
            f"{altitude_m:.1f},M,{_GEOID_M:.1f},M,,"
        )
        rmc = _sentence(f"GPRMC,{time},A,{where},{knots:.3f},{course:.2f},{utc:%d%m%y},,,A")
        return [gga, rmc]

    def _measure(self) -> list[float]:
        north, east, down = self.truth.position_ned_m
        v_north, v_east, _ = self.truth.velocity_ned_mps
        gauss = self.random.gauss
        values = [
            north + self._wander[0] + gauss(0.0, _WHITE_M),
            east + self._wander[1] + gauss(0.0, _WHITE_M),
            -down + self._wander[2] + gauss(0.0, 2.0 * _WHITE_M),
            v_north + gauss(0.0, _VELOCITY_MPS),
            v_east + gauss(0.0, _VELOCITY_MPS),
        ]
        if self.faults.altered:
            now_s = self.timeline.now_s
            values = [
                self.faults.measure(name, value, now_s)
                for name, value in zip(self.CHANNELS, values, strict=True)
            ]
        return values


def _angle(degrees_: float, digits: int, hemispheres: str) -> str:
    """Return "ddmm.mmmmm,N": rounded first, so that minutes never read 60."""
    total = round(abs(degrees_) * 60.0 * 1e5)
    whole, part = divmod(total, 60 * 100000)
    sign = hemispheres[0] if degrees_ >= 0.0 else hemispheres[1]
    return f"{whole:0{digits}d}{part // 100000:02d}.{part % 100000:05d},{sign}"


def _sentence(body: str) -> bytes:
    """Frame a sentence: $, checksum (exclusive or of the body's bytes), CR LF."""
    checksum = 0
    for byte in body.encode():
        checksum ^= byte
    return f"${body}*{checksum:02X}\r\n".encode()
