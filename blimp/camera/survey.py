"""Where the tags of a room are, from pictures of them; what a lens is, from pictures of a board.

Both are one least squares over every picture's pose at once (bundle adjustment): the survey's
other unknowns are the tags' poses, one of which is held, for else everything could move together;
the calibration's are the lens.

Source: Triggs et al., "Bundle Adjustment: a Modern Synthesis" (2000).
"""

from collections.abc import Callable, Sequence
from math import atan2, degrees, hypot
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from PIL import Image

from blimp.camera.detect import Detection, TagDetector
from blimp.camera.lens import NUMBERS, Array, Lens, distorted
from blimp.camera.pose import CORNER_PX, rotation_by, square_poses
from blimp.camera.tag_map import CORNERS, TagMap, corners_ned_m
from blimp.errors import ConfigError
from blimp.scene import Tag

MAX_PICTURES = 120  # more tell little that is new; it takes a second each
_ROUNDS, _DONE, _STUCK = 30, 1e-6, 1e6
_STEP = 1e-6  # of the numerical derivatives: m, rad and pixels
_TRIED = 6  # tags of a picture, the largest, whose poses it may begin with
_ROBUST_PX = 1.5  # beyond it an error counts by its size, not its square

VIEWS, COVERED = 15, 0.6  # pictures of a board, and the share of the picture that they must reach
MOST_SPREAD_DEG = 20.0  # between the most different views of it: without tilt, focal length and
# distance are one unknown
_CELLS = 6  # a side: coverage is counted by these


Poses = tuple[Array, Array]  # places (n, 3), and turns (n, 3, 3) to the room's axes


class _Unknowns(NamedTuple):
    """Poses of pictures, then of tags, and the lens, (9,)."""

    poses: Poses
    lens: Array

    @property
    def size(self) -> int:
        """How many columns there are: six a pose, then the lens."""
        return 6 * len(self.poses[0]) + len(self.lens)

    def moved(self, step: Array) -> "_Unknowns":
        of_lens = len(self.lens)
        return _Unknowns(
            _turned(self.poses, step[:-of_lens].reshape(-1, 6)), self.lens + step[-of_lens:]
        )


class _Sightings(NamedTuple):
    """A tag in a picture each: indices of their poses (n,), corners (n, 8), half sizes (n,)."""

    picture: Array
    tag: Array
    corners_px: Array
    half_m: Array


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The map that was found. rms_px: of what it leaves of the corners. pictures: that were used.

    unseen: tags of the first map that no two pictures join to the others.
    """

    tag_map: TagMap
    rms_px: float
    pictures: int
    unseen: tuple[tuple[str, int], ...]


class FoundLens(msgspec.Struct, frozen=True, kw_only=True):
    lens: Lens
    rms_px: float
    pictures: int


def survey(
    pictures: Sequence[Sequence[Detection]], nominal: TagMap, lens: Lens, *, held: tuple[str, int]
) -> Survey:
    """Find the places of the tags of `nominal`, whose sizes and first places it takes.

    held: the tag that stays where the map has it. Raises ConfigError, which says what is missing.
    """
    known = {tag.key: tag for tag in nominal.tags}
    if held not in known:
        raise ConfigError(f"the map has no {held[0]} {held[1]}, which is to be held")
    views = [{d.key: d for d in picture if d.key in known} for picture in pictures]
    views = [view for view in views if len(view) >= 2]
    views = views[:: max(1, -(-len(views) // MAX_PICTURES))]
    joined = _joined(views, held)
    views = [view for view in ({k: d for k, d in v.items() if k in joined} for v in views) if view]
    if len(joined) < 2:
        raise ConfigError(
            f"no picture has {held[0]} {held[1]} and another tag of the map: nothing joins them"
        )
    keys = [held, *sorted(joined - {held})]
    eyes, begun = _chained(views, known, lens, held)
    at = _Unknowns(_stacked([*eyes, *(begun[key] for key in keys)]), lens.numbers)
    first = 6 * len(eyes)  # of the columns of the tags; those of the one that is held are not free
    free = np.r_[:first, first + 6 : first + 6 * len(keys)]
    at, sigma, rms_px = _adjusted(at, _sightings(views, keys, known), free)
    places, turns = (part[len(eyes) + 1 :] for part in at.poses)
    rows = zip(keys[1:], places, turns, sigma[first:].reshape(-1, 6), strict=True)
    tags = [known[held], *(_tag(known[key], (place, axes), far) for key, place, axes, far in rows)]
    return Survey(
        tag_map=TagMap(tags=tuple(sorted(tags, key=lambda tag: tag.key))),
        rms_px=rms_px,
        pictures=len(views),
        unseen=tuple(key for key in known if key not in joined),
    )


def calibrate(
    pictures: Sequence[Sequence[Detection]], board: TagMap, size: tuple[int, int]
) -> FoundLens:
    """Find the lens from pictures of a flat board of tags.

    size: width and height of the pictures. Raises ConfigError, which says what they do not show.
    """
    known = {tag.key: tag for tag in board.tags}
    width, height = size
    views = [{d.key: d for d in picture if d.key in known} for picture in pictures]
    views = [view for view in views if len(view) >= 4]
    if len(views) < VIEWS:
        raise ConfigError(
            f"{len(views)} pictures show four tags of the board or more, it takes {VIEWS}"
        )
    corners = np.concatenate([d.corners_px for view in views for d in view.values()])
    cells = np.floor(corners / (width, height) * _CELLS).astype(int)
    covered = len({tuple(cell) for cell in cells.tolist()}) / _CELLS**2
    if covered < COVERED:
        raise ConfigError(
            f"the board reaches {100 * covered:.0f} % of the picture, it takes "
            f"{100 * COVERED:.0f} %: bring it into every corner"
        )
    first = Lens(
        width=width, height=height, fx=0.9 * width, fy=0.9 * width, cx=0.5 * (width - 1),
        cy=0.5 * (height - 1),
    )  # fmt: skip
    keys = sorted(known)
    tags = [_pose_of(known[key]) for key in keys]
    eyes = [_eye(view, dict(zip(keys, tags, strict=True)), known, first) for view in views]
    at = _Unknowns(_stacked([*eyes, *tags]), first.numbers)
    free = np.r_[: 6 * len(eyes), 6 * (len(eyes) + len(keys)) : at.size]
    at, sigma, rms_px = _adjusted(at, _sightings(views, keys, known), free)
    normals = at.poses[1][: len(eyes), :, 2]
    spread = degrees(float(np.arccos(np.clip((normals @ normals.T).min(), -1.0, 1.0))))
    if spread < MOST_SPREAD_DEG:
        raise ConfigError(
            f"the views differ by {spread:.0f} degrees at the most, it takes "
            f"{MOST_SPREAD_DEG:g}: tilt the board"
        )
    found = dict(zip(NUMBERS, (float(v) for v in at.lens), strict=True))
    try:
        made = msgspec.convert(
            {
                **found, "width": width, "height": height,
                "focal_sigma": max(5e-4, float(sigma[-len(NUMBERS)]) / found["fx"]),
            },
            Lens,
        )  # fmt: skip
    except msgspec.ValidationError as error:
        raise ConfigError(f"the pictures fit no lens: {error}") from error
    return FoundLens(lens=made, rms_px=rms_px, pictures=len(views))


def found_in(
    files: Sequence[Path], families: Sequence[str], *, say: Callable[[str], object]
) -> tuple[list[tuple[Detection, ...]], tuple[int, int]]:
    """Return what tags each picture shows, and the size that they all have.

    Raises ConfigError naming a picture that is of another size; one that is none is only said.
    """
    detector, found = TagDetector(families), []
    size: tuple[int, int] | None = None
    for file in files:
        try:
            with Image.open(file) as picture:
                pixels = np.asarray(picture.convert("L"))
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            say(f"{file}: {error}")
            continue
        one = pixels.shape[1], pixels.shape[0]
        if size is not None and one != size:
            raise ConfigError(f"{file}: {one} pixels, the others {size}")
        size = one
        found.append(detector.detect(pixels))
    if size is None:
        raise ConfigError("no picture can be read")
    return found, size


# --- where to begin -------------------------------------------------------------------------------


def _joined(views: Sequence[dict[Any, Detection]], held: tuple[str, int]) -> set[tuple[str, int]]:
    """Return the tags that pictures join to the held one."""
    found, grows = {held}, True
    while grows:
        grows = False
        for view in views:
            if found & view.keys() and view.keys() - found:
                found |= view.keys()
                grows = True
    return found


def _chained(
    views: Sequence[dict[Any, Detection]], known: dict[Any, Tag], lens: Lens, held: Any
) -> tuple[list[tuple[Array, Array]], dict[Any, tuple[Array, Array]]]:
    """Return poses of pictures and tags to begin with: from tag to picture to tag."""
    tags = {held: _pose_of(known[held])}
    eyes: list[tuple[Array, Array] | None] = [None] * len(views)
    while True:
        waiting = [i for i, eye in enumerate(eyes) if eye is None and tags.keys() & views[i].keys()]
        if not waiting:
            break
        # The picture that shows most of what is known already.
        best = max(waiting, key=lambda i: len(tags.keys() & views[i].keys()))
        eye = eyes[best] = _eye(views[best], tags, known, lens)
        for key, one in views[best].items():
            if key not in tags:
                tags[key] = _seen_from(eye, one, known[key], lens)
    return [eye for eye in eyes if eye is not None], tags


def _pose_of(tag: Tag) -> tuple[Array, Array]:
    """Return the middle of a tag, and its axes right, top, out of the paper in the room's."""
    corners = np.array(corners_ned_m(tag))
    right, top = corners[1] - corners[0], corners[3] - corners[0]
    right, top = right / np.linalg.norm(right), top / np.linalg.norm(top)
    return corners.mean(axis=0), np.stack((right, top, np.cross(right, top)), axis=1)


def _local(half_m: float) -> Array:
    return np.array([(right * half_m, top * half_m, 0.0) for top, right in CORNERS])


def _eye(
    view: dict[Any, Detection], tags: dict[Any, tuple[Array, Array]], known: dict[Any, Tag],
    lens: Lens,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the pose of a picture that lies nearest to the corners of all known tags."""
    places = {
        key: tags[key][0] + _local(0.5 * known[key].size_m) @ tags[key][1].T
        for key in view
        if key in tags
    }
    best: tuple[float, tuple[Array, Array]] | None = None
    for key in sorted(places, key=lambda k: -known[k].size_m)[:_TRIED]:
        rays = lens.undistort(view[key].corners_px)
        for place, turn in square_poses(rays, places[key]):
            error = sum(
                float(np.nan_to_num(np.abs(
                    lens.project((places[k] - place) @ turn) - view[k].corners_px
                ), nan=1e3).sum())
                for k in places
            )  # fmt: skip
            if best is None or error < best[0]:
                best = error, (place, turn)
    if best is None:
        raise ConfigError("a picture of tags that fits no pose")
    return best[1]


def _seen_from(
    eye: tuple[Array, Array], one: Detection, tag: Tag, lens: Lens
) -> tuple[Array, Array]:
    """Return the pose of a tag in a picture whose pose is known; of two, as the map has it."""
    place, turn = eye
    unit = _local(0.5 * tag.size_m)
    found = []
    for from_m, to_tag in square_poses(lens.undistort(one.corners_px), unit):
        axes = turn @ to_tag.T  # tag to camera to room
        found.append((place - axes @ from_m, axes))
    if not found:
        raise ConfigError(f"{tag.family} {tag.id}: its corners are no square")
    nominal = _pose_of(tag)[1]
    return max(found, key=lambda pose: float(np.trace(nominal.T @ pose[1])))


# --- least squares ------------------------------------------------------------------------------


def _stacked(poses: Sequence[tuple[Array, Array]]) -> Poses:
    return np.array([place for place, _ in poses]), np.array([turn for _, turn in poses])


def _sightings(
    views: Sequence[dict[Any, Detection]], keys: Sequence[Any], known: dict[Any, Tag]
) -> _Sightings:
    seen = [(i, key, one) for i, view in enumerate(views) for key, one in view.items()]
    return _Sightings(
        np.array([i for i, _, _ in seen]),
        np.array([len(views) + keys.index(key) for _, key, _ in seen]),
        np.array([one.corners_px.ravel() for _, _, one in seen]),
        np.array([0.5 * known[key].size_m for _, key, _ in seen]),
    )


def _pixels(eyes: Poses, tags: Poses, half_m: Array, n: Array) -> Array:
    """Return where each tag's corners are seen by its eye, (n, 8), through a lens of NUMBERS n."""
    corners = _local(1.0) * half_m[:, None, None]
    points = (tags[0] - eyes[0])[:, None] + corners @ tags[1].swapaxes(1, 2)
    points = points @ eyes[1]
    rays = points[..., :2] / np.maximum(points[..., 2:], 1e-3)
    return distorted(rays, n).reshape(len(half_m), 8)


def _turned(poses: Poses, steps: Array) -> Poses:
    """Return poses after steps (n, 6)."""
    turns = np.array([rotation_by(step[3:]) for step in steps])
    return poses[0] + steps[:, :3], poses[1] @ turns


def _of(poses: Poses, index: Array) -> Poses:
    return poses[0][index], poses[1][index]


def _left(at: _Unknowns, s: _Sightings) -> Array:
    """Return what is seen less what is expected, (n, 8)."""
    expected = _pixels(_of(at.poses, s.picture), _of(at.poses, s.tag), s.half_m, at.lens)
    return np.subtract(s.corners_px, expected)


def _equations(at: _Unknowns, s: _Sightings) -> tuple[Array, Array]:
    """Return the normal equations of all columns: matrix and right side, by Huber's weights."""
    eyes, tags = _of(at.poses, s.picture), _of(at.poses, s.tag)
    shifted = [
        _turned(at.poses, np.tile(step, (len(at.poses[0]), 1))) for step in _STEP * np.eye(6)
    ]
    seen = [_pixels(_of(poses, s.picture), tags, s.half_m, at.lens) for poses in shifted]
    seen += [_pixels(eyes, _of(poses, s.tag), s.half_m, at.lens) for poses in shifted]
    lenses = at.lens + _STEP * np.eye(len(at.lens))
    seen += [_pixels(eyes, tags, s.half_m, lens) for lens in lenses]
    base = _pixels(eyes, tags, s.half_m, at.lens)
    slopes = np.stack([(one - base) / _STEP for one in seen], axis=-1)  # (n, 8, 21)
    left = _left(at, s)
    weights = np.minimum(1.0, _ROBUST_PX / np.maximum(np.abs(left).max(axis=1), 1e-9))
    pulls = slopes.swapaxes(1, 2) * weights[:, None, None]  # (n, 21, 8)
    of_pose, of_lens = np.arange(6), np.arange(at.size - len(at.lens), at.size)
    columns = np.concatenate(
        (
            6 * s.picture[:, None] + of_pose, 6 * s.tag[:, None] + of_pose,
            np.tile(of_lens, (len(s.tag), 1)),
        ),
        axis=1,
    ).astype(np.intp)  # fmt: skip
    matrix, right = np.zeros((at.size, at.size)), np.zeros(at.size)
    np.add.at(matrix, (columns[:, :, None], columns[:, None, :]), pulls @ slopes)
    np.add.at(right, columns, (pulls @ left[:, :, None])[:, :, 0])
    return matrix, right


def _cost(left: Array) -> float:
    """Return Huber's sum: beyond its limit a tag counts by its error, not its square."""
    worst = np.maximum(np.abs(left).max(axis=1), _ROBUST_PX)
    return float(((left**2).sum(axis=1) * _ROBUST_PX / worst).sum())


def _adjusted(at: _Unknowns, s: _Sightings, free: Array) -> tuple[_Unknowns, Array, float]:
    """Return what fits best, standard deviations of the columns that are `free`, and the root mean
    square of what is left, pixels. Levenberg and Marquardt's."""
    damping, cost = 1e-3, _cost(_left(at, s))
    square = np.ix_(free, free)
    try:
        for _ in range(_ROUNDS):
            matrix, right = _equations(at, s)
            matrix, right = matrix[square], right[free]
            while damping < _STUCK:
                damped = matrix + damping * np.diag(np.diag(matrix)) + 1e-9 * np.eye(len(matrix))
                step = np.zeros(at.size)
                step[free] = np.linalg.solve(damped, right)
                tried = at.moved(step)
                less = cost - _cost(_left(tried, s))
                if less > 0.0:
                    break
                damping *= 8.0
            else:
                break
            at, cost, damping = tried, cost - less, 0.1 * damping
            if less < _DONE * cost:
                break
        left = _left(at, s)
        spare = left.size - len(free)
        if spare < 1:
            raise ConfigError("too few corners for so many unknowns")
        px = max(CORNER_PX, float(np.sqrt((left**2).sum() / spare)))
        covariance = np.linalg.inv(_equations(at, s)[0][square])
    except np.linalg.LinAlgError as error:
        raise ConfigError("the pictures leave something unknown: take more, from elsewhere") from (
            error
        )
    sigma = px * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return at, sigma, float(np.sqrt(np.mean(left**2)))


def _tag(nominal: Tag, pose: tuple[Array, Array], sigma: Array) -> Tag:
    """Return a tag as it was found: its angles are those of its axes top, right, into the paper."""
    middle, axes = pose
    top, right, into = axes[:, 1], axes[:, 0], -axes[:, 2]
    return msgspec.structs.replace(
        nominal,
        north_m=float(middle[0]), east_m=float(middle[1]), altitude_m=-float(middle[2]),
        yaw_deg=degrees(atan2(top[1], top[0])),
        pitch_deg=degrees(atan2(-top[2], hypot(right[2], into[2]))),
        roll_deg=degrees(atan2(right[2], into[2])),
        sigma_m=min(1.0, float(np.sqrt(np.mean(sigma[:3] ** 2)))),
    )  # fmt: skip
