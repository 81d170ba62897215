"""A lens over a grid of pixels: from a ray to a pixel and back.

Brown's model (D. C. Brown, "Close-range camera calibration", 1971): radial terms k1 to k3 and
tangential terms p1, p2, in the order and with the signs of OpenCV. Pixel (0, 0) has its middle at
(0, 0). Written apart from the flight side's lens, so that they cannot share a mistake.
"""

from functools import cached_property
from math import radians, tan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
_STEPS = 20  # of Newton: a 120 degree lens takes 6


class Optics:
    """width, height, cx, cy: pixels. fx, fy: pixels a radian. distortion: k1, k2, p1, p2, k3."""

    def __init__(
        self,
        *,
        width: int,
        height: int,
        fx: float,
        fy: float,
        cx: float,
        cy: float,
        distortion: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0),
    ) -> None:
        self.width, self.height = width, height
        self.fx, self.fy, self.cx, self.cy = fx, fy, cx, cy
        self.distortion = distortion

    @classmethod
    def of_view(cls, width: int, height: int, *, horizontal_fov_deg: float) -> "Optics":
        """Return an ideal lens with square pixels, its axis in the middle."""
        focal = 0.5 * width / tan(radians(0.5 * horizontal_fov_deg))
        return cls(
            width=width, height=height, fx=focal, fy=focal,
            cx=0.5 * (width - 1), cy=0.5 * (height - 1),
        )  # fmt: skip

    def pixels(self, points: ArrayLike) -> Array:
        """Return where points (..., 3) appear, (..., 2): x right, y down, z out of the lens.

        What is behind the lens or beside all that it can see appears far outside the picture.
        """
        xyz = np.asarray(points, dtype=float)
        depth = np.maximum(xyz[..., 2], 1e-6)
        x, y = xyz[..., 0] / depth, xyz[..., 1] / depth
        # Far out the polynomial folds back into the picture: keep to where it is one to one.
        limit = np.minimum(1.0, self._reach / np.maximum(np.hypot(x, y), 1e-9))
        x, y = _bent(x * limit, y * limit, self.distortion)
        return np.stack((self.fx * x / limit + self.cx, self.fy * y / limit + self.cy), axis=-1)

    @cached_property
    def _reach(self) -> float:
        """The largest tangent of an angle off the axis that the table of rays has."""
        x, y = self.rays
        return 1.2 * float(np.hypot(x, y).max())

    @cached_property
    def rays(self) -> tuple[Array, Array]:
        """x / z and y / z of the ray through each pixel's middle, with a row and a column more.

        Two arrays (height + 1, width + 1) of float32, by Newton's method on every 8th pixel's
        neighbourhood being smooth: all pixels at once.
        """
        x_px, y_px = np.meshgrid(np.arange(self.width + 1.0), np.arange(self.height + 1.0))
        x, y = self.unbent((x_px - self.cx) / self.fx, (y_px - self.cy) / self.fy)
        return x.astype(np.float32), y.astype(np.float32)

    def unbent(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the ray that the lens bends to (x, y), as tangents."""
        if not any(self.distortion):
            return x, y
        k1, k2, p1, p2, k3 = self.distortion
        u, v = x.copy(), y.copy()
        for _ in range(_STEPS):
            r2 = u * u + v * v
            radial = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
            slope = k1 + r2 * (2.0 * k2 + 3.0 * r2 * k3)  # d radial / d r2
            bent_x, bent_y = _bent(u, v, self.distortion)
            error_x, error_y = bent_x - x, bent_y - y
            xx = radial + 2.0 * u * u * slope + 2.0 * p1 * v + 6.0 * p2 * u
            yy = radial + 2.0 * v * v * slope + 6.0 * p1 * v + 2.0 * p2 * u
            xy = 2.0 * u * v * slope + 2.0 * p1 * u + 2.0 * p2 * v
            determinant = xx * yy - xy * xy
            du = (yy * error_x - xy * error_y) / determinant
            dv = (xx * error_y - xy * error_x) / determinant
            u -= du
            v -= dv
            if max(np.abs(du).max(), np.abs(dv).max()) < 1e-9:
                break
        return u, v


def _bent(
    x: Array, y: Array, distortion: tuple[float, float, float, float, float]
) -> tuple[Array, Array]:
    k1, k2, p1, p2, k3 = distortion
    r2 = x * x + y * y
    radial = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
    return (
        x * radial + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x),
        y * radial + p1 * (r2 + 2.0 * y * y) + 2.0 * p2 * x * y,
    )
