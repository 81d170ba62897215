"""A whole board of drivers on simulated chips; each chip alone is in `test_every_chip.py`."""

import math
from collections.abc import Iterator

import pytest

from blimp.hardware.board import safe_state
from blimp.hardware.linux import LinuxBuses
from blimp.sim.seam import linux_devices
from blimp.types import ActuatorCommand, SensorReadings
from tests.contracts.flight import Flight
from tests.contracts.machines import lockstep


@pytest.fixture
def flight() -> Iterator[Flight]:
    with lockstep() as machine:
        made = Flight(machine)
        with made.board:
            yield made


def test_all_devices_are_well_within_a_second(flight: Flight) -> None:
    readings = flight.run(1.0)
    assert flight.board.self_test() == {row.name: "" for row in flight.machine.airframe.device}
    assert readings.unhealthy == ()


def test_samples_agree_with_the_truth(flight: Flight) -> None:
    readings = flight.run(3.0)
    truth = flight.world.truth
    physics = flight.world.physics
    imu, baro, tag, gps, power = (
        readings.imu, readings.baro, readings.tag, readings.gps, readings.power,
    )  # fmt: skip
    assert imu is not None
    assert imu.accel_body_mps2 == pytest.approx((0.0, 0.0, -9.81), abs=0.25)
    assert imu.gyro_body_radps == pytest.approx((0.0, 0.0, 0.0), abs=0.06)
    assert baro is not None
    assert baro.pressure_pa == pytest.approx(physics.pressure_pa, abs=110.0)  # ±1 hPa part
    assert tag is not None
    assert tag.position_ned_m == pytest.approx(truth.position_ned_m, abs=0.5)
    assert gps is not None
    home = flight.machine.airframe.home
    assert gps.latitude_deg == pytest.approx(home.latitude_deg, abs=1e-4)
    assert gps.longitude_deg == pytest.approx(home.longitude_deg, abs=1e-4)
    assert gps.velocity_ned_mps == pytest.approx((0.0, 0.0, 0.0), abs=0.3)
    assert power is not None
    assert power.voltage_v == pytest.approx(physics.battery_v, abs=0.02)
    assert power.current_a == pytest.approx(physics.battery_current_a, abs=0.02)


def test_every_sample_is_finite_and_newer_ones_follow(flight: Flight) -> None:
    first = flight.run(1.0)
    second = flight.run(1.0)
    for role in ("imu", "baro", "tag", "gps", "power"):
        assert getattr(second, role).t_s > getattr(first, role).t_s
    for status in flight.board.status(flight.machine.clock.now_s()).values():
        values = status.value if isinstance(status.value, tuple) else (status.value or 0.0,)
        assert all(map(math.isfinite, values))


def test_commands_reach_motors_and_servos(flight: Flight) -> None:
    flight.run(0.5)
    flight.board.actuators.enable()
    command = ActuatorCommand(motors=(0.5, -0.25, 1.0), servos=(0.5, 0.3, -0.3))
    flight.run(1.5, command)
    outputs = flight.world.outputs
    names = flight.machine.airframe.thruster_names + flight.machine.airframe.servo_names
    expected = dict(zip(names, command.motors + command.servos, strict=True))
    for name, value in expected.items():
        assert outputs[name] == pytest.approx(value, abs=0.01), name
    assert flight.board.actuators.last == pytest.approx(expected)


def test_safe_stops_the_motors_at_once(flight: Flight) -> None:
    flight.run(0.5)
    flight.board.actuators.enable()
    flight.run(0.5, ActuatorCommand(motors=(1.0, 1.0, 1.0), servos=(0.1, 0.1, 0.1)))
    assert flight.board.actuators.safe() == ()
    assert list(flight.world.electronics.throttles()) == [0.0, 0.0, 0.0]
    assert list(flight.world.electronics.servo_angles()) == [None, None, None]


def test_another_process_makes_the_outputs_safe(flight: Flight) -> None:
    flight.run(0.5)
    flight.board.actuators.enable()
    flight.run(0.5, ActuatorCommand(motors=(1.0, 1.0, 1.0), servos=(0.1, 0.1, 0.1)))
    # A new computer on the same wires: the motors do the last thing they were commanded.
    world, clock = flight.world, flight.machine.clock
    old, world.computer = world.computer, None
    assert max(world.electronics.throttles()) == 1.0
    with linux_devices(world, clock=clock), LinuxBuses(clock=clock) as buses:
        assert set(safe_state(flight.machine.airframe, buses=buses).values()) == {""}
    world.computer = old
    assert list(flight.world.electronics.throttles()) == [0.0, 0.0, 0.0]
    assert list(flight.world.electronics.servo_angles()) == [None, None, None]


def test_a_stuck_bus_costs_its_devices_and_no_others(flight: Flight) -> None:
    flight.run(2.0)
    flight.board.actuators.enable()
    flight.world.fault("baro", "bus_stuck")
    readings = flight.run(2.5, ActuatorCommand(motors=(0.4, 0.4, 0.0), servos=(0.0,) * 3))
    assert set(readings.unhealthy) == {"imu", "baro", "ranger", "power", "servos"}
    assert list(flight.world.electronics.throttles())[:2] == pytest.approx([0.4, 0.4])
    flight.world.fault("baro", "clear")
    flight.run(2.5)
    assert flight.readings.unhealthy == ()


def test_the_servo_board_comes_back_after_it_was_dead(flight: Flight) -> None:
    flight.run(1.0)
    flight.board.actuators.enable()
    command = ActuatorCommand(motors=(0.0,) * 3, servos=(0.5, 0.2, 0.2))
    flight.run(1.5, command)
    flight.world.fault("servos", "no_answer")
    flight.run(1.0, command)
    assert "servos" in flight.readings.unhealthy
    flight.world.fault("servos", "clear")
    flight.run(2.0, command)
    assert flight.readings.unhealthy == ()
    assert flight.world.outputs["tilt"] == pytest.approx(0.5, abs=0.01)


def test_the_same_seed_gives_the_same_samples_to_the_bit() -> None:
    def fly() -> SensorReadings:
        with lockstep() as machine:
            flight = Flight(machine)
            with flight.board:
                return flight.run(2.0)

    assert fly() == fly()
