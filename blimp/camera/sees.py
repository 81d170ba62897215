"""What is in the picture: a step that finds things and tells the flight process, one datagram each.

Colours without a network, and anything else by a class of your own:

    [[device]]
    chip = "imx296"
    options = { pitch_deg = 0.0, sees = ["red"], detector = "my_model:Balloons" }

`Balloons()` is made once, in the camera's process; its `find(frame)` returns a list of SeenBox.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from math import isfinite
from typing import Any, Protocol

import msgspec
import numpy as np

from blimp.actions import KIND
from blimp.airframe import CameraRow
from blimp.camera.blobs import HUES, ColourBlobs, SeenBox
from blimp.camera.detect import TagDetector, sides_px
from blimp.camera.frame import Frame
from blimp.camera.lens import Array, Lens
from blimp.camera.pose import Mounted
from blimp.camera.position import lens_of
from blimp.clock import Clock
from blimp.errors import CameraError, ConfigError
from blimp.suggest import suggestion
from blimp.types import SeenSample, Sighting

MOST = 16  # of one picture: a datagram stays small
SLOW_S = 0.5  # an answer of a later time is of no use in flight
GIVES_UP = 5  # pictures in a row
TAGS = "tags"  # beside colours in `sees`: each tag is a thing of the kind "tag-NUMBER"
_SEEN = msgspec.msgpack.Encoder()


class Detector(Protocol):
    """Finds things in pictures."""

    def find(self, frame: Frame, /) -> Sequence[SeenBox]:
        """Return what is in the frame, in pixels of it."""


def load(name: str) -> Detector:
    """Make somebody's own detector, "package.module:Class". Raises ConfigError saying why not."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ConfigError(f'detector = {name!r}: must be "package.module:Class"')
    try:
        made = getattr(import_module(module), attribute)()
    except Exception as error:  # it is anybody's code
        raise ConfigError(f"detector = {name!r}: {type(error).__name__}: {error}") from error
    if not callable(getattr(made, "find", None)):
        raise ConfigError(f"detector = {name!r}: has no find(frame)")
    found: Detector = made
    return found


class TagBoxes:
    """Printed tags of tag36h11 as things in the picture; their size is the mean of their sides."""

    def __init__(self) -> None:
        self._detector = TagDetector(("tag36h11",))

    def find(self, frame: Frame, /) -> list[SeenBox]:
        found = []
        for one in self._detector.detect(frame.pixels):
            x_px, y_px = one.corners_px.mean(axis=0)
            side_px = float(sides_px(one.corners_px).mean())
            found.append(
                SeenBox(
                    kind=f"tag-{one.id}", x_px=float(x_px), y_px=float(y_px),
                    width_px=side_px, height_px=side_px,
                )
            )  # fmt: skip
        return found


class OwnDetector:
    """Somebody's detector, which may raise, be slow, or return anything.

    After GIVES_UP failures in a row it is asked no more. It has the step's thread for itself, so
    one that does not return stops nothing else.
    """

    def __init__(self, name: str, *, clock: Clock, detector: Detector | None = None) -> None:
        self.name = name
        self._clock = clock
        self._detector = detector or load(name)
        self._failures = 0

    @property
    def is_off(self) -> bool:
        return self._failures >= GIVES_UP

    def find(self, frame: Frame, /) -> list[SeenBox]:
        """Return what it found. Raises CameraError with what is wrong; none once it is off."""
        if self.is_off:
            return []
        began_s = self._clock.now_s()
        try:
            found = _checked(self._detector.find(frame), frame)
            took_s = self._clock.now_s() - began_s
            if took_s > SLOW_S:
                raise ValueError(f"took {took_s:.1f} s, the limit is {SLOW_S:g} s")
        except Exception as error:  # it is anybody's code
            self._failures += 1
            off = f"; off after {GIVES_UP} in a row" if self.is_off else ""
            raise CameraError(f"{self.name}: {type(error).__name__}: {error}{off}") from error
        self._failures = 0
        return found


def _checked(found: Any, frame: Frame) -> list[SeenBox]:
    if not isinstance(found, list | tuple):
        raise TypeError(f"find returned {type(found).__name__}, must be a list of SeenBox")
    height, width = frame.pixels.shape[:2]
    for box in found:
        if not isinstance(box, SeenBox):
            raise TypeError(f"find returned a {type(box).__name__}, must be SeenBox")
        if not (isinstance(box.kind, str) and KIND.fullmatch(box.kind)):
            raise ValueError(f"kind {str(box.kind)[:40]!r}: must have 1 to 40 of a-z, 0-9, - and _")
        numbers = (box.x_px, box.y_px, box.width_px, box.height_px, box.confidence)
        if not all(isfinite(number) for number in numbers):
            raise ValueError(f"{box.kind}: a number is not finite")
        sized = 0.0 < box.width_px <= 2 * width and 0.0 < box.height_px <= 2 * height
        if not (0.0 <= box.x_px < width and 0.0 <= box.y_px < height and sized):
            raise ValueError(f"{box.kind}: outside of the {width} x {height} pixels")
        if not 0.0 <= box.confidence <= 1.0:
            raise ValueError(f"{box.kind}: confidence {box.confidence}, must be 0 to 1")
    return sorted(found, key=lambda box: -box.width_px * box.height_px)


class Sees:
    """A step of the camera's pipeline. send: takes each datagram. lens: of the frames' size."""

    def __init__(
        self,
        detector: Detector,
        *,
        options: CameraRow,
        lens: Lens,
        send: Callable[[bytes], object],
        name: str = "sees",
        period_s: float = 0.1,
    ) -> None:
        self.name, self.period_s = name, period_s
        self._detector, self._lens, self._send = detector, lens, send
        self._turn = Mounted(
            roll_deg=options.roll_deg, pitch_deg=options.pitch_deg, yaw_deg=options.yaw_deg
        ).rotation
        self._place = options.position_m

    def take(self, frame: Frame, /) -> dict[str, Any]:
        """Tell the flight process, and return what a page draws over the picture."""
        found = self._detector.find(frame)[:MOST]
        self._send(_SEEN.encode(self.sample(found, frame.t_s)))
        return {
            "shapes": [{"label": one.kind, "points": _corners(one)} for one in found],
        }

    def sample(self, boxes: Sequence[SeenBox], t_s: float) -> SeenSample:
        """Return what flight needs of boxes: directions in the body frame, and angles."""
        axis = self._turn @ np.array((0.0, 0.0, 1.0))
        found: list[Sighting] = []
        for box in boxes:
            half_w, half_h = 0.5 * box.width_px, 0.5 * box.height_px
            x, y = box.x_px, box.y_px
            points = ((x, y), (x - half_w, y), (x + half_w, y), (x, y - half_h), (x, y + half_h))
            rays = self._rays(np.array(points))
            if not np.isfinite(rays).all():
                continue  # beyond what the lens was calibrated for
            wide, high = (_between(rays[a], rays[a + 1]) for a in (1, 3))
            middle = self._turn @ rays[0]
            found.append(
                Sighting(
                    kind=box.kind,
                    direction_body=_plain(middle),
                    size_rad=(wide * high) ** 0.5,
                    confidence=box.confidence,
                )
            )
        return SeenSample(
            t_s=t_s, found=tuple(found), camera_body_m=self._place, axis_body=_plain(axis)
        )

    def _rays(self, points_px: Array) -> Array:
        flat = self._lens.undistort(points_px)
        rays = np.concatenate((flat, np.ones((len(flat), 1))), axis=1)
        found: Array = rays / np.linalg.norm(rays, axis=1, keepdims=True)
        return found


def _between(a: Array, b: Array) -> float:
    return float(np.arccos(np.clip(a @ b, -1.0, 1.0)))


def _plain(v: Array) -> tuple[float, float, float]:
    return float(v[0]), float(v[1]), float(v[2])


def _corners(box: SeenBox) -> list[list[float]]:
    x, y, w, h = box.x_px, box.y_px, 0.5 * box.width_px, 0.5 * box.height_px
    return [[x - w, y - h], [x + w, y - h], [x + w, y + h], [x - w, y + h]]


def things(
    options: CameraRow, *, send: Callable[[bytes], object], clock: Clock, period_s: float = 0.1
) -> list[Sees]:
    """Return the steps that look for what a camera's row names. Raises ConfigError."""
    colours = tuple(one for one in options.sees if one != TAGS)
    for colour in colours:
        if colour not in HUES:
            near = suggestion(colour, [*HUES, TAGS])
            known = ", ".join(HUES)
            raise ConfigError(f"sees: no colour {colour!r}{near}; colours are {known}, beside tags")
    found: dict[str, Detector] = {}
    if colours:
        found["colours"] = ColourBlobs(colours)
    if TAGS in options.sees:
        found["tag things"] = TagBoxes()
    if options.detector:
        if "" not in sys.path:  # a file in the directory where it was started
            sys.path.append("")
        found["detector"] = OwnDetector(options.detector, clock=clock)
    return [
        Sees(one, options=options, lens=lens_of(options), send=send, name=name, period_s=period_s)
        for name, one in found.items()
    ]
