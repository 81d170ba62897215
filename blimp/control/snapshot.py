"""Everything the ground may know, from the parts that know it."""

from collections.abc import Mapping, Sequence

from blimp.rotation import euler
from blimp.types import Attitude, LoopStatus, SensorStatus, Snapshot, Vec3, VehicleState


def build_snapshot(
    *,
    state: VehicleState,
    boot_id: str,
    vehicle: str,
    mode: str,
    armed: bool,
    killed: bool,
    failsafe: str,
    battery_v: float | None,
    actuators: Mapping[str, float],
    servos: Sequence[str],
    sensors: Mapping[str, SensorStatus],
    loop: LoopStatus,
    simulated: bool,
    active_command: str,
    messages: Sequence[str],
    link_age_s: float,
    deaf: str,
    pilot_age_s: float | None,
    heaviness_kg: float | None,
    target_ned_m: tuple[float | None, float | None, float | None],
    wind_ned_mps: Vec3 | None,
    wind_age_s: float | None,
) -> Snapshot:
    """Return the snapshot of one instant; `state` gives its time."""
    roll, pitch, yaw = euler(state.attitude)
    return Snapshot(
        t_s=state.t_s,
        boot_id=boot_id,
        vehicle=vehicle,
        mode=mode,
        armed=armed,
        killed=killed,
        failsafe=failsafe,
        position_ned_m=state.position_ned_m,
        velocity_ned_mps=state.velocity_ned_mps,
        altitude_m=state.altitude_m,
        attitude_rad=Attitude(roll=roll, pitch=pitch, yaw=yaw),
        battery_v=battery_v,
        actuators=dict(actuators),
        servos=tuple(servos),
        sensors=dict(sensors),
        loop=loop,
        simulated=simulated,
        active_command=active_command,
        messages=tuple(messages),
        health=state.health,
        link_age_s=link_age_s,
        deaf=deaf,
        pilot_age_s=pilot_age_s,
        heaviness_kg=heaviness_kg,
        target_ned_m=target_ned_m,
        wind_ned_mps=wind_ned_mps,
        wind_age_s=wind_age_s,
    )
