"""A simulated camera: the frame that its sensor makes of what the lens throws on it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from blimp.scene import Scenery
from blimp.sim.camera.optics import Optics
from blimp.sim.camera.render import Mount, PoseAt, Renderer, Shot

Array = NDArray[Any]

# Of a Sony IMX219 and its like: a pixel of 1.12 um holds some 4,700 electrons (Pagnutti et al.,
# "Laying the foundation to use Raspberry Pi 3 V2 camera module imagery", 2017), which 8 bits share.
_ELECTRONS_A_COUNT = 4700.0 / 256.0
_READ_NOISE = 0.3  # counts, at a gain of 1
NOMINAL_S = 0.01  # of exposure at gain 1: then white paper under 500 lux is just not too bright
DARK = 0.002  # of the lamps' light, which a covered lens lets through
_TARGET = 110.0  # the mean of a frame that the automatic exposure aims at
_POOL = 1 << 20  # random numbers, which the frames share
_BAND = 64  # rows
_SETTLED_S = (
    0.5  # after which the automatic exposure has followed the light without a frame of ours
)


class SimulatedCamera:
    """One camera on a ship. `render` is all that moves it: it has no clock.

    pose_at: where the ship's hull was at a time, world NED; it is asked for the span of each
    exposure. stand_m: the floor below the hull's middle of a ship on its pad, where NED is 0.
    readout_s: from first to last row of a rolling shutter; 0 has them all at once.
    exposure_s, gain: as set, or with `auto` as they follow the light, up to max_exposure_s and
    max_gain. vignetting: which share of the natural fall-off of light (cos^4) is left. black:
    counts where there is no light.
    """

    def __init__(
        self,
        scene: Scenery,
        optics: Optics,
        mount: Mount,
        pose_at: PoseAt,
        *,
        stand_m: float = 0.0,
        readout_s: float = 0.0,
        exposure_s: float = 0.008,
        gain: float = 1.0,
        auto: bool = False,
        max_exposure_s: float = 0.033,
        max_gain: float = 16.0,
        vignetting: float = 0.3,
        black: float = 4.0,
        noisy: bool = True,
        grey: bool = False,
        seed: int = 1,
    ) -> None:
        self.exposure_s, self.gain, self.auto = exposure_s, gain, auto
        self.light = 1.0  # of the lamps, over the scene's own
        self.covered = False
        self.fixed_exposure = self.fixed_gain = False  # one of them, where `auto` is on
        self.max_exposure_s, self.max_gain = max_exposure_s, max_gain
        self.readout_s = readout_s
        self.renderer = Renderer(scene, optics, mount, grey=grey)
        self._scene_light = scene.light
        self._pose_at = pose_at
        self._stand_m = stand_m
        self._black = black
        self._exposed_s = -np.inf
        self._noisy = noisy
        self._random = np.random.default_rng(seed)
        self._pool = self._random.standard_normal(_POOL, dtype=np.float32)
        x, y = (ray[:-1, :-1] for ray in optics.rays)
        fall = 1.0 / (1.0 + x * x + y * y) ** 2
        self._lens = (1.0 - vignetting * (1.0 - fall)).astype(np.float32)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.renderer.optics.width, self.renderer.optics.height

    def render(self, t_s: float) -> Array:
        """Return the frame whose exposure has its middle at `t_s`: (height, width, 3) of uint8,
        RGB, or (height, width) of a grey camera."""
        span_s = self.exposure_s + self.readout_s
        shot = Shot(t_s - 0.5 * span_s, self.exposure_s, self.readout_s)
        seen = self.renderer.render(self._on_floor, shot)
        if self.auto and t_s > self._exposed_s + _SETTLED_S:
            self._expose(float(seen[::8, ::8].mean()) * self._bright())
        frame = self._sensed(seen)
        if self.auto:
            self._exposed_s = t_s
            self._expose(float(frame[::8, ::8].mean()))
        return frame

    def _bright(self) -> float:
        """Counts of the sensor for one of what the lens throws on it."""
        light = (DARK if self.covered else 1.0) * self.light * self._scene_light
        return light * self.exposure_s / NOMINAL_S * self.gain

    def _on_floor(self, t_s: float) -> Any:
        (north, east, down), attitude = self._pose_at(t_s)
        return (north, east, min(down - self._stand_m, -0.01)), attitude

    def _sensed(self, seen: Array) -> Array:
        """Return the counts that light becomes: exposure, lens, noise, black level, white limit."""
        bright = np.float32(self._bright())
        counts = np.arange(256.0) * bright
        read = _READ_NOISE * self.gain
        sigmas = np.sqrt(read**2 + counts * self.gain / _ELECTRONS_A_COUNT).astype(np.float32)
        frame = np.empty(seen.shape, np.uint8)
        for first in range(0, len(seen), _BAND):
            rows = slice(first, first + _BAND)
            lens = self._lens[rows] if seen.ndim == 2 else self._lens[rows, :, None]
            band = seen[rows]
            signal = band * (lens * bright)
            if self._noisy:
                start = int(self._random.integers(_POOL))
                noise = _wrapped(self._pool, start, band.size).reshape(band.shape)
                signal += noise * sigmas[band]
            signal += np.float32(self._black + 0.5)
            np.clip(signal, 0.0, 255.0, out=signal)
            frame[rows] = signal
        return frame

    def _expose(self, mean: float) -> None:
        """Follow the light: a longer exposure first, which costs blur and no noise, then gain."""
        wanted = self.exposure_s * self.gain * min(4.0, max(0.25, _TARGET / max(mean, 1.0)))
        wanted = max(wanted, 20e-6)
        if not self.fixed_exposure:
            self.exposure_s = min(wanted, self.max_exposure_s)
        if not self.fixed_gain:
            self.gain = min(max(1.0, wanted / self.exposure_s), self.max_gain)


def _wrapped(pool: Array, start: int, count: int) -> Array:
    """Return `count` numbers of the pool from `start` on, from its beginning after its end."""
    if start + count <= len(pool):
        return pool[start : start + count]
    return np.take(pool, np.arange(start, start + count), mode="wrap")
