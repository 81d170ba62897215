"""Every driver on its simulated chip: written apart from one data sheet, they must agree.

The rows are those of docs/chips.md.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from blimp.chips import CHIPS
from blimp.hardware.board import safe_state
from blimp.hardware.linux import LinuxBuses
from blimp.rotation import rotate_back
from blimp.sim.chips.inertial import EARTH_FIELD_NED_T
from blimp.sim.electronics import twin
from blimp.sim.seam import linux_devices
from blimp.sim.world import World
from blimp.types import (
    ActuatorCommand,
    BaroSample,
    FlowSample,
    GpsSample,
    ImuSample,
    PositionSample,
    PowerSample,
    RangeSample,
    TransmitterSample,
)
from tests.contracts import rows
from tests.contracts.flight import Flight
from tests.contracts.machines import lockstep

pytestmark = pytest.mark.slow  # in all, tens of seconds of computing

STARTED_S = 4.0  # by now the slowest chip has started and measured
NO_FROZEN_ECHO = {"hcsr04"}  # a wall that stands still gives one distance as well
STICKS = {"crsf", "sbus"}  # which may lie still


def device(name: str) -> str:
    return rows.documented()[name].name


@contextmanager
def started(name: str) -> Iterator[Flight]:
    """Yield the ship that has a documented row, started within the time that its driver says."""
    with lockstep(rows.ship(name)) as machine:
        flight = Flight(machine)
        with flight.board:
            starting = {made.name: made.start_s for made in flight.board.devices}
            flight.until_healthy(device(name), within_s=starting[device(name)])
            flight.run(STARTED_S - machine.clock.now_s())
            yield flight


def sample(flight: Flight, name: str) -> object:
    return getattr(flight.readings, CHIPS[rows.documented()[name].chip].role)


@pytest.mark.parametrize("name", ["tfluna", "vl53l1x", "hcsr04"])
def test_a_ranger_may_hang_above_the_pad(name: str) -> None:
    """The estimator takes `rest_m` off what a ranger reads, and its driver must let it pass."""
    ship = rows.ship(name)
    devices = tuple(
        msgspec.structs.replace(row, options=row.options | {"rest_m": 0.5})
        if row.chip == name
        else row
        for row in ship.device
    )
    with lockstep(msgspec.structs.replace(ship, device=devices)) as machine:
        flight = Flight(machine)
        with flight.board:
            flight.run(1.5)
            made = sample(flight, name)
            assert isinstance(made, RangeSample)
            assert made.distance_m == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    "name", sorted(rows.documented().keys() - {*rows.sensors(), *rows.outputs()})
)
def test_a_row_that_shares_its_driver_starts_within_the_time_it_says(name: str) -> None:
    with started(name):
        pass


# --- sensors -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", rows.sensors())
def test_it_agrees_with_the_truth_and_each_fault_is_found_out_and_is_over(name: str) -> None:
    with started(name) as flight:
        _agrees(flight, name)
        _dead_it_is_named_keeps_its_last_sample_and_comes_back(flight, name)
        if name not in NO_FROZEN_ECHO | STICKS:
            _frozen_it_is_found_out(flight, name)
        if name not in NO_FROZEN_ECHO:
            _garbage_makes_it_unhealthy_and_no_wild_sample(flight, name)


def _agrees(flight: Flight, name: str) -> None:
    assert flight.board.self_test()[device(name)] in REMARKS
    assert flight.readings.unhealthy == ()
    made = sample(flight, name)
    if made is None:
        assert device(name) in NOTHING_IN_RANGE
    else:
        AGREES[type(made)](made, flight.world)
        if isinstance(made, ImuSample):
            has_field = "magnetic_x" in twin(rows.documented()[name].chip).CHANNELS
            assert (made.magnetic_body_t is not None) == has_field
        values = flight.board.status(flight.machine.clock.now_s())[device(name)].value
        numbers = values if isinstance(values, tuple) else (values,)
        assert all(math.isfinite(number or 0.0) for number in numbers)


def _dead_it_is_named_keeps_its_last_sample_and_comes_back(flight: Flight, name: str) -> None:
    before = sample(flight, name)
    flight.world.fault(device(name), "no_answer")
    flight.until_unhealthy(device(name), within_s=4.0)
    assert flight.readings.unhealthy == (device(name),)
    flight.run(1.0)
    after = sample(flight, name)
    assert (after is None) == (before is None)
    if after is not None:
        assert after.t_s <= flight.machine.clock.now_s() - 1.0  # type: ignore[attr-defined]
    flight.world.fault(device(name), "clear")
    flight.until_healthy(device(name), within_s=4.0)


def _frozen_it_is_found_out(flight: Flight, name: str) -> None:
    flight.world.fault(device(name), "frozen")
    flight.until_unhealthy(device(name), within_s=5.0)
    flight.run(2.0)
    assert device(name) in flight.readings.unhealthy, "it must not look well for standing still"
    flight.world.fault(device(name), "clear")
    flight.until_healthy(device(name), within_s=4.0)


def _garbage_makes_it_unhealthy_and_no_wild_sample(flight: Flight, name: str) -> None:
    flight.world.fault(device(name), "garbage")
    flight.until_unhealthy(device(name), within_s=5.0)
    made = sample(flight, name)
    if isinstance(made, BaroSample | PowerSample | RangeSample | PositionSample | GpsSample):
        AGREES[type(made)](made, flight.world)
    flight.world.fault(device(name), "clear")
    flight.until_healthy(device(name), within_s=4.0)


@pytest.mark.parametrize(
    "name",
    [n for n in rows.sensors() if "wrong_identity" in twin(rows.documented()[n].chip).KINDS],
)
def test_another_chip_at_its_place_is_named(name: str) -> None:
    with lockstep(rows.ship(name)) as machine:
        machine.world.fault(device(name), "wrong_identity")
        flight = Flight(machine)
        with flight.board:
            flight.run(1.0)
            assert flight.readings.unhealthy == (device(name),)
            error = flight.board.self_test()[device(name)]
            assert device(name) in error
            assert "expected" in error


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("bmp280", "bme280"), ("bme280", "bmp280"), ("mpu6050", "mpu6500"),
        ("mpu6050", "mpu9250"), ("mpu9250", "mpu6500"), ("mpu6500", "mpu6050"),
    ],
)  # fmt: skip
def test_a_relative_in_its_place_is_driven_by_its_own_formulas(name: str, there: str) -> None:
    """The board table says what was ordered; on the wires is what came."""
    with lockstep(rows.ship(there)) as machine:
        machine.airframe = rows.ship(name)
        flight = Flight(machine)
        with flight.board:
            flight.run(STARTED_S)
            assert flight.readings.unhealthy == ()
            made = sample(flight, name)
            assert isinstance(made, BaroSample | ImuSample)
            AGREES[type(made)](made, flight.world)
            assert made.temperature_c == pytest.approx(flight.world.physics.temperature_c, abs=1.0)


# --- outputs -------------------------------------------------------------------------------

COMMAND = ActuatorCommand(motors=(0.5, -0.25, 1.0), servos=(0.5, 0.3, -0.3))


@pytest.mark.parametrize("name", rows.outputs())
def test_commands_reach_what_it_drives_and_it_is_made_safe(name: str) -> None:
    with started(name) as flight:
        _commands_reach_what_it_drives_and_safe_stops_it(flight, name)
        _another_process_makes_it_safe_when_this_one_is_killed(flight)


def _commands_reach_what_it_drives_and_safe_stops_it(flight: Flight, name: str) -> None:
    row = rows.documented()[name]
    frame = flight.machine.airframe
    names = frame.thruster_names + frame.servo_names
    wanted = dict(zip(names, COMMAND.motors + COMMAND.servos, strict=True))
    flight.run(1.0, COMMAND)
    for output in row.outputs.values():
        assert flight.world.outputs[output] == pytest.approx(0.0, abs=0.01), "not enabled yet"
    flight.board.actuators.enable()
    flight.run(1.5, COMMAND)
    for output in row.outputs.values():
        assert flight.world.outputs[output] == pytest.approx(wanted[output], abs=0.01), output
    assert flight.board.actuators.safe() == ()
    assert list(flight.world.electronics.throttles()) == [0.0, 0.0, 0.0]


def _another_process_makes_it_safe_when_this_one_is_killed(flight: Flight) -> None:
    flight.board.actuators.enable()
    flight.run(1.0, COMMAND)
    # A new computer on the same wires: the motors go on as last commanded.
    world, clock = flight.world, flight.machine.clock
    old, world.computer = world.computer, None
    assert max(map(abs, world.electronics.throttles())) == pytest.approx(1.0)
    with linux_devices(world, clock=clock), LinuxBuses(clock=clock) as buses:
        assert set(safe_state(flight.machine.airframe, buses=buses).values()) == {""}
    world.computer = old
    assert list(world.electronics.throttles()) == [0.0, 0.0, 0.0]


# --- what agrees -----------------------------------------------------------------------------

REMARKS = {""}
NOTHING_IN_RANGE = {"sonar", "ranger", "flow"}  # on the pad, nearer than they can see


def _imu(made: ImuSample, world: World) -> None:
    assert made.accel_body_mps2 == pytest.approx((0.0, 0.0, -9.81), abs=0.25)
    assert made.gyro_body_radps == pytest.approx((0.0, 0.0, 0.0), abs=0.06)
    if made.magnetic_body_t is not None:
        field_t = rotate_back(world.truth.attitude, EARTH_FIELD_NED_T)
        assert made.magnetic_body_t == pytest.approx(field_t, abs=12e-6)


def _baro(made: BaroSample, world: World) -> None:
    assert made.pressure_pa == pytest.approx(world.physics.pressure_pa, abs=160.0)
    assert made.temperature_c == pytest.approx(world.physics.temperature_c, abs=2.5)


def _range(made: RangeSample, world: World) -> None:
    assert made.distance_m == pytest.approx(world.truth.altitude_m, abs=0.2)


def _flow(made: FlowSample, world: World) -> None:
    assert made.flow_body_radps == pytest.approx((0.0, 0.0), abs=1.0)
    assert made.quality > 25


def _power(made: PowerSample, world: World) -> None:
    assert made.voltage_v == pytest.approx(world.physics.battery_v, abs=0.03)
    if made.current_a is not None:  # of a chip that measures it
        assert made.current_a == pytest.approx(world.physics.battery_current_a, abs=0.03)


def _tag(made: PositionSample, world: World) -> None:
    assert made.position_ned_m == pytest.approx(world.truth.position_ned_m, abs=0.6)


def _gps(made: GpsSample, world: World) -> None:
    home = world.airframe.home
    assert made.latitude_deg == pytest.approx(home.latitude_deg, abs=1e-4)
    assert made.longitude_deg == pytest.approx(home.longitude_deg, abs=1e-4)
    assert made.velocity_ned_mps == pytest.approx((0.0, 0.0, 0.0), abs=0.4)


def _transmitter(made: TransmitterSample, world: World) -> None:
    assert made.channels == pytest.approx((0.0,) * 4 + (-1.0,) * 12, abs=0.001)


AGREES: dict[type, Callable[..., None]] = {
    ImuSample: _imu,
    BaroSample: _baro,
    RangeSample: _range,
    FlowSample: _flow,
    PowerSample: _power,
    PositionSample: _tag,
    GpsSample: _gps,
    TransmitterSample: _transmitter,
}
