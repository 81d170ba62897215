"""Which readings of a power monitor cannot be, and what a wrong one costs a flight: nothing."""

import msgspec
import pytest

from blimp import airframe as airframes
from blimp.control.power_check import PowerCheck
from blimp.types import ActuatorCommand, PowerSample, SensorReadings, SensorStatus
from tests.control.parts import Bench, RecordingOutputs


class Monitor:
    """A monitor alone, that measures ten times a second what a case says."""

    def __init__(self, airframe: str = "twin") -> None:
        self.ship = airframes.load(airframe)
        self.volts = 4.1 * self.ship.battery.cells
        self.amps: float | None = 0.6
        self.outputs = RecordingOutputs()
        self.check = PowerCheck(self, outputs=self.outputs, airframe=self.ship)
        self.now_s = 0.0

    def read(self, now_s: float) -> SensorReadings:
        sample = PowerSample(t_s=now_s, voltage_v=self.volts, current_a=self.amps)
        return SensorReadings(t_s=now_s, power=sample)

    def status(self, now_s: float) -> dict[str, SensorStatus]:
        value = self.volts if self.amps is None else (self.volts, self.amps)
        return {"power": SensorStatus(value=value, unit="V, A", age_s=0.0, healthy=True)}

    def run(self, seconds: float, *, throttle: float = 0.0) -> SensorReadings:
        self.outputs.command = ActuatorCommand(motors=(throttle,), servos=())
        for _ in range(round(10 * seconds)):
            self.now_s += 0.1
            readings = self.check.read(self.now_s)
        status = self.check.status(self.now_s)["power"]
        assert status.healthy == ("power" not in readings.unhealthy)
        assert status.healthy == (not status.error)
        self.error = status.error
        return readings


@pytest.mark.parametrize("airframe", ["twin", "gtmab", "hobby", "blimp2b"])
@pytest.mark.parametrize("idle", [0.4, 1.0, 1.8])
def test_a_monitor_whose_ship_takes_half_or_twice_what_its_file_says_is_healthy(
    airframe: str, idle: float
) -> None:
    monitor = Monitor(airframe)
    idle_a = idle * monitor.ship.battery.idle_current_a
    full_a = monitor.ship.thruster[0].max_current_a
    for throttle, motor in ((0.0, 0.0), (0.5, 0.1), (1.0, 0.5), (1.0, 1.5), (0.0, 0.0)):
        monitor.amps = idle_a + motor * full_a
        readings = monitor.run(15.0, throttle=throttle)
        assert readings.unhealthy == ()
        assert readings.power is not None
        assert readings.power.current_a == monitor.amps


@pytest.mark.parametrize(
    ("amps", "throttle", "says"),
    [
        (-0.6, 0.0, "-0.60 A flow into the battery: swap the shunt's two wires"),
        (-1.4, 1.0, "-1.40 A flow into the battery: swap the shunt's two wires"),
        (2.5, 0.0, "2.50 A with the motors off, at most 1.80 A: check shunt_ohm"),
        (9.5, 1.0, "9.50 A with all motors on, at most"),
        (0.0, 0.0, "0.00 A, the ship takes about 0.6 A: lead all of the battery's current"),
        (0.0, 1.0, "0.00 A, the ship takes about 0.6 A: lead all of the battery's current"),
    ],
)
def test_a_current_that_cannot_be_is_unhealthy_and_unknown_until_it_can(
    amps: float, throttle: float, says: str
) -> None:
    monitor = Monitor()
    monitor.run(2.0, throttle=throttle)
    monitor.amps = amps
    assert monitor.run(0.9, throttle=throttle).unhealthy == ()  # a motor brakes, or starts
    readings = monitor.run(0.5, throttle=throttle)
    assert says in monitor.error
    assert readings.power is not None
    assert readings.power.voltage_v == 8.2
    assert readings.power.current_a is None
    monitor.amps = 0.6
    assert monitor.run(0.1, throttle=throttle).unhealthy == ()


def test_a_current_that_stays_while_the_motors_run_does_not_follow_them() -> None:
    monitor = Monitor()
    monitor.amps = 1.0
    monitor.run(5.0)
    monitor.run(9.0, throttle=0.9)
    assert monitor.error == ""
    monitor.run(6.0, throttle=0.9)
    assert "1.00 A does not follow the motors" in monitor.error


def test_a_current_that_is_not_measured_is_not_judged() -> None:
    monitor = Monitor()
    monitor.amps = None
    for throttle in (0.0, 1.0, 0.0):
        assert monitor.run(15.0, throttle=throttle).unhealthy == ()
    monitor.volts = 12.6
    assert monitor.run(0.1).unhealthy == ("power",)


@pytest.mark.parametrize("volts", [0.0, 3.9, 9.0, 12.6, 25.9])
def test_a_voltage_that_these_cells_cannot_have_is_no_reading(volts: float) -> None:
    monitor = Monitor()
    monitor.volts = volts
    assert monitor.run(0.1).power is None
    assert f"{volts:.2f} V, must be 4.00 to 8.82 V with cells = 2: fit the" in monitor.error


def test_a_ship_with_such_a_monitor_does_not_arm_and_flies_on_if_it_breaks_in_flight() -> None:
    bench = Bench()
    read = bench.sensors.read

    def reversed_shunt(now_s: float) -> SensorReadings:
        readings = read(now_s)
        assert readings.power is not None
        power = msgspec.structs.replace(readings.power, current_a=-1.4)
        return msgspec.structs.replace(readings, power=power)

    bench.sensors.read = reversed_shunt  # type: ignore[method-assign]
    bench.run(2.0)
    refused = bench.tell("arm")
    assert "power: -1.40 A flow into the battery: swap the shunt's two wires" in refused.reason
    bench.sensors.read = read  # type: ignore[method-assign]
    bench.run(1.0)
    assert bench.tell("arm").reason == ""
    bench.sensors.read = reversed_shunt  # type: ignore[method-assign]
    bench.run(90.0)
    shown = bench.snapshot()
    assert not shown.sensors["power"].healthy
    assert shown.failsafe == ""
    assert shown.armed
