"""Positions from corners: exact ones, those with noise, and those that are wrong."""

from typing import Any

import msgspec
import numpy as np
import pytest

from blimp.camera import lens as lenses
from blimp.camera.detect import Detection
from blimp.camera.pose import Mounted, NoPose, Pose, PoseSolver, square_poses
from blimp.camera.tag_map import TagMap, corners_ned_m
from blimp.rotation import from_euler, rotate
from blimp.scene import Tag
from tests.camera.frames import corners

LENS = lenses.of_view(728, 544, 66.0)
MOUNT = Mounted(position_m=(0.04, 0.01, 0.3))
ROOM = TagMap(
    tags=tuple(
        Tag(id=i, size_m=0.2, north_m=i // 7 - 3.0, east_m=i % 7 - 3.0, yaw_deg=13.0 * i)
        for i in range(49)
    )
)
PLACE, ANGLES = (0.3, -0.4, -2.8), (0.05, -0.04, 0.7)


def seen(
    place: Any = PLACE, angles: Any = ANGLES, *, tags: Any = ROOM.tags, noise_px: float = 0.0,
    seed: int = 1,
) -> list[Detection]:  # fmt: skip
    room, random = TagMap(tags=tags), np.random.default_rng(seed)
    return corners(room, LENS, place, angles, random, mount=MOUNT, noise_px=noise_px)


def solve(detections: list[Detection], room: TagMap = ROOM) -> Pose:
    pose = PoseSolver(room, LENS, MOUNT).solve(detections)
    assert isinstance(pose, Pose), pose
    return pose


def why_not(detections: list[Detection], room: TagMap = ROOM) -> str:
    refusal = PoseSolver(room, LENS, MOUNT).solve(detections)
    assert isinstance(refusal, NoPose), refusal
    return refusal.reason


def test_exact_corners_give_the_exact_place() -> None:
    pose = solve(seen())
    assert len(pose.tags) >= 6
    # The weight of a level hull, six degrees, pulls a little.
    assert pose.position_ned_m == pytest.approx(PLACE, abs=0.002)
    assert pose.yaw_rad == pytest.approx(ANGLES[2], abs=0.001)


def test_one_of_two_poses_of_a_square_is_the_true_one() -> None:
    tag = Tag(id=0, size_m=0.2, north_m=0.5, east_m=0.2)
    for angles in ((0.0, 0.0, 0.0), (0.3, -0.2, 2.0)):
        (one,) = seen((0.0, 0.0, -1.5), angles, tags=(tag,))
        body = np.array([rotate(from_euler(*angles), axis) for axis in np.eye(3)]).T  # type: ignore[arg-type]
        eye = np.array((0.0, 0.0, -1.5)) + body @ np.array(MOUNT.position_m)
        poses = square_poses(LENS.undistort(one.corners_px), np.array(corners_ned_m(tag)))
        assert len(poses) == 2
        assert min(float(np.linalg.norm(place - eye)) for place, _ in poses) < 1e-6


def test_its_error_is_what_its_covariance_says() -> None:
    random = np.random.default_rng(11)
    nees = []
    for seed in range(60):
        place = (*random.uniform(-0.8, 0.8, 2), -random.uniform(1.8, 4.0))
        angles = (*random.normal(0.0, 0.04, 2), random.uniform(-3.0, 3.0))
        pose = solve(seen(place, angles, noise_px=0.2, seed=seed))
        turned = (pose.yaw_rad - angles[2] + np.pi) % (2.0 * np.pi) - np.pi
        error = np.append(np.array(pose.position_ned_m) - place, turned)
        nees.append(error @ np.linalg.solve(pose.covariance - pose.bias, error))
    # Of four numbers and 60 pictures: chi-square of 240, within 4 deviations, 22 each.
    assert 240 - 88 < sum(nees) < 240 + 88


def test_a_tag_that_was_moved_is_named_and_not_used() -> None:
    moved = tuple(
        msgspec.structs.replace(tag, north_m=tag.north_m + 0.3) if tag.id == 24 else tag
        for tag in ROOM.tags
    )
    pose = solve(seen(tags=moved))
    assert pose.outliers == (("tag36h11", 24),)
    assert pose.position_ned_m == pytest.approx(PLACE, abs=0.005)


def test_wrong_ids_are_outvoted() -> None:
    found = seen()
    wrong = [msgspec.structs.replace(one, id=48 - i) for i, one in enumerate(found[:2])]
    pose = solve(wrong + found[2:])
    assert len(pose.outliers) == 2
    assert pose.position_ned_m == pytest.approx(PLACE, abs=0.005)


def test_two_that_contradict_each_other_give_no_place() -> None:
    found = seen()[:2]
    found[1] = msgspec.structs.replace(found[1], id=48)
    assert why_not(found) == "only 1 of 2 tags agree"


def test_a_mirrored_picture_gives_no_place() -> None:
    found = [
        msgspec.structs.replace(one, corners_px=one.corners_px * (-1.0, 1.0) + (727.0, 0.0))
        for one in seen()
    ]
    assert why_not(found) == "no pose explains the tags"


def test_a_far_small_tag_alone_is_refused() -> None:
    # Both tilts of a square of 14 pixels look the same, and are half a metre apart.
    tags = (Tag(id=0, size_m=0.1, north_m=0.9, east_m=0.9),)
    for seed in range(5):
        found = seen((0.0, 0.0, -4.3), (0.1, 0.1, 0.0), tags=tags, noise_px=0.2, seed=seed)
        assert len(found) == 1
        pose = PoseSolver(TagMap(tags=tags), LENS, MOUNT).solve(found)
        if isinstance(pose, Pose):  # the hull hangs level: that much is known
            error = np.array(pose.position_ned_m) - (0.0, 0.0, -4.3)
            assert float(error @ np.linalg.solve(pose.covariance[:3, :3], error)) < 25.0


def test_what_is_not_in_the_map_is_named() -> None:
    assert why_not([]) == "no tag in view"
    found = [msgspec.structs.replace(seen()[0], id=500)]
    assert why_not(found) == "not in the map: tag36h11 500"


def test_an_id_that_is_seen_twice_is_no_witness() -> None:
    found = seen()
    pose = solve([*found, msgspec.structs.replace(found[0], corners_px=found[3].corners_px)])
    assert found[0].key not in pose.tags


def test_a_wrong_focal_length_is_within_what_it_claims() -> None:
    wrong = msgspec.structs.replace(LENS, fx=1.01 * LENS.fx, fy=1.01 * LENS.fy)
    pose = PoseSolver(ROOM, wrong, MOUNT).solve(seen())
    assert isinstance(pose, Pose)
    error = np.array(pose.position_ned_m) - PLACE
    assert abs(error[2]) == pytest.approx(0.01 * 2.5, abs=0.006)
    assert float(error @ np.linalg.solve(pose.covariance[:3, :3], error)) < 11.3  # 99 % of 3


def test_mount_angles_turn_as_a_hull_does() -> None:
    forward = Mounted(pitch_deg=0.0).rotation
    assert forward[:, 2] == pytest.approx((1.0, 0.0, 0.0))
    down = Mounted(pitch_deg=-90.0).rotation
    assert down[:, 2] == pytest.approx((0.0, 0.0, 1.0))
    assert down[:, 1] == pytest.approx((-1.0, 0.0, 0.0)), "the bow is at the top"
    assert Mounted(yaw_deg=90.0, pitch_deg=0.0).rotation[:, 2] == pytest.approx((0.0, 1.0, 0.0))
