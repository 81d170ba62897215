"""Whether the picture can be one of the world: light, focus, and that it changes."""

from typing import Any

import numpy as np

from blimp.camera.frame import Frame

# Means, 0 to 255. The sensors' black level is subtracted, so a covered lens gives its noise alone,
# 1 to 3 at full gain; exposure control holds a lit scene at a quarter of the range or more.
BLACK, WHITE = 6.0, 250.0
STILL_S = 2.0  # two frames of a sensor are never equal: its noise alone is more than one step
_COARSE = 8  # every 8th pixel of every 8th row tells light and standing still


class Look:
    """A step: once a second, of every 8th pixel, and the focus of the middle of the picture."""

    name, period_s = "look", 1.0

    def __init__(self) -> None:
        self.problem = ""
        self.brightness: float | None = None
        self.focus: float | None = None
        self._before = np.zeros(0, np.uint8)
        self._changed_s: float | None = None

    def take(self, frame: Frame) -> None:
        coarse = np.ascontiguousarray(frame.pixels[::_COARSE, ::_COARSE, 1])
        if self._changed_s is None or not np.array_equal(coarse, self._before):
            self._before, self._changed_s = coarse, frame.t_s
        self.brightness = round(float(coarse.mean()), 1)
        self.focus = round(sharpness(frame.pixels), 1)
        self.problem = self._judge(frame.t_s - self._changed_s)

    def _judge(self, unchanged_s: float) -> str:
        brightness = self.brightness or 0.0
        if brightness < BLACK:
            return (
                f"black (mean {brightness:.0f} of 255): the lens is covered, or there is no light"
            )
        if brightness > WHITE:
            return f"white (mean {brightness:.0f} of 255): light falls straight into the lens"
        if unchanged_s > STILL_S:
            return f"the same picture for {unchanged_s:.0f} s: the camera is frozen"
        return ""


def sharpness(pixels: Any) -> float:
    """Return the variance of the Laplacian of the green values in the middle half, squared counts.

    Source: Pech-Pacheco et al., Diatom autofocusing in brightfield microscopy, ICPR 2000.
    """
    height, width = pixels.shape[:2]
    middle = pixels[height // 4 : 3 * height // 4, width // 4 : 3 * width // 4, 1].astype(np.int32)
    laplacian = (
        middle[:-2, 1:-1] + middle[2:, 1:-1] + middle[1:-1, :-2] + middle[1:-1, 2:]
        - 4 * middle[1:-1, 1:-1]
    )  # fmt: skip
    return float(laplacian.var())
