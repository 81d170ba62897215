"""How well a ship knows its place by printed tags: `python -m benchmarks.tags`.

`--stills N --landings N --flights N --seed N`, of the first one. Pictures are drawn and looked at.
Each still and each flight has a lens, a mount and a room of its own, drawn at random: focal length
within 1 %, mount within 1 cm and a degree, tags 5 mm (one sigma) from where the map has them.
Stills: 10 ms of exposure of a ship that drifts by .3 m/s and turns by 15 degrees a second, tilted
by 3 degrees (one sigma), at 1.5 to 4 m. Flights: the published GT-MAB circle in .3 m/s of gusts
with the camera 100 ms late, its only position; from the pad and back. NEES is over its degrees of
freedom, 1 for an honest covariance. Simulated, in Lockstep.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from math import degrees, dist, hypot, radians
from multiprocessing import Pool
from random import Random
from typing import Any

import msgspec
import numpy as np

from benchmarks.track import reference
from blimp import airframe as airframes
from blimp.airframe import CameraRow
from blimp.camera.detect import TagDetector
from blimp.camera.paper import pad_page
from blimp.camera.pose import Mounted, Pose, PoseSolver
from blimp.camera.position import camera_row, lens_of
from blimp.camera.tag_map import TagMap
from blimp.rotation import from_euler, integrate, wrap_pi, yaw_of
from blimp.scene import Scenery, Tag
from blimp.service.tune.track import Plant, track
from blimp.ship.eye import let_see
from blimp.ship.lockstep import Lockstep
from blimp.sim.camera.camera import SimulatedCamera
from blimp.sim.camera.optics import Optics
from blimp.sim.camera.render import Mount

SHIP = "gtmab-eye"
FOCAL, MOUNT_M, MOUNT_DEG, SURVEY_M = 0.01, 0.01, 1.0, 0.005
EXPOSURE_S = 0.01
_BINS_M = ((1.5, 2.0), (2.0, 2.7), (2.7, 3.4), (3.4, 4.0))


class Drawn:
    """A lens, a mount and a room that differ from what the ship believes."""

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        found = camera_row(airframes.load(SHIP))
        assert found is not None
        self.row: CameraRow = found[1]
        self.believed = room()
        self.scene = Scenery(
            floor=seed,
            tag=tuple(
                Tag(
                    id=tag.id, size_m=tag.size_m,
                    north_m=tag.north_m + draw.gauss(0.0, tag.sigma_m),
                    east_m=tag.east_m + draw.gauss(0.0, tag.sigma_m),
                    altitude_m=tag.altitude_m + abs(draw.gauss(0.0, 0.2 * tag.sigma_m)),
                    yaw_deg=tag.yaw_deg + draw.gauss(0.0, 0.3),
                )
                for tag in self.believed.tags
            ),
        )  # fmt: skip
        row = self.row
        ideal = lens_of(row)
        focal = ideal.fx * (1.0 + draw.uniform(-FOCAL, FOCAL))
        self.optics = Optics(
            width=row.width, height=row.height, fx=focal, fy=focal, cx=ideal.cx, cy=ideal.cy
        )
        x, y, z = (a + draw.uniform(-MOUNT_M, MOUNT_M) for a in row.position_m)
        turned = [
            a + draw.uniform(-MOUNT_DEG, MOUNT_DEG)
            for a in (row.roll_deg, row.pitch_deg, row.yaw_deg)
        ]
        self.mount = Mount((x, y, z), *turned)
        self.random = draw


def room() -> TagMap:
    """Return a pad in a grid of 20 cm tags, a metre from one to the next."""
    grid = [
        Tag(
            id=i, size_m=0.2, north_m=i // 9 - 4.0, east_m=i % 9 - 4.0, yaw_deg=float(37 * i % 360),
            sigma_m=SURVEY_M,
        )
        for i in range(81)
        if i != 40
    ]  # fmt: skip
    return TagMap(tags=(*grid, *pad_page("a4")[1]))


def still(seed: int) -> dict[str, Any]:
    """Return the errors of one picture."""
    drawn, ship = Drawn(seed), airframes.load(SHIP)
    draw, stand_m = drawn.random, ship.stand_m
    height_m = draw.uniform(1.5, 4.0)  # of the lens above the floor
    place = (draw.uniform(-1.5, 1.5), draw.uniform(-1.5, 1.5), stand_m - height_m - 0.3)
    tilt = radians(3.0)
    angles = (draw.gauss(0.0, tilt), draw.gauss(0.0, tilt), draw.uniform(-3.1, 3.1))
    attitude = from_euler(*angles)
    velocity = [draw.gauss(0.0, 0.3), draw.gauss(0.0, 0.3), draw.gauss(0.0, 0.1)]
    rates = (draw.gauss(0.0, 0.1), draw.gauss(0.0, 0.1), draw.gauss(0.0, radians(15.0)))

    def pose_at(t_s: float) -> Any:
        north, east, down = (p + v * t_s for p, v in zip(place, velocity, strict=True))
        return (north, east, down), integrate(attitude, rates, t_s)

    camera = SimulatedCamera(
        drawn.scene, drawn.optics, drawn.mount, pose_at, stand_m=stand_m,
        exposure_s=EXPOSURE_S, grey=True, seed=seed,
    )  # fmt: skip
    row = drawn.row
    solver = PoseSolver(
        drawn.believed, lens_of(row),
        Mounted(row.position_m, row.roll_deg, row.pitch_deg, row.yaw_deg),
    )  # fmt: skip
    pose = solver.solve(TagDetector(drawn.believed.families).detect(camera.render(0.0)))
    if not isinstance(pose, Pose):
        return {"height_m": height_m, "why": pose.reason}
    error = np.array(pose.position_ned_m) - (place[0], place[1], place[2] - stand_m)
    yaw = wrap_pi(pose.yaw_rad - yaw_of(attitude))
    both = np.append(error, yaw)
    return {
        "height_m": height_m,
        "error_m": [float(e) for e in error],
        "yaw_deg": degrees(yaw),
        "nees": float(both @ np.linalg.solve(pose.covariance, both)) / 4.0,
        "tags": len(pose.tags),
    }


def flight(seed: int) -> dict[str, Any]:
    """Return the tracking of a circle flown by the camera alone."""
    drawn = Drawn(seed)

    def prepare(ship: Lockstep) -> None:
        let_see(
            ship.world, ship.airframe, drawn.scene, tag_map=drawn.believed, optics=drawn.optics,
            mount=drawn.mount, exposure_s=EXPOSURE_S, seed=seed,
        )  # fmt: skip
        ship.step(1.0)

    try:
        found = track(
            reference("circle"), airframe=SHIP, plant=Plant(seed=seed, gust_mps=0.3),
            pose_sensor="camera", prepare=prepare,
        )  # fmt: skip
    except Exception as error:
        return {"seed": seed, "why": str(error)}
    return {"seed": seed, **msgspec.structs.asdict(found)}


def landing(seed: int) -> dict[str, Any]:
    """Return how a take-off to 1.5 m and a landing on the pad ended, by the camera alone."""
    drawn = Drawn(seed)
    with Lockstep(SHIP, seed=seed) as ship:
        let_see(
            ship.world, ship.airframe, drawn.scene, tag_map=drawn.believed, optics=drawn.optics,
            mount=drawn.mount, exposure_s=EXPOSURE_S, seed=seed,
        )  # fmt: skip
        ship.step(1.0)
        if ship.problems():
            return {"seed": seed, "why": "; ".join(ship.problems())}
        ship.command("arm")
        ship.complete("takeoff", within_s=60.0, check=False, altitude_m=1.5)
        errors, squares = [], []
        for _ in range(20):
            ship.step(0.5)
            true, state = ship.truth.position_ned_m, ship.state
            errors.append(dist(true, state.position_ned_m))
            north, east = (state.position_ned_m[i] - true[i] for i in (0, 1))
            squares.append((north**2 + east**2) / (2.0 * state.health.position.sigma**2))
        ship.command("land")
        for _ in range(120):
            ship.step(0.5)
            if not ship.armed:
                break
        off_m = hypot(*ship.truth.position_ned_m[:2])
        return {
            "seed": seed, "landed": not ship.armed, "off_m": off_m,
            "error_m": statistics.fmean(e * e for e in errors) ** 0.5,
            "nees": statistics.fmean(squares),
        }  # fmt: skip


def _rms(values: Sequence[float]) -> float:
    return statistics.fmean(v * v for v in values) ** 0.5 if values else float("nan")


def _stills(rows: Sequence[dict[str, Any]]) -> None:
    print(f"{'height m':>10} {'pictures':>8} {'none':>5} {'tags':>5} {'north':>6} {'east':>6} "
          f"{'down':>6} {'3-D cm':>7} {'worst':>6} {'yaw deg':>8} {'NEES':>5}")  # fmt: skip
    for low, high in (*_BINS_M, (0.0, 9.0)):
        inside = [row for row in rows if low <= row["height_m"] < high]
        good = [row for row in inside if "why" not in row]
        if not good:
            continue
        north, east, down = (_rms([row["error_m"][i] for row in good]) for i in range(3))
        whole = [hypot(*row["error_m"]) for row in good]
        print(
            f"{low:4.1f} - {high:3.1f} {len(inside):8} {len(inside) - len(good):5} "
            f"{statistics.fmean(row['tags'] for row in good):5.1f} {100 * north:6.2f} "
            f"{100 * east:6.2f} {100 * down:6.2f} {100 * _rms(whole):7.2f} "
            f"{100 * max(whole):6.1f} {_rms([row['yaw_deg'] for row in good]):8.2f} "
            f"{statistics.fmean(row['nees'] for row in good):5.2f}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stills", type=int, default=200)
    parser.add_argument("--flights", type=int, default=4)
    parser.add_argument("--landings", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1, help="of the first one")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    first = options.seed
    with Pool(options.jobs) as pool:
        if options.stills:
            _stills(pool.map(still, range(first, first + options.stills)))
        for found in pool.imap(landing, range(first, first + options.landings)):
            print("pad and back:", found, flush=True)
        for found in pool.imap(flight, range(first, first + options.flights)):
            print("circle:", found, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
