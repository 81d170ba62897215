"""A program of MAVSDK that flies a ship, and prints what it found as JSON; argument: the port.

A program of its own: the library's threads do not end with a test.
"""

import asyncio
import json
import math
import os
import sys
from typing import Any

from mavsdk.asyncio import ComponentType, Configuration, Mavsdk
from mavsdk.asyncio.plugins.action import ActionAsync, ActionError
from mavsdk.asyncio.plugins.geofence import (
    Circle,
    FenceType,
    GeofenceAsync,
    GeofenceData,
    Point,
)
from mavsdk.asyncio.plugins.mission import MissionAsync, MissionItem, MissionPlan
from mavsdk.asyncio.plugins.offboard import (
    OffboardAsync,
    OffboardError,
    PositionNedYaw,
    VelocityNedYaw,
)
from mavsdk.asyncio.plugins.param import ParamAsync, ParamError
from mavsdk.asyncio.plugins.telemetry import TelemetryAsync

GOAL_DEG = 3e-5  # 3.3 m


async def armed(action: ActionAsync) -> None:
    """Arm; a ship whose flight loop has just begun again is not ready at once."""
    async with asyncio.timeout(60):
        while True:
            try:
                await action.arm()
            except ActionError:
                await asyncio.sleep(0.5)
            else:
                return


async def fly(port: str, found: dict[str, Any]) -> None:
    configuration = Configuration.create_with_component_type(ComponentType.GROUND_STATION)
    mavsdk = Mavsdk(configuration)
    await mavsdk.add_any_connection(f"udpout://127.0.0.1:{port}")
    system = await mavsdk.first_autopilot(60)
    action, telemetry = ActionAsync(system), TelemetryAsync(system)
    mission, offboard, param = MissionAsync(system), OffboardAsync(system), ParamAsync(system)
    await action.set_takeoff_altitude(2.0)
    await param.set_param_float("LIM_YAW_RATE", 0.35)
    found["yaw_rate"] = await param.get_param_float("LIM_YAW_RATE")
    found["cells"] = await param.get_param_int("BAT_CELLS")
    try:
        await param.set_param_float("LIM_SPEED", -1.0)
    except ParamError as error:
        found["speed"] = str(error)
    try:
        await action.takeoff()
    except ActionError as error:
        found["unarmed"] = str(error)
    home = await telemetry.home()
    geofence = GeofenceAsync(system)
    pad = Point(home.latitude_deg, home.longitude_deg)
    tree = Point(home.latitude_deg + 2e-4, home.longitude_deg)
    circles = [Circle(pad, 40.0, FenceType.INCLUSION), Circle(tree, 2.0, FenceType.EXCLUSION)]
    await geofence.upload_geofence(GeofenceData([], circles))
    found["circles"] = len((await geofence.download_geofence()).circles)
    await armed(action)
    await offboard.set_position_ned(PositionNedYaw(0.0, 0.0, -2.0, 0.0))
    try:
        await offboard.start()
    except OffboardError as error:
        found["on_ground"] = str(error)
    await action.takeoff()
    try:
        await action.goto_location(
            home.latitude_deg + 1e-3, home.longitude_deg, home.absolute_altitude_m + 2.0, 90.0
        )
    except ActionError as error:
        found["outside"] = str(error)
    await action.goto_location(
        home.latitude_deg + GOAL_DEG, home.longitude_deg, home.absolute_altitude_m + 2.0, 90.0
    )
    there = await telemetry.position()
    found["north_deg"] = there.latitude_deg - home.latitude_deg
    found["up_m"] = there.relative_altitude_m
    found["yaw_deg"] = (await telemetry.attitude_euler()).yaw_deg

    await offboard.set_position_ned(PositionNedYaw(2.0, 1.0, -2.0, 90.0))
    await offboard.start()
    seen: list[str] = []
    async with asyncio.timeout(60):
        while True:
            seen.append((await telemetry.flight_mode()).name)
            at = (await telemetry.position_velocity_ned()).position
            if math.hypot(at.north_m - 2.0, at.east_m - 1.0) < 0.3:
                break
            await asyncio.sleep(0.5)
    await asyncio.sleep(3.0)  # MAVSDK gives up 1.5 s after another mode
    seen.append((await telemetry.flight_mode()).name)
    found["place_modes"] = seen[seen.index("OFFBOARD") :]
    await offboard.set_velocity_ned(VelocityNedYaw(0.0, 0.4, 0.0, 90.0))
    await offboard.start()
    await asyncio.sleep(4.0)
    found["flight_mode"] = (await telemetry.flight_mode()).name
    found["east_mps"] = (await telemetry.position_velocity_ned()).velocity.east_m_s
    await offboard.stop()
    await action.land()
    found["in_air"] = await telemetry.in_air()

    items = [
        MissionItem(
            home.latitude_deg + north * 1e-5, home.longitude_deg, 2.0, math.nan, False, math.nan,
            math.nan, MissionItem.CameraAction.NONE, math.nan, math.nan, 1.0, math.nan, math.nan,
            MissionItem.VehicleAction.LAND if north == 0 else MissionItem.VehicleAction.NONE,
        )
        for north in (1, 2, 0)
    ]  # fmt: skip
    await mission.upload_mission(MissionPlan(items))
    down = await mission.download_mission()
    found["items"] = [
        round(1e5 * (one.latitude_deg - home.latitude_deg)) for one in down.mission_items
    ]
    await armed(action)
    await mission.start_mission()
    async with asyncio.timeout(120):
        while not await mission.is_mission_finished():
            await asyncio.sleep(0.5)
    async with asyncio.timeout(60):
        while await telemetry.armed():
            await asyncio.sleep(0.5)
    await action.terminate()


def main() -> None:
    found: dict[str, Any] = {}
    try:
        asyncio.run(asyncio.wait_for(fly(sys.argv[1], found), 280))
    except BaseException as error:
        found["error"] = repr(error)
    print(json.dumps(found), file=sys.stderr, flush=True)  # the library writes on the other
    os._exit(0)


main()
