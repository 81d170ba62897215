"""A ship in lockstep whose camera really looks: pictures are drawn, tags and things found in them.

Without it the simulated camera makes the errors that such places have, and draws nothing, which is
a hundred times faster.
"""

from blimp.airframe import Airframe
from blimp.camera.frame import Frame
from blimp.camera.position import TagPosition, camera_row
from blimp.camera.sees import things
from blimp.camera.tag_map import TagMap
from blimp.clock import ManualClock
from blimp.errors import ConfigError
from blimp.rotation import integrate
from blimp.scene import Scenery
from blimp.sim.camera.camera import SimulatedCamera
from blimp.sim.camera.optics import Optics
from blimp.sim.camera.render import Mount, Pose
from blimp.sim.chips.camera import LATENCY_S, Camera
from blimp.sim.world import World
from blimp.types import CameraPose


def let_see(
    world: World,
    airframe: Airframe,
    scene: Scenery,
    *,
    tag_map: TagMap | None = None,
    optics: Optics | None = None,
    mount: Mount | None = None,
    exposure_s: float = 0.01,
    seed: int = 1,
) -> SimulatedCamera:
    """Let the simulated camera of this ship look at the scene from now on, and return it.

    It looks for the scene's tags, and for what its row has in `sees` and `detector`; balloons of
    the `renderer` may move. tag_map: what the ship believes, the scene's own tags by default.
    optics, mount: what the world has, if they are not as the airframe says. Raises ConfigError.
    """
    row, twin = camera_row(airframe), world.electronics.messages
    if row is None or not isinstance(twin, Camera):
        raise ConfigError(f"airframe {airframe.name} has no camera")
    options, tags = row[1], tag_map or TagMap(tags=scene.tag)
    place = TagPosition(
        options, stand_m=airframe.stand_m, send=lambda _: None, tag_map=tags if tags.tags else None
    )

    def send(data: bytes) -> None:
        twin.send(data, after_s=LATENCY_S)

    steps = things(options, send=send, clock=world.clock or ManualClock())

    def pose_at(t_s: float) -> Pose:
        """Within an exposure nothing accelerates."""
        now, ahead_s = world.truth, t_s - world.timeline.now_s
        north, east, down = (
            x + ahead_s * v for x, v in zip(now.position_ned_m, now.velocity_ned_mps, strict=True)
        )
        return (north, east, down), integrate(now.attitude, now.rates_body_radps, ahead_s)

    wide_deg = options.horizontal_fov_deg
    camera = SimulatedCamera(
        scene,
        optics or Optics.of_view(options.width, options.height, horizontal_fov_deg=wide_deg),
        mount or Mount(options.position_m, options.roll_deg, options.pitch_deg, options.yaw_deg),
        pose_at,
        stand_m=airframe.stand_m,
        exposure_s=exposure_s,
        grey=not steps,
        seed=seed,
    )

    def look(t_s: float) -> CameraPose:
        frame = Frame(
            sequence=0, t_s=t_s, exposure_s=camera.exposure_s, gain=camera.gain,
            pixels=camera.render(t_s),
        )  # fmt: skip
        for step in steps:
            step.take(frame)
        return place.look(frame)[0]

    twin.look = look
    return camera
