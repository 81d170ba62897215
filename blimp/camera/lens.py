"""A camera's lens: the pinhole with the distortion that OpenCV and ROS write into their files.

Source: docs.opencv.org, calib3d, "distorted pinhole camera". Camera axes: x to the right of the
image, y down, z out of the lens. The centre of the first pixel is (0, 0).
"""

import tomllib
from math import atan, degrees, radians, tan
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from blimp.errors import ConfigError
from blimp.suggest import with_suggestion

Array = np.ndarray[Any, np.dtype[np.float64]]

Pixels = Annotated[float, Meta(ge=-20_000.0, le=20_000.0)]
Focal = Annotated[float, Meta(ge=10.0, le=20_000.0)]
Count = Annotated[int, Meta(ge=16, le=10_000)]
Coefficient = Annotated[float, Meta(ge=-10.0, le=10.0)]
NUMBERS = ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3")
MAX_BYTES = 10_000
_ITERATIONS = 30  # the distortion of a lens of 120 degrees is undone to .001 pixels in 20
_BACK_PX = 0.05  # a point that does not come back to itself is outside what the model describes


class Lens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Focal lengths and centre in pixels; distortion radial, k, and tangential, p.

    focal_sigma: one standard deviation of the focal length, as a share of it: of a data sheet's
    lens, which is within 1 % evenly, or as `blimp camera calibrate` has found it.
    """

    width: Count
    height: Count
    fx: Focal
    fy: Focal
    cx: Pixels
    cy: Pixels
    k1: Coefficient = 0.0
    k2: Coefficient = 0.0
    p1: Coefficient = 0.0
    p2: Coefficient = 0.0
    k3: Coefficient = 0.0
    focal_sigma: Annotated[float, Meta(ge=0.0, le=0.2)] = 0.006

    @property
    def numbers(self) -> Array:
        """What a calibration finds, (9,), in the order of NUMBERS."""
        return np.array([getattr(self, name) for name in NUMBERS])

    @property
    def horizontal_fov_deg(self) -> float:
        return 2.0 * degrees(atan(0.5 * self.width / self.fx))

    def distort(self, rays: Array) -> Array:
        """Return the pixels (n, 2) of the rays (n, 2), x and y at z = 1."""
        return distorted(rays, self.numbers)

    def project(self, points_cam: Array) -> Array:
        """Return the pixels (n, 2) of points (n, 3) in camera axes, m; NaN behind the camera."""
        z = np.where(points_cam[:, 2] > 1e-6, points_cam[:, 2], np.nan)
        return self.distort(points_cam[:, :2] / z[:, None])

    def undistort(self, points_px: Array) -> Array:
        """Return the rays (n, 2), x and y at z = 1, that make these pixels (n, 2).

        NaN where the polynomial has no answer: outside of the image that it was fitted to.
        """
        centre, focal = np.array((self.cx, self.cy)), np.array((self.fx, self.fy))
        wanted: Array = (np.asarray(points_px, dtype=np.float64) - centre) / focal
        rays: Array = wanted
        if not any((self.k1, self.k2, self.p1, self.p2, self.k3)):
            return rays
        with np.errstate(all="ignore"):
            for _ in range(_ITERATIONS):
                rays = rays + wanted - (self.distort(rays) - centre) / focal
            wrong_px = np.abs(self.distort(rays) - points_px).max(axis=1)
            rays[~(wrong_px < _BACK_PX)] = np.nan
        return rays


def distorted(rays: Array, numbers: Array) -> Array:
    """Return the pixels (..., 2) of rays (..., 2) through the lens of these NUMBERS."""
    fx, fy, cx, cy, k1, k2, p1, p2, k3 = numbers
    x, y = rays[..., 0], rays[..., 1]
    r2 = x * x + y * y
    radial = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
    u = x * radial + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x)
    v = y * radial + p1 * (r2 + 2.0 * y * y) + 2.0 * p2 * x * y
    return np.stack((fx * u + cx, fy * v + cy), axis=-1)


def of_view(width: int, height: int, horizontal_fov_deg: float) -> Lens:
    """Return the lens without distortion that sees so wide, as a data sheet says it."""
    focal = 0.5 * width / tan(0.5 * radians(horizontal_fov_deg))
    return Lens(
        width=width, height=height, fx=focal, fy=focal, cx=0.5 * (width - 1), cy=0.5 * (height - 1)
    )


def scaled(lens: Lens, width: int, height: int) -> Lens:
    """Return the lens of the same picture in another size.

    Raises ConfigError if the picture has another shape: then it is another part of the view.
    """
    by = width / lens.width
    if abs(lens.height * by - height) > 1.0:
        raise ConfigError(
            f"lens of {lens.width} x {lens.height} pixels: a picture of {width} x {height} has "
            "another shape"
        )
    return msgspec.structs.replace(
        lens, width=width, height=height, fx=lens.fx * by, fy=lens.fy * by,
        cx=(lens.cx + 0.5) * by - 0.5, cy=(lens.cy + 0.5) * by - 0.5,
    )  # fmt: skip


def load(path: str | Path) -> Lens:
    """Read a lens file (TOML). Raises ConfigError naming the file, the key and the limit."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        return msgspec.convert(tomllib.loads(data.decode("utf-8")), Lens)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"lens {path}: {with_suggestion(str(error), Lens)}") from error


def as_toml(lens: Lens) -> str:
    """Write a lens as the file that `load` reads."""
    fields = msgspec.structs.asdict(lens).items()
    return "".join(f"{name} = {round(value, 6):.9g}\n" for name, value in fields)
