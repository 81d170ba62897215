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
    """Poses of pictures and of tags, and the lens, (9,)."""

    eyes: Poses
    tags: Poses
    lens: Array


class _Sightings(NamedTuple):
    """A tag in a picture each: indices (n,), corners (n, 4, 2), half sizes (n,)."""

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
    begun = _chained(views, known, lens, held)
    sightings = _sightings(views, keys, known)
    unknowns = _Unknowns(_stacked(begun[0]), _stacked([begun[1][k] for k in keys]), lens.numbers)
    unknowns, sigma, rms_px = _adjusted(unknowns, sightings, "tags")
    tags = [known[held]]
    for key, place, axes, deviations in zip(keys, *unknowns.tags, [None, *sigma], strict=True):
        if deviations is not None:
            tags.append(_tag(known[key], (place, axes), deviations))
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
    sightings = _sightings(views, keys, known)
    begun = _Unknowns(_stacked(eyes), _stacked(tags), first.numbers)
    unknowns, sigma, rms_px = _adjusted(begun, sightings, "lens")
    normals = unknowns.eyes[1][:, :, 2]
    spread = degrees(float(np.arccos(np.clip((normals @ normals.T).min(), -1.0, 1.0))))
    if spread < MOST_SPREAD_DEG:
        raise ConfigError(
            f"the views differ by {spread:.0f} degrees at the most, it takes "
            f"{MOST_SPREAD_DEG:g}: tilt the board"
        )
    found = dict(zip(NUMBERS, (float(v) for v in unknowns.lens), strict=True))
    try:
        made = msgspec.convert(
            {
                **found, "width": width, "height": height,
                "focal_sigma": max(5e-4, float(sigma[0]) / found["fx"]),
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
        np.array([keys.index(key) for _, key, _ in seen]),
        np.array([one.corners_px for _, _, one in seen]),
        np.array([0.5 * known[key].size_m for _, key, _ in seen]),
    )


def _pixels(eyes: Poses, tags: Poses, half_m: Array, n: Array) -> Array:
    """Return where each tag's corners are seen by its eye, (n, 8), through a lens of NUMBERS n."""
    corners = _local(1.0) * half_m[:, None, None]
    points = (tags[0] - eyes[0])[:, None] + corners @ tags[1].swapaxes(1, 2)
    points = points @ eyes[1]
    rays = points[..., :2] / np.maximum(points[..., 2:], 1e-3)
    return distorted(rays, n).reshape(len(half_m), 8)


def _moved(poses: Poses, steps: Array) -> Poses:
    """Return poses after steps (n, 6)."""
    turns = np.array([rotation_by(step[3:]) for step in steps])
    return poses[0] + steps[:, :3], poses[1] @ turns


def _of(poses: Poses, index: Array) -> Poses:
    return poses[0][index], poses[1][index]


class _Problem:
    """Pictures, then tags but for the first, or the lens: what is free, and its columns."""

    def __init__(self, sightings: _Sightings, pictures: int, tags: int, free: str) -> None:
        self.sightings = sightings
        self.first = 6 * pictures  # of the columns that are shared
        self.tags_free = free == "tags"
        self.size = self.first + (6 * (tags - 1) if self.tags_free else len(NUMBERS))

    def moved(self, was: _Unknowns, step: Array) -> _Unknowns:
        eyes, rest = _moved(was.eyes, step[: self.first].reshape(-1, 6)), step[self.first :]
        if not self.tags_free:
            return _Unknowns(eyes, was.tags, was.lens + rest)
        held = np.zeros((1, 6))
        return _Unknowns(eyes, _moved(was.tags, np.vstack((held, rest.reshape(-1, 6)))), was.lens)

    def left(self, at: _Unknowns) -> Array:
        """Return what is seen less what is expected, (n, 8)."""
        s = self.sightings
        expected = _pixels(_of(at.eyes, s.picture), _of(at.tags, s.tag), s.half_m, at.lens)
        seen: Array = s.corners_px.reshape(-1, 8)
        return seen - expected

    def equations(self, at: _Unknowns) -> tuple[Array, Array]:
        """Return the normal equations: matrix and right side, each tag by Huber's weight."""
        s, count = self.sightings, len(self.sightings.half_m)
        eyes, tags = _of(at.eyes, s.picture), _of(at.tags, s.tag)
        base = _pixels(eyes, tags, s.half_m, at.lens)
        seen = []
        for step in _STEP * np.eye(6):
            moved = _of(_moved(at.eyes, np.tile(step, (len(at.eyes[0]), 1))), s.picture)
            seen.append(_pixels(moved, tags, s.half_m, at.lens))
        if self.tags_free:
            for step in _STEP * np.eye(6):
                moved = _of(_moved(at.tags, np.tile(step, (len(at.tags[0]), 1))), s.tag)
                seen.append(_pixels(eyes, moved, s.half_m, at.lens))
        else:
            lenses = at.lens + _STEP * np.eye(len(at.lens))
            seen += [_pixels(eyes, tags, s.half_m, lens) for lens in lenses]
        slopes = np.stack([(one - base) / _STEP for one in seen], axis=-1)  # (n, 8, free)
        left = self.left(at)
        weights = np.minimum(1.0, _ROBUST_PX / np.maximum(np.abs(left).max(axis=1), 1e-9))
        matrix, right = np.zeros((self.size, self.size)), np.zeros(self.size)
        for i in range(count):
            slope, picture = slopes[i], 6 * int(s.picture[i])
            shared = self.first + (6 * (int(s.tag[i]) - 1) if self.tags_free else 0)
            if self.tags_free and s.tag[i] == 0:
                slope = slope[:, :6]  # the one that is held
            columns = [
                *range(picture, picture + 6), *range(shared, shared + slope.shape[1] - 6),
            ]  # fmt: skip
            matrix[np.ix_(columns, columns)] += weights[i] * slope.T @ slope
            right[columns] += weights[i] * slope.T @ left[i]
        return matrix, right


def _cost(left: Array) -> float:
    """Return Huber's sum: beyond its limit a tag counts by its error, not its square."""
    worst = np.maximum(np.abs(left).max(axis=1), _ROBUST_PX)
    return float(((left**2).sum(axis=1) * _ROBUST_PX / worst).sum())


def _adjusted(at: _Unknowns, sightings: _Sightings, free: str) -> tuple[_Unknowns, Array, float]:
    """Return what fits best, the standard deviations of the tags (n - 1, 6) or the lens (9), and
    the root mean square of what is left, pixels. Levenberg and Marquardt's."""
    problem = _Problem(sightings, len(at.eyes[0]), len(at.tags[0]), free)
    damping, cost = 1e-3, _cost(problem.left(at))
    try:
        for _ in range(_ROUNDS):
            matrix, right = problem.equations(at)
            while damping < _STUCK:
                damped = matrix + damping * np.diag(np.diag(matrix)) + 1e-9 * np.eye(len(matrix))
                step: Array = np.linalg.solve(damped, right).astype(np.float64)
                tried = problem.moved(at, step)
                less = cost - _cost(problem.left(tried))
                if less > 0.0:
                    break
                damping *= 8.0
            else:
                break
            at, cost, damping = tried, cost - less, 0.1 * damping
            if less < _DONE * cost:
                break
        left = problem.left(at)
        spare = left.size - problem.size
        if spare < 1:
            raise ConfigError("too few corners for so many unknowns")
        px = max(CORNER_PX, float(np.sqrt((left**2).sum() / spare)))
        covariance = np.linalg.inv(problem.equations(at)[0])
    except np.linalg.LinAlgError as error:
        raise ConfigError("the pictures leave something unknown: take more, from elsewhere") from (
            error
        )
    sigma = px * np.sqrt(np.maximum(np.diag(covariance), 0.0))[problem.first :]
    rms_px = float(np.sqrt(np.mean(left**2)))
    return at, sigma.reshape(-1, 6) if free == "tags" else sigma, rms_px


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
