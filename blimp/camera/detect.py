"""Printed tags in a picture: AprilTag 3's own detector, on one core.

Source: Krogius, Haggenmiller, Olson, "Flexible Layouts for Fiducial Tags" (2019).
"""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from blimp.camera.frame import Pixels
from blimp.camera.lens import Array

MAX_HAMMING = 1  # bits put right: with two, a frame an hour of carpet has a tag that is none
MIN_MARGIN = 25.0  # of grey between black and white cells; noise alone reaches 15
MIN_SIDE_PX = 10.0  # a cell and a quarter a pixel: what is smaller is a guess
_SLOW = 0.8  # of the budget; above it every second pixel must do
_FAST = 0.15  # of the budget, decimated: four times the work has room again
_SHARE = 0.3  # of the newest frame in the mean of what one takes


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    """One tag in the picture. corners_px: (4, 2) in the order of `tag_map.CORNERS`.

    coarse: found on every second pixel, so its corners are less sure.
    """

    family: str
    id: int
    corners_px: Array
    coarse: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.family, self.id


class TagDetector:
    """Finds the tags of these families. It keeps the detector's tables; use it from one thread.

    budget_s: of a frame. If full resolution takes longer, it looks at every second pixel, until
    there is time again. None: always at full resolution.
    """

    def __init__(
        self,
        families: Iterable[str],
        *,
        budget_s: float | None = None,
        timer: Callable[[], float] = perf_counter,
    ) -> None:
        from pyapriltags import Detector

        self._detector: Any = Detector(
            families=" ".join(families), nthreads=1, quad_decimate=1.0, decode_sharpening=0
        )
        self._budget_s = budget_s
        self._timer = timer
        self._took_s = 0.0
        self.coarse = False

    def detect(self, pixels: Pixels) -> tuple[Detection, ...]:
        """Return what is in a picture, grey (height, width) or RGB, of which green is looked at."""
        grey = np.ascontiguousarray(pixels if pixels.ndim == 2 else pixels[:, :, 1])
        began_s = self._timer()
        self._detector.tag_detector_ptr.contents.quad_decimate = 2.0 if self.coarse else 1.0
        found = self._detector.detect(grey)
        coarse = self.coarse
        self._adapt(self._timer() - began_s)
        return tuple(
            Detection(
                family=one.tag_family.decode(),
                id=one.tag_id,
                # AprilTag counts from a pixel's corner, cameras from its middle.
                corners_px=one.corners - 0.5,
                coarse=coarse,
            )
            for one in found
            if one.hamming <= MAX_HAMMING
            and one.decision_margin >= MIN_MARGIN
            and sides_px(one.corners).min() >= MIN_SIDE_PX
        )

    def _adapt(self, took_s: float) -> None:
        if self._budget_s is None:
            return
        self._took_s += _SHARE * (took_s - self._took_s)
        wanted = self._took_s > (_FAST if self.coarse else _SLOW) * self._budget_s
        if wanted != self.coarse:
            self.coarse, self._took_s = wanted, 0.0


def sides_px(corners: Array) -> Array:
    """Return the lengths of the four sides between corners (4, 2)."""
    found: Array = np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1)
    return found
