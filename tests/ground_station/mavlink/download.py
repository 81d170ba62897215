"""A program of MAVSDK that lists and downloads a ship's logs, and prints what it found as JSON.

Arguments: the port, and a directory. A program of its own, as `client.py` beside it.
"""

import asyncio
import json
import os
import sys
from typing import Any

from mavsdk.asyncio import ComponentType, Configuration, Mavsdk
from mavsdk.asyncio.plugins.ftp import FtpAsync


async def download(port: str, directory: str, found: dict[str, Any]) -> None:
    configuration = Configuration.create_with_component_type(ComponentType.GROUND_STATION)
    mavsdk = Mavsdk(configuration)
    await mavsdk.add_any_connection(f"udpout://127.0.0.1:{port}")
    ftp = FtpAsync(await mavsdk.first_autopilot(60))
    for path in ("/", "/logs"):
        found[path] = [one.name for one in (await ftp.list_directory(path)).entries]
    for burst in (False, True):
        os.makedirs(os.path.join(directory, str(burst)))
        async for _ in ftp.download(f"/logs/{found['/logs'][0]}", f"{directory}/{burst}", burst):
            pass


def main() -> None:
    found: dict[str, Any] = {}
    try:
        asyncio.run(asyncio.wait_for(download(sys.argv[1], sys.argv[2], found), 60))
    except BaseException as error:
        found["error"] = repr(error)
    print(json.dumps(found), file=sys.stderr, flush=True)  # the library writes on the other
    os._exit(0)


main()
