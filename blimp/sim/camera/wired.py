"""A camera of a simulated ship, in this process or behind the world's socket: its frames.

What is wrong with it is asked of the world with each frame, as where the ship was meanwhile.
"""

from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blimp.rotation import normalize
from blimp.sim.camera.camera import SimulatedCamera
from blimp.sim.camera.optics import Optics
from blimp.sim.camera.render import Mount, Pose
from blimp.sim.electrical import CameraPlace, Cameras, CameraSight, CameraState, Electrical

Array = NDArray[Any]
_KEPT = 400  # poses, of 4 to 5 ms each


class Exposed(NamedTuple):
    """One frame. t_s: the middle of its exposure (of the middle row), on the ship's clock."""

    t_s: float
    exposure_s: float
    gain: float
    pixels: Array


class Track:
    """Where the ship was lately; between two known poses it moved straight."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._poses: list[Pose] = []

    @property
    def newest_s(self) -> float:
        return self._times[-1] if self._times else -1.0

    def add(self, sight: CameraSight) -> None:
        for t_s, position, attitude in sight.poses:
            if t_s > self.newest_s:
                self._times.append(t_s)
                self._poses.append((position, attitude))
        del self._times[:-_KEPT], self._poses[:-_KEPT]

    def at(self, t_s: float) -> Pose:
        """Return the pose at a time of the world; before and after what is known, the nearest."""
        i = bisect_right(self._times, t_s)
        if i == 0 or i == len(self._times):
            return self._poses[min(i, len(self._times) - 1)]
        before_s, after_s = self._times[i - 1], self._times[i]
        share = (t_s - before_s) / (after_s - before_s)
        (p, q), (r, s) = self._poses[i - 1], self._poses[i]
        sign = 1.0 if sum(a * b for a, b in zip(q, s, strict=True)) >= 0.0 else -1.0
        n, e, d = (a + share * (b - a) for a, b in zip(p, r, strict=True))
        w, x, y, z = ((1.0 - share) * a + share * sign * b for a, b in zip(q, s, strict=True))
        return (n, e, d), normalize((w, x, y, z))


class WiredCamera:
    """Camera `number` of the ship behind these wires; opened with its first frame.

    size, rate_hz: of the frames; at first the size is the airframe's. Raises OSError: ENODEV
    without such a camera, EBUSY if it is open elsewhere.
    """

    def __init__(self, wires: Electrical, number: int = 0) -> None:
        self._wires, self._number = wires, number
        self.cameras: Cameras = wires.cameras()
        self._track = Track()
        self._zero_s = 0.0
        self.state = CameraState()
        self._balloons: tuple[Any, ...] = ()
        self._look()
        self.place: CameraPlace = self.cameras.places[number]
        self.size = (self.place.width, self.place.height)
        self.rate_hz = 15.0
        self.exposure_s, self.gain, self.auto = 0.008, 1.0, True
        self.fixed_exposure = self.fixed_gain = False  # what `auto` leaves as it is
        self._random = np.random.default_rng(1)
        self._drawn: dict[tuple[int, int, float], SimulatedCamera] = {}
        self._held: Array | None = None  # of a frozen camera

    def _look(self) -> None:
        sight = self._wires.camera(self._number, self._track.newest_s)
        self._track.add(sight)
        self._zero_s, self.state, self._balloons = sight.zero_s, sight.state, sight.balloons

    def close(self) -> None:
        """Let others open it. Idempotent."""
        self._wires.camera_close(self._number)

    def expose(self, t_s: float) -> Exposed | None:
        """Return the frame whose exposure has its middle at `t_s`, on the ship's clock.

        None if it is lost or the camera is dead. The exposure must have ended.
        """
        self._look()
        state = self.state
        if state.no_answer or self._random.random() < state.dropped:
            return None
        width, height = self.size
        if state.other_size:
            width, height = width // 2, height // 2
        exposure_s, gain = self.exposure_s, self.gain
        if state.frozen and self._held is not None:
            pixels = self._held
        elif state.garbage:
            pixels = self._random.integers(0, 256, (height, width, 3), np.uint8)
        elif state.black:
            pixels = np.zeros((height, width, 3), np.uint8)
        else:
            camera = self._camera(width, height)
            camera.light, camera.covered = state.light, state.covered
            camera.exposure_s, camera.gain, camera.auto = exposure_s, gain, self.auto
            camera.fixed_exposure, camera.fixed_gain = self.fixed_exposure, self.fixed_gain
            camera.max_exposure_s = min(1.0 / self.rate_hz, 0.033)
            camera.renderer.balloons = list(self._balloons)
            pixels = camera.render(t_s)
            self.exposure_s, self.gain = camera.exposure_s, camera.gain
        self._held = pixels
        return Exposed(t_s, exposure_s, gain, pixels)

    def _camera(self, width: int, height: int) -> SimulatedCamera:
        key = width, height, round(self.state.focal, 4)
        camera = self._drawn.get(key)
        if camera is None:
            if len(self._drawn) >= 3:  # a focal length that drifts has a new one each frame
                self._drawn.pop(next(iter(self._drawn)))
            place = self.place
            camera = self._drawn[key] = SimulatedCamera(
                self.cameras.scene,
                optics_of(place, width, height, focal=self.state.focal),
                Mount(place.position_m, *place.rotation_deg),
                lambda t_s: self._track.at(t_s - self._zero_s),
                stand_m=place.stand_m,
                readout_s=place.readout_s,
            )
        return camera


def optics_of(place: CameraPlace, width: int, height: int, *, focal: float = 1.0) -> Optics:
    """Return the lens on a picture of this size: the largest part of the sensor of its shape."""
    own = Optics(
        width=place.width, height=place.height, fx=place.fx, fy=place.fy, cx=place.cx, cy=place.cy,
        distortion=place.distortion,
    )  # fmt: skip
    full_w, full_h = place.full
    # Pixels of the sensor that one of the picture covers, in the airframe's size and in this.
    before = min(full_w / own.width, full_h / own.height)
    after = min(full_w / width, full_h / height)
    by = before / after
    return Optics(
        width=width, height=height, fx=own.fx * by * focal, fy=own.fy * by * focal,
        cx=(own.cx - 0.5 * (own.width - 1)) * by + 0.5 * (width - 1),
        cy=(own.cy - 0.5 * (own.height - 1)) * by + 0.5 * (height - 1),
        distortion=own.distortion,
    )  # fmt: skip
