"""A snapshot for the tests of what carries it; the others are made of it."""

from blimp.types import Attitude, LoopStatus, SensorStatus, Snapshot

SNAPSHOT = Snapshot(
    t_s=1.0,
    boot_id="boot-1",
    vehicle="twin",
    mode="LOITER",
    armed=True,
    killed=False,
    failsafe="",
    position_ned_m=(1.0, -2.0, -3.0),
    velocity_ned_mps=(0.1, 0.0, 0.0),
    altitude_m=3.0,
    attitude_rad=Attitude(roll=0.01, pitch=-0.02, yaw=1.5),
    battery_v=7.4,
    actuators={"left": 0.5, "tilt": -0.3},
    sensors={"baro": SensorStatus(value=101325.0, unit="Pa", age_s=0.02, healthy=True)},
    loop=LoopStatus(rate_hz=100.0),
    simulated=True,
)
