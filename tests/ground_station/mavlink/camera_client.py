"""A program of MAVSDK that uses a ship's camera, and prints what it found; argument: the port."""

import asyncio
import json
import os
import sys
from typing import Any

from mavsdk.asyncio import ComponentType, Configuration, Mavsdk
from mavsdk.asyncio.plugins.camera import CameraAsync, Mode
from mavsdk.asyncio.plugins.camera.camera import CameraError


async def use(port: str, found: dict[str, Any]) -> None:
    configuration = Configuration.create_with_component_type(ComponentType.GROUND_STATION)
    mavsdk = Mavsdk(configuration)
    await mavsdk.add_any_connection(f"udpout://127.0.0.1:{port}")
    system = await mavsdk.first_autopilot(30)
    camera = CameraAsync(system)
    async for listed in camera.subscribe_camera_list():
        if listed.cameras:
            (one,) = listed.cameras
            found["component"] = one.component_id
            found["model"] = [one.vendor_name, one.model_name]
            found["resolution"] = [
                one.horizontal_resolution_px, one.vertical_resolution_px,
            ]  # fmt: skip
            break
    number = found["component"]
    captured: asyncio.Queue[Any] = asyncio.Queue()

    async def listen() -> None:
        async for info in camera.subscribe_capture_info():
            captured.put_nowait(info)

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0.2)
    await camera.set_mode(number, Mode.PHOTO)
    await camera.take_photo(number)
    info = await asyncio.wait_for(captured.get(), 10)
    found["captured"] = [info.is_success, info.index, info.file_url]
    found["place"] = [info.position.latitude_deg, info.position.longitude_deg]
    await camera.start_photo_interval(number, 2.0)
    several = [await asyncio.wait_for(captured.get(), 10) for _ in range(4)]
    found["series"] = [[one.is_success, one.index, one.file_url] for one in several]
    await camera.stop_photo_interval(number)
    try:
        await camera.start_video(number)
    except CameraError as error:
        found["video"] = str(error)
    listening.cancel()


async def main() -> None:
    found: dict[str, Any] = {}
    try:
        async with asyncio.timeout(60):
            await use(sys.argv[1], found)
    except BaseException as error:
        found["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(found), file=sys.stderr, flush=True)
    os._exit(0)


asyncio.run(main())
