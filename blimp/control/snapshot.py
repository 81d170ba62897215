"""What a flight process says of itself: snapshots for the ground, a record for its successor."""

from collections.abc import Callable, Mapping, Sequence

from blimp.control.battery import BatteryFilter
from blimp.control.commander import Commander
from blimp.control.controller import Controller
from blimp.control.estimator import Estimator
from blimp.control.failsafe import Flags
from blimp.control.pilot import Pilot
from blimp.control.supervisor import Supervisor
from blimp.control.timing import Timing
from blimp.rotation import euler, yaw_of
from blimp.types import (
    Attitude,
    FlightRecord,
    SensorReadings,
    SensorStatus,
    Setpoint,
    Snapshot,
    VehicleState,
)

_RECORD_HZ = 10.0  # a successor reads it once; nothing in it changes faster


def _deaf(flags: Flags) -> str:
    """Why a stop of the ground would not come, and who can stop the ship all the same."""
    if flags.deaf and flags.stops:
        return f"{flags.deaf}; the transmitter's switch stops it"
    return flags.deaf


class SnapshotBuilder:
    """Everything the ground may know, from the parts that know it."""

    def __init__(
        self,
        *,
        vehicle: str,
        boot_id: str,
        simulated: bool,
        servos: Sequence[str],
        pilot: Pilot,
        commander: Commander,
        supervisor: Supervisor,
        controller: Controller,
        battery: BatteryFilter,
        timing: Timing,
    ) -> None:
        self._vehicle = vehicle
        self._boot_id = boot_id
        self._simulated = simulated
        self._servos = tuple(servos)
        self._pilot = pilot
        self._commander = commander
        self._supervisor = supervisor
        self._controller = controller
        self._battery = battery
        self._timing = timing

    def build(
        self,
        state: VehicleState,
        setpoint: Setpoint,
        flags: Flags,
        *,
        now_s: float,
        pilot_age_s: float | None,
        sensors: Mapping[str, SensorStatus],
        actuators: Mapping[str, float],
    ) -> Snapshot:
        """Return the snapshot of one instant; `state` gives its time."""
        roll, pitch, yaw = euler(state.attitude)
        supervisor, controller = self._supervisor, self._controller
        return Snapshot(
            t_s=state.t_s,
            boot_id=self._boot_id,
            vehicle=self._vehicle,
            mode=self._pilot.number.name,
            armed=supervisor.armed,
            killed=supervisor.killed,
            failsafe=supervisor.trouble,
            position_ned_m=state.position_ned_m,
            velocity_ned_mps=state.velocity_ned_mps,
            altitude_m=state.altitude_m,
            attitude_rad=Attitude(roll=roll, pitch=pitch, yaw=yaw),
            battery_v=self._battery.volts,
            current_a=self._battery.current_a,
            actuators=dict(actuators),
            servos=self._servos,
            sensors=dict(sensors),
            loop=self._timing.status(),
            simulated=self._simulated,
            active_command=self._commander.active,
            messages=tuple(supervisor.messages),
            health=state.health,
            link_age_s=flags.link_age_s,
            deaf=_deaf(flags),
            pilot_age_s=pilot_age_s,
            heaviness_kg=controller.weight.mean_kg if controller.weight.weighed else None,
            contact=state.touch.contact,
            target_ned_m=setpoint.position_ned_m,
            wind_ned_mps=controller.wind_ned_mps(),
            wind_age_s=controller.wind_age_s(now_s),
        )


class RecordWriter:
    """Leaves word for a successor: ten times a second, and of every change at once.

    write: what takes a record, None if nobody will read it.
    """

    def __init__(
        self,
        write: Callable[[FlightRecord], object] | None,
        *,
        supervisor: Supervisor,
        controller: Controller,
        estimator: Estimator,
        timing: Timing,
    ) -> None:
        self._write = write
        self._supervisor = supervisor
        self._controller = controller
        self._estimator = estimator
        self._timing = timing
        self._pressure_pa = 0.0
        self._written: tuple[bool, bool, bool] | None = None

    def note(self, readings: SensorReadings) -> None:
        """Take this cycle's readings; the next record has their pressure."""
        self._pressure_pa = readings.baro.pressure_pa if readings.baro is not None else 0.0

    def write(self, state: VehicleState, now_s: float) -> None:
        """Write a record if one is due."""
        supervisor, weight = self._supervisor, self._controller.weight
        status = (supervisor.armed, supervisor.killed, state.on_ground)
        is_due = self._timing.is_due(_RECORD_HZ) or status != self._written
        if self._write is None or not is_due:
            return
        self._written = status
        self._write(
            FlightRecord(
                t_s=now_s,
                armed=supervisor.armed,
                killed=supervisor.killed,
                airborne=not state.on_ground or bool(supervisor.adrift),  # it may not be judged yet
                height_m=state.altitude_m,
                heaviness_kg=weight.mean_kg if weight.weighed else 0.0,
                pressure_pa=self._pressure_pa,
                yaw_rad=yaw_of(state.attitude),
                yaw_sigma_rad=self._estimator.yaw_sigma_rad,
                gyro_bias_radps=self._estimator.gyro_bias_radps,
            )
        )
