"""Where the ship is, from the tags in one picture.

The corners of all tags are laid over their places in the room: Gauss-Newton on the six numbers of
the camera's pose, each tag weighted by how sure its corners and its place are. Every tag alone
gives two poses to begin with, for a square seen small looks the same tilted to either side; the
pose that most tags agree with is the best one, and the others of them are outliers. If two poses
explain the picture about as well, there is no answer.

Source: Collins, Bartoli, "Infinitesimal Plane-based Pose Estimation" (2014), for the two poses of
a square; Hartley, Zisserman, "Multiple View Geometry" (2004), A6 for the rest.
"""

from collections.abc import Sequence
from math import atan2, hypot, radians
from typing import Any, NamedTuple

import msgspec
import numpy as np

from blimp.camera.detect import Detection
from blimp.camera.lens import Array, Lens
from blimp.camera.tag_map import TagMap, corners_ned_m
from blimp.rotation import from_euler, rotate

# Of a corner, one standard deviation: rendered frames with noise, blur of 10 ms and the distortion
# of a calibrated lens have .1 to .2, every second pixel three times that: `benchmarks.tags`.
CORNER_PX = 0.2
COARSE_CORNER_PX = 0.6
LEVEL_RAD = 0.1  # a hull hangs below its lift: six degrees of swing is what holds one back
MOUNT_M, MOUNT_RAD = 0.006, 0.01  # measured with a ruler and by eye: within 1 cm and a degree
CENTRE_PX = 2.0  # of the lens's middle on the sensor
TURNED_RAD = 0.01  # how straight a tag was glued down
# Chi-square of eight numbers, which one in ten thousand exceeds: a tag that is not in its place.
_GATE = 31.8
_BETTER = 9.0  # in chi-square: the other pose must explain the picture so much worse
_SAME_M, _SAME_RAD = 0.03, 0.03  # poses nearer than this are one
_ROUNDS = 12
_SETTLED = 1e-4  # m and rad: a hundredth of what a picture can tell
_LOOSE = 0.15  # of a tag's distance: what one tag alone may say of another's place
_NEAR_M, _FAR_M = 0.02, 30.0
_MAX_SIGMA_M = 0.5  # less sure than this is no position


class Mounted(NamedTuple):
    """Where the camera sits: metres forward, right and down of the hull's middle, and its turn.

    At 0 it looks forward, its picture upright; pitch -90 looks down, the bow at the top.
    """

    position_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    roll_deg: float = 0.0
    pitch_deg: float = -90.0
    yaw_deg: float = 0.0

    @property
    def rotation(self) -> Array:
        """From camera axes (right, down, out) to body axes, (3, 3)."""
        q = from_euler(radians(self.roll_deg), radians(self.pitch_deg), radians(self.yaw_deg))
        return np.array([rotate(q, axis) for axis in ((0, 1, 0), (0, 0, 1), (1, 0, 0))]).T


class Pose(msgspec.Struct, frozen=True, kw_only=True):
    """The hull's middle above the floor's origin, and how it lies.

    attitude: body to NED, (3, 3). covariance: of north, east, down and yaw, m and rad, of one
    picture alone. bias: the part of it that is the same in the next one: lens, mount, survey.
    """

    position_ned_m: tuple[float, float, float]
    yaw_rad: float
    attitude: Array
    covariance: Array
    bias: Array
    tags: tuple[tuple[str, int], ...]
    outliers: tuple[tuple[str, int], ...] = ()


class NoPose(msgspec.Struct, frozen=True):
    """Why a picture gives no position."""

    reason: str


class _View(NamedTuple):
    """Tags of the map that are in the picture: keys, rays (n, 4, 2) and corners (n, 4, 3)."""

    keys: list[tuple[str, int]]
    rays: Array
    corners_m: Array
    ray_sigma: Array  # (n,)
    place_m: Array  # (n,)
    size_m: Array


class _Solution(NamedTuple):
    place: Array
    turn: Array  # camera to NED
    cost: float
    inliers: Array  # (n,) of bool

    @property
    def agree(self) -> int:
        return int(self.inliers.sum())


class PoseSolver:
    """The pose of a ship with this lens and mount in a room with these tags."""

    def __init__(self, tag_map: TagMap, lens: Lens, mount: Mounted) -> None:
        self._tags = {tag.key: tag for tag in tag_map.tags}
        self._corners = {tag.key: np.array(corners_ned_m(tag)) for tag in tag_map.tags}
        self._lens = lens
        self._turn = mount.rotation
        self._arm = np.array(mount.position_m)
        self._down = self._turn.T @ np.array((0.0, 0.0, 1.0))  # the body's, in camera axes

    def solve(self, detections: Sequence[Detection]) -> Pose | NoPose:
        """Return the pose that the tags agree on, or why there is none."""
        view = self._view(detections)
        if view is None:
            names = ", ".join(f"{one.family} {one.id}" for one in detections[:4])
            return NoPose(f"not in the map: {names}" if names else "no tag in view")
        seen = len(view.keys)
        solutions: list[_Solution] = []
        for place, turn in self._hypotheses(view):
            solution = self._refine(view, place, turn)
            if solution is not None:
                solutions.append(solution)
            if len(solutions) >= 2 and 2 * max(s.agree for s in solutions) > seen:
                break
        if not solutions:
            return NoPose("no pose explains the tags")
        best = min(solutions, key=lambda s: (-s.agree, s.cost))
        if 2 * best.agree <= seen:
            return NoPose(f"only {best.agree} of {seen} tags agree")
        for other in solutions:
            worse = other.cost - best.cost + _GATE * (best.agree - other.agree)
            if worse < _BETTER and _differ(best, other):
                return NoPose("two poses explain the tags")
        return self._pose(view, best)

    def _view(self, detections: Sequence[Detection]) -> _View | None:
        keys, rays, corners, sigma, place, size = [], [], [], [], [], []
        for one in detections:
            tag = self._tags.get(one.key)
            if tag is None or sum(other.key == one.key for other in detections) > 1:
                continue  # an id that is seen twice is at one place at the most
            ray = self._lens.undistort(one.corners_px)
            if np.isfinite(ray).all():
                keys.append(one.key)
                rays.append(ray)
                corners.append(self._corners[one.key])
                sigma.append((COARSE_CORNER_PX if one.coarse else CORNER_PX) / self._lens.fx)
                place.append(tag.sigma_m)
                size.append(tag.size_m)
        if not keys:
            return None
        return _View(
            keys, np.array(rays), np.array(corners), np.array(sigma), np.array(place),
            np.array(size),
        )  # fmt: skip

    # --- where to begin -----------------------------------------------------------------------

    def _hypotheses(self, view: _View) -> list[tuple[Array, Array]]:
        """Return poses (place, turn) to begin with: the one that most tags are near to, then the
        one that is most unlike it, then others."""
        found: list[tuple[float, Array, Array]] = []
        for i in range(len(view.keys)):
            for place, turn in square_poses(view.rays[i], view.corners_m[i]):
                _, error = _errors(view, place, turn)
                far = np.abs(error).max(axis=(1, 2))  # tangents of angles
                found.append((float(np.minimum(far / _LOOSE, 1.0).sum()), place, turn))
        found.sort(key=lambda one: one[0])
        if len(found) > 2:
            first = found[0][2]
            other = min(range(1, min(6, len(found))), key=lambda i: np.trace(first.T @ found[i][2]))
            found.insert(1, found.pop(other))
        return [(place, turn) for _, place, turn in found[:6]]

    # --- Gauss-Newton ---------------------------------------------------------------------------

    def _refine(self, view: _View, place: Array, turn: Array) -> _Solution | None:
        inliers = np.ones(len(view.keys), dtype=bool)
        step = np.ones(6)
        for round_ in range(_ROUNDS):
            system = self._system(view, place, turn)
            settled = float(np.abs(step).max()) < _SETTLED
            if settled or round_ >= _ROUNDS - 3:
                # Now with those alone that agree, each with its full weight.
                inliers = system.chi < _GATE
                weights = inliers.astype(float)
            else:
                # Geman and McClure's: what is far off does not pull at all.
                weights = 1.0 / (1.0 + system.chi / (2.0 * _GATE)) ** 2
            if not inliers.any():
                return None
            try:
                step = _step(system, weights)
            except np.linalg.LinAlgError:
                return None
            place, turn = place + step[:3], turn @ rotation_by(step[3:])
            if not np.isfinite(place).all():
                return None
            if settled and float(np.abs(step).max()) < _SETTLED:
                break
        system = self._system(view, place, turn)
        inliers = np.logical_and(system.chi < _GATE, system.seen)
        if not inliers.any():
            return None
        cost = float(system.chi[inliers].sum() + system.level_error @ system.level_error)
        return _Solution(place, turn, cost, inliers)

    def _system(self, view: _View, place: Array, turn: Array) -> "_System":
        points, error = _errors(view, place, turn)
        n = len(view.keys)
        x, y, z = points[..., 0], points[..., 1], points[..., 2]
        # Before the lens, and with its print towards it: mirrored, a floor is seen from below.
        edges = (view.corners_m[:, (1, 3)] - view.corners_m[:, :1]).swapaxes(0, 1)
        faces = ((place - view.corners_m[:, 0]) * np.cross(*edges)).sum(axis=1) > 0.0
        seen = (z > _NEAR_M).all(axis=1) & faces
        z = np.maximum(z, _NEAR_M)
        zero, inverse = np.zeros_like(z), 1.0 / z
        # Of a ray by the point in camera axes: (n, 4, 2, 3).
        by_point = np.stack(
            (
                np.stack((inverse, zero, -x * inverse**2), -1),
                np.stack((zero, inverse, -y * inverse**2), -1),
            ),
            -2,
        )
        by_place = (by_point @ -turn.T).reshape(n, 8, 3)
        by_turn = (by_point @ _cross(points)).reshape(n, 8, 3)
        jacobian = np.concatenate((by_place, by_turn), axis=2)
        # A tag's place is wrong by the same for its corners, and so is its turn on the floor.
        spin = view.corners_m - view.corners_m.mean(axis=1, keepdims=True)
        spun = np.stack((-spin[..., 1], spin[..., 0], zero), -1)
        by_spin = -(by_point @ -turn.T @ spun[..., None]).reshape(n, 8, 1) * TURNED_RAD
        moved = by_place * view.place_m[:, None, None]
        noise = (view.ray_sigma**2)[:, None, None] * np.eye(8)
        covariance = noise + moved @ moved.swapaxes(1, 2) + by_spin @ by_spin.swapaxes(1, 2)
        weight = np.linalg.inv(covariance)
        flat = error.reshape(n, 8)
        chi = np.einsum("ni,nij,nj->n", flat, weight, flat)
        down = turn @ self._down
        level_jacobian = np.zeros((2, 6))
        level_jacobian[:, 3:] = -(turn @ _cross(self._down))[:2] / LEVEL_RAD
        return _System(
            jacobian, weight, flat, np.where(seen, chi, 1e9), down[:2] / LEVEL_RAD, level_jacobian,
            seen, points,
        )  # fmt: skip

    # --- the answer ---------------------------------------------------------------------------

    def _pose(self, view: _View, best: _Solution) -> Pose | NoPose:
        system = self._system(view, best.place, best.turn)
        weights = best.inliers.astype(float)
        information = _information(system, weights)
        try:
            covariance = np.linalg.inv(information)
        except np.linalg.LinAlgError:
            return NoPose("the tags do not fix a pose")
        by_ray = covariance @ _pull(system, weights)  # (n, 6, 8)
        gain = by_ray.swapaxes(0, 1).reshape(6, -1)
        # What is wrong in every picture alike. The noise of the corners is not.
        x, y = (system.points[..., i] / system.points[..., 2] for i in (0, 1))
        one, zero = np.ones_like(x), np.zeros_like(x)
        wrong = np.stack(
            (
                self._lens.focal_sigma * np.stack((x, y), -1).ravel(),
                CENTRE_PX / self._lens.fx * np.stack((one, zero), -1).ravel(),
                CENTRE_PX / self._lens.fy * np.stack((zero, one), -1).ravel(),
            ),
            axis=1,
        )
        shifts = gain @ wrong
        noise = gain * np.repeat(view.ray_sigma, 8)
        corners = noise @ noise.T
        total = covariance + shifts @ shifts.T
        body = best.turn @ self._turn.T
        place = best.place - body @ self._arm
        to_hull = self._to_hull(best.turn, body)
        mount = np.diag((MOUNT_M**2,) * 3 + (MOUNT_RAD**2,))
        arm_m = float(np.linalg.norm(self._arm)) * MOUNT_RAD
        mount[:3, :3] += arm_m**2 * np.eye(3)
        all_of_it = to_hull @ total @ to_hull.T + mount
        bias = all_of_it - to_hull @ corners @ to_hull.T
        sigma_m = float(all_of_it[0, 0] + all_of_it[1, 1]) ** 0.5
        if not sigma_m < _MAX_SIGMA_M:
            return NoPose(f"the tags fix it to {sigma_m:.2f} m only")
        if not _NEAR_M < float(np.linalg.norm(place)) + 1.0 < 1e4:
            return NoPose("the pose is out of every room")
        north, east, down = (float(v) for v in place)
        keys = [key for key, is_in in zip(view.keys, best.inliers, strict=True) if is_in]
        return Pose(
            position_ned_m=(north, east, down),
            yaw_rad=atan2(float(body[1, 0]), float(body[0, 0])),
            attitude=body,
            covariance=all_of_it,
            bias=bias,
            tags=tuple(keys),
            outliers=tuple(key for key in view.keys if key not in keys),
        )

    def _to_hull(self, turn: Array, body: Array) -> Array:
        """Return the derivative (4, 6) of hull's place and yaw by the camera's pose."""
        found = np.zeros((4, 6))
        found[:3, :3] = np.eye(3)
        # A turn w of the camera in its axes is turn w in the room, and moves the arm.
        arm = body @ self._arm
        found[:3, 3:] = _cross(arm) @ turn
        level = hypot(body[0, 0], body[1, 0]) or 1e-9
        # Of atan2(east, north) of the nose.
        by_nose = np.array((-body[1, 0], body[0, 0], 0.0)) / level**2
        found[3, 3:] = by_nose @ -_cross(body[:, 0]) @ turn
        return found


class _System(NamedTuple):
    jacobian: Array  # (n, 8, 6)
    weight: Array  # (n, 8, 8)
    error: Array  # (n, 8), seen less expected
    chi: Array  # (n,)
    level_error: Array
    level_jacobian: Array
    seen: Array
    points: Array


def _differ(one: _Solution, other: _Solution) -> bool:
    apart_m = float(np.linalg.norm(one.place - other.place))
    cosine = 0.5 * (float(np.trace(one.turn.T @ other.turn)) - 1.0)
    return apart_m > _SAME_M or cosine < np.cos(_SAME_RAD)


def _errors(view: _View, place: Array, turn: Array) -> tuple[Array, Array]:
    """Return corners in camera axes (n, 4, 3), and their rays less the expected ones."""
    points = (view.corners_m - place) @ turn
    with np.errstate(all="ignore"):
        expected = points[..., :2] / np.where(points[..., 2:] > _NEAR_M, points[..., 2:], np.nan)
    return points, np.nan_to_num(view.rays - expected, nan=1.0)


def _information(system: _System, weights: Array) -> Array:
    of_tags = _pull(system, weights) @ system.jacobian
    found: Array = of_tags.sum(axis=0) + system.level_jacobian.T @ system.level_jacobian
    return found


def _pull(system: _System, weights: Array) -> Array:
    """Return J^T W of each tag, (n, 6, 8)."""
    found: Array = system.jacobian.swapaxes(1, 2) @ system.weight * weights[:, None, None]
    return found


def _step(system: _System, weights: Array) -> Array:
    pull = (_pull(system, weights) @ system.error[..., None]).sum(axis=0)[:, 0]
    pull = pull - system.level_jacobian.T @ system.level_error
    step: Array = np.linalg.solve(_information(system, weights), pull)
    size = float(np.linalg.norm(step[3:]))
    return step * min(1.0, 0.5 / max(size, 1e-9))


def _cross(v: Array) -> Array:
    """Return the matrix, or matrices (..., 3, 3), of the cross product by `v` (..., 3)."""
    x, y, z = v[..., 0], v[..., 1], v[..., 2]
    zero = np.zeros_like(x)
    rows = (np.stack((zero, -z, y), -1), np.stack((z, zero, -x), -1), np.stack((-y, x, zero), -1))
    return np.stack(rows, -2)


def rotation_by(w: Array) -> Array:
    """Return the rotation by a vector (Rodrigues)."""
    angle = float(np.linalg.norm(w))
    k = _cross(w)
    if angle < 1e-9:
        return np.eye(3) + k
    by: Any = np.sin(angle) / angle * k + (1.0 - np.cos(angle)) / angle**2 * (k @ k)
    found: Array = np.eye(3) + by
    return found


def square_poses(rays: Array, corners_m: Array) -> list[tuple[Array, Array]]:
    """Return the two poses, camera's place and its turn to NED, from which a square looks so,
    without those that would look at the back of its paper.

    rays: (4, 2). corners_m: (4, 3), in the order of `tag_map.CORNERS`.
    """
    middle = corners_m.mean(axis=0)
    right = corners_m[1] - corners_m[0]
    top = corners_m[3] - corners_m[0]
    half = 0.5 * float(np.linalg.norm(right))
    if not half > 0.0:
        return []
    u, v = right / (2.0 * half), top / (2.0 * half)
    frame = np.stack((u, v, np.cross(u, v)), axis=1)  # right, top, out of the paper
    plane = np.array(((-half, -half), (half, -half), (half, half), (-half, half)))
    h = _homography(plane, rays)
    if h is None:
        return []
    found = []
    for turn, shift in _ippe(h):
        # camera = turn @ square + shift, and square = frame.T @ (room - middle)
        to_camera = turn @ frame.T
        place = middle - to_camera.T @ shift
        if float((place - middle) @ frame[:, 2]) > 0.0:
            found.append((place, to_camera.T))
    return found


def _homography(plane: Array, rays: Array) -> Array | None:
    """Return the homography of four points, h33 = 1; None of points that are no square."""
    rows, right = [], []
    for (x, y), (p, q) in zip(plane, rays, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -p * x, -p * y], [0, 0, 0, x, y, 1, -q * x, -q * y]]
        right += [p, q]
    try:
        return np.append(np.linalg.solve(np.array(rows), np.array(right)), 1.0).reshape(3, 3)
    except np.linalg.LinAlgError:
        return None


def _ippe(h: Array) -> list[tuple[Array, Array]]:
    """Return both poses (turn, shift) of a plane with this homography around its origin.

    Collins and Bartoli (2014), section 3.2: from the Jacobian of the homography at the origin.
    """
    p, q = h[0, 2], h[1, 2]
    jacobian = h[:2, :2] - np.outer((p, q), h[2, :2])
    ray = np.array((p, q, 1.0))
    ray /= np.linalg.norm(ray)
    # Turns the optical axis onto the ray of the origin.
    axis = np.cross((0.0, 0.0, 1.0), ray)
    sine, cosine = float(np.linalg.norm(axis)), float(ray[2])
    onto = np.eye(3) if sine < 1e-12 else rotation_by(axis / sine * atan2(sine, cosine))
    b = np.column_stack((np.eye(2), (-p, -q))) @ onto
    try:
        a = np.linalg.solve(b[:, :2], jacobian)
    except np.linalg.LinAlgError:
        return []
    gamma = float(np.linalg.svd(a, compute_uv=False)[0])
    if not gamma > 0.0 or not np.isfinite(gamma):
        return []
    r = a / gamma
    rest = np.eye(2) - r.T @ r
    bx, by = max(rest[0, 0], 0.0) ** 0.5, max(rest[1, 1], 0.0) ** 0.5
    if rest[0, 1] < 0.0:
        by = -by
    shift = ray / ray[2] / gamma
    found = []
    for sign in (1.0, -1.0):
        first = np.array((r[0, 0], r[1, 0], sign * bx))
        second = np.array((r[0, 1], r[1, 1], sign * by))
        turn = onto @ np.column_stack((first, second, np.cross(first, second)))
        w, _, vt = np.linalg.svd(turn)  # the nearest rotation
        found.append((w @ vt, shift))
    return found
