"""Whether the power monitor's readings can be: by sign, by range, and by what the motors do.

Who reads what cannot be is unhealthy, and does not arm. In flight this ends nothing: a wrong
current is unknown, and a wrong voltage is that of a monitor that is silent (see failsafe.py).
"""

from math import exp, inf

import msgspec

from blimp.ability import full_v
from blimp.airframe import Airframe
from blimp.control.loop import Outputs, Sensors
from blimp.control.samples import role
from blimp.types import PowerSample, SensorReadings, SensorStatus

_LASTS_S = 1.0  # a motor that starts or brakes does so for less
_FOLLOWS_S = 10.0  # the same, of a current that does not follow the motors
_STANDS_S = 1.0  # motors stand so long after their last command
_SMOOTH_S = 3.0  # averages what steers the ship
# Of a shunt's voltage 100 µV are the INA219's offset (SBOS448G, 6.5), here over 2 mΩ.
_ZERO_A = 0.05
_IDLE = 2.0  # times idle_current_a, which a builder may have guessed: at rest no ship takes more
_OUTPUT_A = 0.1  # beside that, for each servo that holds and each ESC
_MOTORS = 2.0  # times the motors' full current: it is the file's
_LEAST = 0.1  # of what the electronics take by the file, and of what the motors do
_TELLS_A = 0.15  # motors that take less than this by the file tell nothing
_CURRENT = 1.5  # a motor's current follows its thrust to this power: momentum theory
_OVERFULL = 1.05  # of full cells: those of LiHV are full at 4.35 V, and the monitor is 1 % off
_EMPTY_CELL_V = 2.0  # cells are cut off above this, at 2.4 to 3.0 V: nothing would be running


class PowerCheck:
    """The ship's sensors, without what its power monitor cannot have measured."""

    def __init__(self, sensors: Sensors, *, outputs: Outputs, airframe: Airframe) -> None:
        self._sensors = sensors
        self._outputs = outputs
        self._thrusters = airframe.thruster
        self._battery = airframe.battery
        self._name, self._rate_hz = next(
            ((d.name, d.rate_hz) for d in airframe.device if role(d) == "power"), ("", 1.0)
        )
        self._idle_a = airframe.battery.idle_current_a
        outputs_count = sum(len(device.outputs) for device in airframe.device)
        self._rest_a = _IDLE * self._idle_a + _OUTPUT_A * outputs_count
        self._full_a = _MOTORS * sum(thruster.max_current_a for thruster in airframe.thruster)
        self._sample: PowerSample | None = None
        self._believed: PowerSample | None = None
        self._moved_s = -inf
        self._stood_a: float | None = None  # what it read while the motors stood
        self._asked_a = self._rose_a = 0.0  # by the motors' commands, and beside `_stood_a`
        self._suspected: tuple[str, float] = ("", -inf)  # of which kind, and since when
        self._error = ""

    def read(self, now_s: float) -> SensorReadings:
        readings = self._sensors.read(now_s)
        if readings.power is not self._sample:
            self._sample = self._believed = readings.power
            if readings.power is not None:
                self._judge(readings.power)
        if not self._error:
            return readings
        unhealthy = {*readings.unhealthy, self._name}
        return msgspec.structs.replace(readings, power=self._believed, unhealthy=tuple(unhealthy))

    def status(self, now_s: float) -> dict[str, SensorStatus]:
        found = self._sensors.status(now_s)
        if self._error and found[self._name].healthy:
            sick = msgspec.structs.replace(found[self._name], healthy=False, error=self._error)
            found[self._name] = sick
        return found

    def _judge(self, sample: PowerSample) -> None:
        """Believe the sample, or say why not, with the cure; a wrong current must last."""
        self._error = self._wrong_voltage(sample.voltage_v)
        if self._error:
            self._believed = None
            return
        amps = sample.current_a
        error, lasts_s = ("", 0.0) if amps is None else self._wrong_current(sample.t_s, amps)
        kind, _, why = error.partition("|")
        if kind != self._suspected[0]:
            self._suspected = (kind, sample.t_s)
        if kind and sample.t_s - self._suspected[1] >= lasts_s:
            self._error = why
            self._believed = msgspec.structs.replace(sample, current_a=None)

    def _wrong_voltage(self, volts: float) -> str:
        cells = self._battery.cells
        low_v, high_v = _EMPTY_CELL_V * cells, _OVERFULL * full_v(self._battery)
        if low_v <= volts <= high_v:
            return ""
        return (
            f"{volts:.2f} V, must be {low_v:.2f} to {high_v:.2f} V with cells = {cells}: "
            "fit the airframe's battery, or connect its plus to the monitor's VIN-"
        )

    def _wrong_current(self, t_s: float, amps: float) -> tuple[str, float]:
        """Return what is wrong, its kind before a bar, and how long it must last."""
        stands = self._stands(t_s, amps)
        least_a = _LEAST * self._idle_a
        most_a = self._rest_a + (0.0 if stands else self._full_a)
        if amps < -_ZERO_A:
            cure = "swap the shunt's two wires, or take the charger off"
            return f"sign|{amps:.2f} A flow into the battery: {cure}", _LASTS_S
        if amps > most_a:
            at = "the motors off" if stands else "all motors on"
            cure = "check shunt_ohm and the shunt's wires, or measure idle_current_a"
            return f"range|{amps:.2f} A with {at}, at most {most_a:.2f} A: {cure}", _LASTS_S
        if amps < least_a and self._idle_a > _ZERO_A:
            cure = "lead all of the battery's current through the shunt, and check shunt_ohm"
            return f"least|{amps:.2f} A, the ship takes about {self._idle_a:g} A: {cure}", _LASTS_S
        if self._asked_a > _TELLS_A and self._rose_a < _LEAST * self._asked_a:
            cure = "lead their current through the shunt, or look why they stand"
            return f"follow|{amps:.2f} A does not follow the motors: {cure}", _FOLLOWS_S
        return "", 0.0

    def _stands(self, t_s: float, amps: float) -> bool:
        """Note what the motors were asked for; return whether they stand."""
        throttles = self._outputs.last
        asked_a = sum(
            thruster.max_current_a
            * abs(throttles.get(thruster.name, 0.0)) ** (_CURRENT * thruster.exponent)
            for thruster in self._thrusters
        )
        if asked_a > 0.0:
            self._moved_s = t_s
        if t_s - self._moved_s > _STANDS_S:
            self._stood_a, self._asked_a, self._rose_a = amps, 0.0, 0.0
            return True
        if self._stood_a is not None:
            share = 1.0 - exp(-1.0 / (_SMOOTH_S * self._rate_hz))
            self._asked_a += share * (asked_a - self._asked_a)
            self._rose_a += share * (amps - self._stood_a - self._rose_a)
        return False
