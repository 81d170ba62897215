"""A ship in lockstep whose camera really looks: pictures are drawn, tags found, places solved.

Without it the simulated camera makes the errors that such places have, and draws nothing, which is
a hundred times faster.
"""

from blimp.airframe import Airframe, CameraRow, Device
from blimp.camera.frame import Frame
from blimp.camera.position import TagPosition, camera_row, lens_of
from blimp.camera.sees import Sees, detectors
from blimp.camera.tag_map import TagMap
from blimp.clock import ManualClock
from blimp.errors import ConfigError
from blimp.rotation import integrate
from blimp.scene import Scenery
from blimp.sim.camera.camera import SimulatedCamera
from blimp.sim.camera.optics import Optics
from blimp.sim.camera.render import Mount
from blimp.sim.chips.camera import LATENCY_S, Camera
from blimp.sim.world import World
from blimp.types import CameraPose, Quaternion, Vec3


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

    tag_map: what the ship believes, the scene's own tags by default. optics, mount: what the world
    has, if they are not as the airframe says. Raises ConfigError.
    """
    _, options, twin = _eye(world, airframe)
    tags = tag_map or TagMap(tags=scene.tag)
    step = TagPosition(options, stand_m=airframe.stand_m, send=lambda _: None, tag_map=tags)

    camera = _camera(
        world, airframe, scene, options, optics, mount, exposure_s=exposure_s, grey=True, seed=seed
    )

    def look(t_s: float) -> CameraPose:
        return step.look(_frame(camera, t_s))[0]

    twin.look = look
    return camera


def let_find(
    world: World, airframe: Airframe, scene: Scenery, *, exposure_s: float = 0.01, seed: int = 1
) -> SimulatedCamera:
    """Let the simulated camera look for what its row has in `sees` and `detector`.

    `renderer.balloons` of what this returns may move. Raises ConfigError.
    """
    row, options, twin = _eye(world, airframe)
    camera = _camera(
        world, airframe, scene, options, None, None, exposure_s=exposure_s, grey=False, seed=seed
    )

    def send(data: bytes) -> None:
        twin.send(data, after_s=LATENCY_S)

    steps = [
        Sees(detector, options=options, lens=lens_of(options), send=send, name=name)
        for name, detector in detectors(options, clock=world.clock or ManualClock())
    ]

    def look(t_s: float) -> CameraPose:
        frame = _frame(camera, t_s)
        for step in steps:
            step.take(frame)
        return CameraPose(boot_id="", sequence=0, exposed_s=t_s, reason=f"no tags for {row.name}")

    twin.look = look
    return camera


def _eye(world: World, airframe: Airframe) -> tuple[Device, CameraRow, Camera]:
    """Return the camera's row, its options, and its twin. Raises ConfigError if it has none."""
    found, twin = camera_row(airframe), world.electronics.messages
    if found is None or not isinstance(twin, Camera):
        raise ConfigError(f"airframe {airframe.name} has no camera")
    return *found, twin


def _frame(camera: SimulatedCamera, t_s: float) -> Frame:
    return Frame(
        sequence=0, t_s=t_s, exposure_s=camera.exposure_s, gain=camera.gain,
        pixels=camera.render(t_s),
    )  # fmt: skip


def _camera(
    world: World,
    airframe: Airframe,
    scene: Scenery,
    options: CameraRow,
    optics: Optics | None,
    mount: Mount | None,
    *,
    exposure_s: float,
    grey: bool,
    seed: int,
) -> SimulatedCamera:
    def pose_at(t_s: float) -> tuple[Vec3, Quaternion]:
        """Within an exposure nothing accelerates."""
        now, ahead_s = world.truth, t_s - world.timeline.now_s
        north, east, down = (
            x + ahead_s * v for x, v in zip(now.position_ned_m, now.velocity_ned_mps, strict=True)
        )
        return (north, east, down), integrate(now.attitude, now.rates_body_radps, ahead_s)

    return SimulatedCamera(
        scene,
        optics
        or Optics.of_view(
            options.width, options.height, horizontal_fov_deg=options.horizontal_fov_deg
        ),
        mount or Mount(options.position_m, options.roll_deg, options.pitch_deg, options.yaw_deg),
        pose_at,
        stand_m=airframe.stand_m,
        exposure_s=exposure_s,
        grey=grey,
        seed=seed,
    )
