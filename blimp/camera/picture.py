"""The small picture for the page and the log: a JPEG, made only when somebody asks for one.

In software: of 640 x 480 pixels it takes Pillow 0.6 ms of an x86 core (`python -m
benchmarks.camera`). picamera2's hardware encoder, which a Pi 5 lacks, would need a second stream in
YUV for it, and encodes each frame, asked for or not.
"""

import threading
from collections.abc import Callable
from io import BytesIO
from typing import Any

from blimp.camera.frame import Frame
from blimp.camera.pipeline import StepResult
from blimp.distribution import needing
from blimp.errors import CameraError

with needing("camera", "pictures need"):
    from PIL import Image

WIDTH, QUALITY = 320, 50
MAX_BYTES = 32 * 1024  # noise at 320 x 240 in this quality has 24 KiB


class Picturer:
    """Makes pictures of the newest frame; of the same frame only one.

    newest: as Pipeline's. seen: by step, what is drawn over the picture. view: how the camera is
    mounted and how wide it looks, for a horizon.
    """

    def __init__(
        self,
        newest: Callable[[int, float], Frame | None],
        seen: Callable[[], dict[str, StepResult]],
        *,
        view: dict[str, float] | None = None,
    ) -> None:
        self._newest, self._seen, self._view = newest, seen, view
        self._lock = threading.Lock()
        self._last: tuple[Frame, bytes] | None = None

    def picture(self, after: int, timeout_s: float) -> dict[str, Any]:
        """Return a picture of a frame other than `after`, and what was seen, as plain data.

        Coordinates are pixels of the full frame. Raises CameraError if no frame comes in time.
        """
        frame = self._newest(after, timeout_s)
        if frame is None:
            raise CameraError(f"no new frame in {timeout_s:g} s")
        height, width = frame.pixels.shape[:2]
        seen = {
            name: {"sequence": one.sequence, "content": one.content}
            for name, one in self._seen().items()
            if abs(one.t_s - frame.t_s) < 1.0
        }
        about = {"sequence": frame.sequence, "t_s": frame.t_s, "size": [width, height]}
        about |= {} if self._view is None else {"view": self._view}
        return {"about": about | {"seen": seen}, "jpeg": self._jpeg(frame)}

    def _jpeg(self, frame: Frame) -> bytes:
        with self._lock:
            if self._last is None or self._last[0] is not frame:
                self._last = (frame, small_jpeg(frame))
            return self._last[1]


def small_jpeg(frame: Frame) -> bytes:
    """Return the frame as a JPEG of at most WIDTH columns and MAX_BYTES bytes."""
    image = Image.fromarray(frame.pixels)
    if (factor := image.width // WIDTH) > 1:
        image = image.reduce(factor)
    for quality in (QUALITY, QUALITY // 2, QUALITY // 5):
        out = BytesIO()
        image.save(out, "JPEG", quality=quality)
        if out.tell() <= MAX_BYTES:
            break
    else:
        raise CameraError(f"a picture of {out.tell()} bytes, more than {MAX_BYTES}")
    return out.getvalue()
