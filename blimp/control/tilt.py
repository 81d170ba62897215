"""A servo that turns thrusters about their hinge."""

from math import pi

from blimp.airframe import Airframe, Servo
from blimp.vector import within

_STEP_RAD = 0.02  # finer than a hobby servo stands
_SWING_COST = 5.6e-3  # of the square of a thrust, per radian: what moving a servo must gain


class Tilt:
    """A servo that turns propellers: where it is sent, and by a model of its slew where it is.

    steps: the angles of its grid, through the neutral one, where forwards and backwards cost the
    same. swing_cost: of a step.
    """

    def __init__(self, *, index: int, servo: Servo, device: str, thrust_n: float) -> None:
        self.index = index
        self.name = servo.name
        self.device = device  # that drives it
        self.neutral_rad = servo.neutral_rad
        self._range_rad = (servo.min_rad, servo.max_rad)
        self._slew_radps = servo.slew_radps
        self.angle_rad = servo.neutral_rad  # modelled
        self.target_rad = servo.neutral_rad
        below = int((servo.neutral_rad - servo.min_rad) / _STEP_RAD)
        above = int((servo.max_rad - servo.neutral_rad) / _STEP_RAD)
        self.steps = [servo.neutral_rad + k * _STEP_RAD for k in range(-below, above + 1)]
        self.swing_cost = _SWING_COST * thrust_n**2 * _STEP_RAD

    def step(self, tilt_rad: float) -> int:
        """Return the nearest step of the grid."""
        index = int((tilt_rad - self.steps[0]) / _STEP_RAD + 0.5)
        return max(0, min(len(self.steps) - 1, index))

    def way_s(self, one: int, other: int) -> float:
        """Return how long the servo needs from one step to another."""
        return abs(one - other) * _STEP_RAD / self._slew_radps

    def ahead(self, aim_rad: float) -> float:
        """Return an angle in its travel that points there; if none does, as `nearest`."""
        low, high = self._range_rad
        for angle in (aim_rad, aim_rad - 2.0 * pi):
            if low <= angle <= high:
                return angle
        return self.nearest(aim_rad)

    def nearest(self, aim_rad: float) -> float:
        """Return the angle near its target that points there, forwards or backwards."""
        turns = round((self.target_rad - aim_rad) / pi)
        low, high = self._range_rad
        angle = aim_rad + turns * pi
        if angle > high:
            angle -= pi
        elif angle < low:
            angle += pi
        return max(low, min(high, angle))

    def slew(self, target_rad: float, dt_s: float) -> None:
        """Send the servo to `target_rad` and move the model of it towards there."""
        low, high = self._range_rad
        self.target_rad = max(low, min(high, target_rad))
        self.angle_rad += within(self.target_rad - self.angle_rad, self._slew_radps * dt_s)


def tilts(airframe: Airframe) -> tuple[Tilt, ...]:
    drivers = {name: device.name for device in airframe.device for name in device.outputs.values()}
    turned = {
        servo.name: [t.max_thrust_n for t in airframe.thruster if t.tilted_by == servo.name]
        for servo in airframe.servo
    }
    return tuple(
        Tilt(index=k, servo=s, device=drivers[s.name], thrust_n=max(turned[s.name]))
        for k, s in enumerate(airframe.servo)
        if turned[s.name]
    )
