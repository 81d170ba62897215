"""Six tasks share two cameras: each runs once one is free, and the camera always comes back.

First, in another terminal: `python -m blimp.queue worker -A ground_station.examples.leases:app`.
"""

import os

from blimp.queue import TaskApp, TaskContext

URL = os.environ.get("BROKER_URL", "redis://localhost/0")
CAMERAS = ("front", "below")

app = TaskApp("studio", broker=URL, result_backend=URL)
app.pools.declare("camera", ttl_s=30.0)  # a killed worker's camera is free again after that


@app.task(name="studio.photograph", requires="camera", bind=True, idempotent=True)
def photograph(context: TaskContext, what: str) -> tuple[str, str]:
    assert context.grant is not None  # `requires` sees to it
    context.grant.check()  # raises if it is lost: another task may have the camera
    return what, context.grant.resource


def main() -> None:
    for camera in CAMERAS:
        app.pools["camera"].add(camera)  # the server keeps it
    sent = [photograph.delay(f"picture {number}") for number in range(6)]
    for one in sent:
        what, camera = one.get(timeout=60)
        print(f"{what}: {camera}")


if __name__ == "__main__":
    main()
