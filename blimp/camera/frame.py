"""One picture of the camera, and where pictures come from."""

from typing import Protocol

import msgspec

from blimp.distribution import needing

with needing("camera", "pictures need"):
    import numpy as np
    from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One picture.

    sequence: counts up by one a frame that the source has taken, those that nobody asked for too.
    t_s: the middle of the exposure, seconds of CLOCK_MONOTONIC. exposure_s, gain: as the camera
    reports them, 0 and 1 if it does not. pixels: uint8, (height, width, 3), RGB; never written to.
    """

    sequence: int
    t_s: float
    exposure_s: float
    gain: float
    pixels: Pixels


class Source(Protocol):
    """A camera that is open. Each method raises CameraError, which names the camera.

    size: width and height in pixels of every frame that `next_frame` returns.
    """

    size: tuple[int, int]

    def next_frame(self, timeout_s: float) -> Frame | None:
        """Return the newest frame that was not returned yet; None if none comes in time."""

    def still(self) -> Frame:
        """Take one picture at the sensor's full resolution."""

    def close(self) -> None:
        """Release the camera. Idempotent."""
