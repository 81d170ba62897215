"""A frame by rays: each pixel's ray meets floor, walls or sky, then what stands in the scene.

World axes here: north, east, down, with the floor at 0. The eye moves while a frame is taken:
sub-exposures make blur, a pose a row makes a rolling shutter. The only light is that of the lamps
above.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil, radians
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from blimp.printed import picture
from blimp.rotation import from_euler
from blimp.scene import COLOURS, Scenery
from blimp.sim.camera import surfaces
from blimp.sim.camera.optics import Optics
from blimp.types import Quaternion, Vec3

Array = NDArray[Any]
Pose = tuple[Vec3, Quaternion]  # of the ship: NED, the floor at 0
PoseAt = Callable[[float], Pose]

_BAND = 40  # rows at a time, so that a step's arrays stay in the cache
_AT_ONCE = 1 << 15  # rays to one thing, for the same reason
_FAR_M = 500.0
_NEAR_M = 0.02  # before the lens: nearer than this nothing is seen
_FLAT = 1e-4  # of a ray's slope, below which it meets no floor
_BACKGROUND_BLUR_PX, _MOST_BACKGROUNDS = 2.0, 4  # a sub-exposure each, of what has soft edges
_BLUR_PX, _FEWEST, _MOST = 0.7, 4, 16  # a sub-exposure each, of what has sharp edges
_INK, _PAPER = 25.0, 235.0  # printed black and white
# Camera axes (right, down, out) in those of a mounting that looks forward.
_FORWARD = np.array(((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)))
# Sub-pixels that share no row and no column: a rotated grid, and eight queens.
_FOUR = np.array(((-1.0, -3.0), (3.0, -1.0), (1.0, 3.0), (-3.0, 1.0))) / 8.0
_EIGHT = np.array(((0, 4), (5, 2), (2, 7), (7, 3), (4, 0), (1, 1), (6, 6), (3, 5))) / 8.0 - 0.4375


def matrix(q: Quaternion) -> Array:
    """Return the rotation of a quaternion, (3, 3)."""
    w, x, y, z = q
    return np.array(
        (
            (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)),
            (2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)),
            (2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)),
        )
    )


class Mount(NamedTuple):
    """Where the camera sits: metres forward, right and down of the hull's middle, and its turn.

    At 0 it looks forward, its picture upright; pitch -90 looks down, the bow at the top.
    """

    position_m: Vec3
    roll_deg: float = 0.0
    pitch_deg: float = -90.0
    yaw_deg: float = 0.0

    @property
    def rotation(self) -> Array:
        """From camera axes (right, down, out) to body axes."""
        angles = (radians(self.roll_deg), radians(self.pitch_deg), radians(self.yaw_deg))
        return cast(Array, matrix(from_euler(*angles)) @ _FORWARD)


class Shot(NamedTuple):
    """One exposure: its start in the pose's time, how long, and from first row to last row."""

    start_s: float
    exposure_s: float
    readout_s: float = 0.0  # 0: a global shutter


class _Eye:
    """Where rays begin and how they turn, for each sub-exposure and row.

    table: (s, rows, 12), or (s, 1, 12) where all rows are exposed at once; nine numbers of a
    rotation from camera to world, by rows, and three of a place.
    """

    def __init__(self, table: Array) -> None:
        self.table = table

    def rows(self, first: int, last: int) -> "_Eye":
        return self if self.table.shape[1] == 1 else _Eye(self.table[:, first:last])

    def rays(self, x: Array, y: Array) -> list[Array]:
        """Return where rays (s, rows, columns) go, in world axes."""
        return [x * self[3 * i] + y * self[3 * i + 1] + self[3 * i + 2] for i in range(3)]

    def from_point(self, point: Array) -> list[Array]:
        """Return where they begin, from a point of the world: (s, rows, 1)."""
        return [self[9 + i] - np.float32(point[i]) for i in range(3)]

    def __getitem__(self, k: int) -> Array:
        """Return one of the numbers, (s, rows, 1)."""
        return self.table[:, :, k, None]


class _Flat(NamedTuple):
    """A flat thing: its picture, None for a frame with a hole, which `hole` says.

    turn: world to its own axes (top, right, into it). half_m: of its square.
    """

    middle: Array
    turn: Array
    half_m: float
    cells: Array | None
    hole_m: float
    is_round: bool
    colour: Array

    def meets(self, rays: Sequence[Array], eye: _Eye) -> tuple[Array, Array]:
        """Return which rays (s, rows, columns) it stops, and its colour there."""
        turn = self.turn.astype(np.float32)
        start = eye.from_point(self.middle)
        top0, right0, into0 = (sum(turn[i, j] * start[j] for j in range(3)) for i in range(3))
        top, right, into = (sum(turn[i, j] * rays[j] for j in range(3)) for i in range(3))
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = -into0 / into
            a, b = top0 + reach * top, right0 + reach * right
            if self.cells is None:
                size = np.hypot(a, b) if self.is_round else np.maximum(np.abs(a), np.abs(b))
                covered = (reach > 0.0) & (size < self.half_m) & (size > self.hole_m)
                return covered, np.broadcast_to(self.colour.astype(np.float32), (*covered.shape, 3))
            covered = (reach > 0.0) & (into0 < 0.0)
            covered &= (np.abs(a) < self.half_m) & (np.abs(b) < self.half_m)
        count = len(self.cells)
        scale = np.float32(0.5 * count / self.half_m)
        row = np.where(covered, (self.half_m - a) * scale, 0.0).astype(np.int32)
        column = np.where(covered, (self.half_m + b) * scale, 0.0).astype(np.int32)
        index = np.minimum(row, count - 1) * count + np.minimum(column, count - 1)
        return covered, self.cells.ravel().take(index)[..., None]


class _Ball(NamedTuple):
    """An ellipsoid. to_unit: world, from its middle, to where it is a ball of radius 1."""

    middle: Array
    to_unit: Array
    reach_m: float
    colour: Array

    def meets(self, rays: Sequence[Array], eye: _Eye) -> tuple[Array, Array]:
        """Return which rays (s, rows, columns) it stops, and its colour there.

        Lamps above: the brighter, the more its skin looks up; a shine where it looks straight up.
        """
        unit = self.to_unit.astype(np.float32)
        start = eye.from_point(self.middle)
        o = [sum(unit[i, j] * start[j] for j in range(3)) for i in range(3)]
        d = [sum(unit[i, j] * rays[j] for j in range(3)) for i in range(3)]
        a = sum(part * part for part in d)
        b = sum(p * q for p, q in zip(o, d, strict=True))
        c = sum(part * part for part in o) - 1.0
        discriminant = b * b - a * c
        reach = (-b - np.sqrt(np.maximum(discriminant, 0.0))) / a
        covered = (discriminant > 0.0) & (reach > 0.0)
        normal = [p + reach * q for p, q in zip(o, d, strict=True)]
        world = [sum(unit[j, i] * normal[j] for j in range(3)) for i in range(3)]
        length = np.sqrt(sum(part * part for part in world))
        up = -world[2] / np.maximum(length, 1e-6)
        shade = 0.65 + 0.35 * up
        shine = 60.0 * np.maximum(up, 0.0) ** 12
        return covered, np.clip(
            shade[..., None] * self.colour.astype(np.float32) + shine[..., None], 0.0, 255.0
        )


class Renderer:
    """Draws one scene through one lens. Keeps a table of rays, and nothing of the frames.

    mount: of the camera on the ship. Raises ConfigError where the library of tags is missing.
    """

    def __init__(self, scene: Scenery, optics: Optics, mount: Mount, *, grey: bool = False) -> None:
        self.optics = optics
        self._scene = scene
        self._turn = mount.rotation
        self._arm = np.array(mount.position_m)
        self.grey = grey
        self._atlas = surfaces.atlas(scene.floor)
        self._colours = self._atlas.grey if grey else self._atlas.colours
        self._flats = [_tag(tag) for tag in sorted(scene.tag, key=lambda tag: -tag.size_m)]
        self._gates = [_gate(gate) for gate in scene.gate]
        self._ships = [_ship(ship) for ship in scene.ship]
        self.balloons: list[Vec3] = [
            (balloon.north_m, balloon.east_m, -balloon.altitude_m) for balloon in scene.balloon
        ]

    # --- where the camera is ------------------------------------------------------------------

    def _knots(self, pose_at: PoseAt, shot: Shot) -> Array:
        """Return rotation and place at start, middle and end of the whole frame, (3, 12)."""
        span_s = shot.exposure_s + shot.readout_s
        knots = np.empty((3, 12))
        for i in range(3):
            place, attitude = pose_at(shot.start_s + 0.5 * i * span_s)
            body = matrix(attitude)
            knots[i, :9] = (body @ self._turn).ravel()
            knots[i, 9:] = np.array(place) + body @ self._arm
        return knots

    def _eye(self, knots: Array, shot: Shot, samples: int) -> _Eye:
        """Return the eye of each sub-exposure and row: through three poses, a parabola."""
        height = self.optics.height
        span_s = shot.exposure_s + shot.readout_s
        rows = np.arange(height) / (height - 1.0) if shot.readout_s > 0.0 else np.zeros(1)
        at_s = (np.arange(samples)[:, None] + 0.5) / samples * shot.exposure_s
        at_s = at_s + rows * shot.readout_s
        tau = at_s / span_s if span_s > 0.0 else at_s
        weights = np.stack(
            ((2.0 * tau - 1.0) * (tau - 1.0), 4.0 * tau * (1.0 - tau), tau * (2.0 * tau - 1.0)), -1
        )
        return _Eye((weights @ knots).astype(np.float32))

    def _blur_px(self, knots: Array, shot: Shot) -> float:
        """Return about how far the picture moves in one exposure."""
        span_s = shot.exposure_s + shot.readout_s
        if not span_s > 0.0:
            return 0.0
        turned = float(np.linalg.norm(knots[2, :9] - knots[0, :9])) / 1.414
        moved = float(np.linalg.norm(knots[2, 9:] - knots[0, 9:]))
        near_m = max(0.3, abs(float(knots[1, 11])))
        return self.optics.fx * (turned + moved / near_m) * shot.exposure_s / span_s

    # --- a frame ------------------------------------------------------------------------------

    def render(self, pose_at: PoseAt, shot: Shot) -> Array:
        """Return what the lens throws on the sensor: (height, width, 3) RGB of uint8, or grey
        (height, width)."""
        knots = self._knots(pose_at, shot)
        blur_px = self._blur_px(knots, shot)
        few = min(_MOST_BACKGROUNDS, max(1, ceil(blur_px / _BACKGROUND_BLUR_PX)))
        many = min(_MOST, max(_FEWEST, ceil(blur_px / _BLUR_PX)))
        canvas = self._background(self._eye(knots, shot, few))
        eye = self._eye(knots, shot, many)
        boxes = self._boxes(knots)
        for flat in self._flats:
            self._paint(canvas, eye, next(boxes), flat)
        things: list[_Flat | _Ball] = [*self._gates, *self._ships, *self._balls()]
        distances = [float(np.linalg.norm(thing.middle - knots[1, 9:])) for thing in things]
        for _, thing, box in sorted(
            zip(distances, things, boxes, strict=True), key=lambda row: -row[0]
        ):
            self._paint(canvas, eye, box, thing)
        return canvas if self.grey else canvas[..., :3]

    def _balls(self) -> list[_Ball]:
        return [
            _Ball(
                np.array(place),
                np.eye(3) * (2.0 / balloon.diameter_m),
                0.5 * balloon.diameter_m,
                np.array(COLOURS[balloon.colour], float),
            )
            for place, balloon in zip(self.balloons, self._scene.balloon, strict=True)
        ]

    def _background(self, eye: _Eye) -> Array:
        optics = self.optics
        height, width = optics.height, optics.width
        samples = eye.table.shape[0]
        shape = (height, width) if self.grey else (height, width, 4)
        canvas = np.empty(shape, np.uint8)
        down_m = float(-eye.table[0, 0, 11])
        texel_m = max(down_m, 0.05) / optics.fx
        level = int(np.clip(round(np.log2(texel_m / surfaces.FLOOR_M)), 0, surfaces.LEVELS - 1))
        for first in range(0, height, _BAND):
            last = min(height, first + _BAND)
            mean: Array | None = None
            for k in range(samples):
                x, y = self._rays(slice(first, last), slice(0, width), k, samples)
                one = _Eye(eye.rows(first, last).table[k : k + 1])
                index = self._meets(x, y, one, level)
                seen = self._colours.take(index, mode="wrap")
                band = seen.view(np.uint8).reshape(canvas[first:last].shape)
                if samples == 1:
                    canvas[first:last] = band
                elif mean is None:
                    mean = band.astype(np.uint16)
                else:
                    mean += band
            if mean is not None:
                canvas[first:last] = (mean + samples // 2) // samples
        return canvas

    def _rays(self, rows: slice, columns: slice, k: int, samples: int) -> list[Array]:
        """Return the rays of one sub-pixel of each pixel; in the middle where there is but one."""
        if samples == 1:
            return [ray[rows, columns] for ray in self.optics.rays]
        return self._sub_rays(rows, columns, _FOUR[[k]])

    def _sub_rays(self, rows: slice, columns: slice, offsets: Array) -> list[Array]:
        """Return the rays of sub-pixels (s, 2) of each pixel: (s, rows, columns), two of them."""
        right = slice(columns.start + 1, columns.stop + 1)
        below = slice(rows.start + 1, rows.stop + 1)
        du = offsets[:, 0, None, None].astype(np.float32)
        dv = offsets[:, 1, None, None].astype(np.float32)
        return [
            ray[rows, columns]
            + du * (ray[rows, right] - ray[rows, columns])
            + dv * (ray[below, columns] - ray[rows, columns])
            for ray in self.optics.rays
        ]

    def _meets(self, x: Array, y: Array, eye: _Eye, level: int) -> Array:
        """Return which colour of the atlas each ray ends on."""
        dn, de, dd = ((x * eye[3 * i] + y * eye[3 * i + 1] + eye[3 * i + 2])[0] for i in range(3))
        n0, e0, d0 = eye[9][0], eye[10][0], eye[11][0]
        low = dd < _FLAT
        reach = np.divide(-d0, dd, out=np.full_like(dd, _FAR_M), where=~low)
        np.minimum(reach, _FAR_M, out=reach)
        north, east = n0 + reach * dn, e0 + reach * de
        room = self._scene.room
        beyond = low
        if room is not None:
            beyond = beyond | (north < room.north_m[0]) | (north > room.north_m[1])
            beyond |= (east < room.east_m[0]) | (east > room.east_m[1])
        cells = surfaces.FLOOR_CELLS >> level
        index = _wrapped(north, surfaces.FLOOR_M * 2**level, cells)
        index *= cells
        index += _wrapped(east, surfaces.FLOOR_M * 2**level, cells)
        index += self._atlas.floor[level]
        if beyond.any():
            shape = dd.shape
            at = np.nonzero(beyond)
            rays = [part[at] for part in (dn, de, dd)]
            start = [np.broadcast_to(part, shape)[at] for part in (n0, e0, d0)]
            index[at] = self._beyond(rays, start)
        return index

    def _beyond(self, rays: Sequence[Array], start: Sequence[Array]) -> Array:
        """Return what rays that miss the floor end on: wall, ceiling, sky."""
        room = self._scene.room
        if room is None:
            up = -rays[2] / np.sqrt(rays[0] ** 2 + rays[1] ** 2 + rays[2] ** 2)
            shade: Array = np.clip(up * 255.0, 0.0, 255.0).astype(np.int32)
            shade += self._atlas.sky
            return shade
        limits = (room.north_m, room.east_m, (-room.height_m, 0.0))
        reaches = []
        for ray, begin, (low, high) in zip(rays, start, limits, strict=True):
            safe = np.where(np.abs(ray) < 1e-6, np.float32(1e-6), ray)
            limit = np.where(safe > 0.0, np.float32(high), np.float32(low))
            reaches.append((limit - begin) / safe)
        reach = np.minimum(np.minimum(reaches[0], reaches[1]), reaches[2])
        is_end, is_ceiling = reaches[0] == reach, reaches[2] == reach
        hit = [begin + reach * ray for ray, begin in zip(rays, start, strict=True)]
        cells, (end, side, ceiling) = surfaces.WALL_CELLS, self._atlas.walls
        index = _wrapped(np.where(is_ceiling, hit[1], hit[2]), surfaces.WALL_M, cells)
        index *= cells
        index += _wrapped(np.where(is_end, hit[1], hit[0]), surfaces.WALL_M, cells)
        index += np.where(is_end, end, np.where(is_ceiling, ceiling, side)).astype(np.int32)
        return index

    # --- what stands in it ----------------------------------------------------------------------

    def _boxes(self, knots: Array) -> Iterator[tuple[slice, slice]]:
        """Yield where each thing may be seen, as (rows, columns), in the order of drawing."""
        things: list[_Flat | _Ball] = [*self._flats, *self._gates, *self._ships, *self._balls()]
        if not things:
            return
        corners = np.array([_corners(thing) for thing in things])  # (n, 8, 3)
        lows, highs, gone = [], [], []
        for knot in knots:
            seen = (corners - knot[9:]) @ knot[:9].reshape(3, 3)
            behind = seen[..., 2] < _NEAR_M
            gone.append(behind.all(axis=1))
            for i in np.nonzero(behind.any(axis=1) & ~gone[-1])[0]:
                seen[i] = _before(seen[i])
            places = self.optics.pixels(seen)
            lows.append(places.min(axis=1))
            highs.append(places.max(axis=1))
        width, height = self.optics.width, self.optics.height
        low = np.clip(np.min(lows, axis=0) - 2.0, 0.0, (width, height)).astype(int)
        high = np.clip(np.max(highs, axis=0) + 3.0, 0.0, (width, height)).astype(int)
        every = np.all(gone, axis=0)
        high[every] = low[every]
        for (left, top), (right, bottom) in zip(low.tolist(), high.tolist(), strict=True):
            yield slice(top, bottom), slice(left, right)

    def _paint(
        self, canvas: Array, eye: _Eye, box: tuple[slice, slice], thing: "_Flat | _Ball"
    ) -> None:
        """Draw one thing over what is there, by the share of each pixel that it covers."""
        rows, columns = box
        samples = eye.table.shape[0]
        wide = samples * (columns.stop - columns.start)
        if wide <= 0:
            return
        offsets = _FOUR if samples == len(_FOUR) else _EIGHT[np.arange(samples) % len(_EIGHT)]
        step = max(1, _AT_ONCE // wide)
        for first in range(rows.start, rows.stop, step):
            band = slice(first, min(rows.stop, first + step))
            x, y = self._sub_rays(band, columns, offsets)
            here = eye.rows(band.start, band.stop)
            covered, colour = thing.meets(here.rays(x, y), here)
            if not covered.any():
                continue
            if self.grey and colour.shape[-1] == 3:
                colour = surfaces.grey_of(colour)[..., None]
            weight = covered[..., None] * np.float32(1.0 / samples)
            new, left = (weight * colour).sum(axis=0), 1.0 - weight.sum(axis=0)
            part = canvas[band, columns, None] if self.grey else canvas[band, columns, :3]
            part[...] = np.rint(part * left + new)


def _wrapped(place_m: Array, cell_m: float, cells: int) -> Array:
    """Return the cell of a pattern that repeats; `cells` is a power of two."""
    offset = cells * 2 ** ceil(np.log2(2.0 * _FAR_M / cell_m / cells + 1.0))
    index: Array = (place_m * np.float32(1.0 / cell_m) + np.float32(offset)).astype(np.int32)
    index &= cells - 1
    return index


def _before(corners: Array) -> Array:
    """Return eight points around what a body with these corners has in front of the lens.

    corners: (8, 3), on both sides of the plane just before it.
    """
    depth = corners[:, 2] - _NEAR_M
    front, back = corners[depth >= 0.0], corners[depth < 0.0]
    share = depth[depth >= 0.0][:, None] / (depth[depth >= 0.0][:, None] - depth[depth < 0.0])
    cut = front[:, None] + share[..., None] * (back[None] - front[:, None])
    points = np.concatenate((front, cut.reshape(-1, 3)))
    slopes = points[:, :2] / np.maximum(points[:, 2:], _NEAR_M)
    (left, top), (right, bottom) = slopes.min(axis=0), slopes.max(axis=0)
    corner = ((left, top), (right, top), (left, bottom), (right, bottom))
    return np.array([(x, y, 1.0) for x, y in corner] * 2)


def _corners(thing: _Flat | _Ball) -> Array:
    """Return eight points around a thing, in world axes."""
    if isinstance(thing, _Flat):
        h = thing.half_m
        round_it = ((h, h), (h, 0.0), (h, -h), (0.0, -h), (-h, -h), (-h, 0.0), (-h, h), (0.0, h))
        return np.array([(a, b, 0.0) for a, b in round_it]) @ thing.turn + thing.middle
    r = thing.reach_m
    cube = np.array([(n, e, d) for n in (-r, r) for e in (-r, r) for d in (-r, r)])
    return cube + thing.middle


def _placed(thing: Any) -> tuple[Array, Array]:
    """Return a thing's middle, and the rotation from world to its own axes."""
    angles = (radians(thing.roll_deg), radians(thing.pitch_deg), radians(thing.yaw_deg))
    return (
        np.array((thing.north_m, thing.east_m, -thing.altitude_m)),
        matrix(from_euler(*angles)).T,
    )


def _tag(tag: Any) -> _Flat:
    cells, inner = picture(tag.family, tag.id)
    middle, turn = _placed(tag)
    ink = np.where(cells > 0, _PAPER, _INK).astype(np.float32)
    half_m = 0.5 * tag.size_m * len(cells) / inner
    return _Flat(middle, turn, half_m, ink, 0.0, False, np.zeros(3))


def _gate(gate: Any) -> _Flat:
    middle, turn = _placed(gate)
    hole_m = 0.5 * gate.opening_m
    colour = np.array(COLOURS[gate.colour], float)
    return _Flat(middle, turn, hole_m + gate.frame_m, None, hole_m, gate.shape == "ring", colour)


def _ship(ship: Any) -> _Ball:
    middle, turn = _placed(ship)
    axes = np.array((ship.length_m, ship.diameter_m, ship.diameter_m))
    to_unit = (turn.T / (0.5 * axes)).T
    colour = np.array(COLOURS[ship.colour], float)
    return _Ball(middle, to_unit, 0.5 * max(ship.length_m, ship.diameter_m), colour)
