"""What the renderer draws against what geometry says it must."""

from math import radians
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyapriltags import Detector

from blimp.errors import ConfigError
from blimp.printed import family_of, picture
from blimp.rotation import from_euler
from blimp.scene import (
    EMPTY,
    FAMILIES,
    Balloon,
    GateFrame,
    OtherShip,
    Scenery,
    Tag,
    Walls,
    hall,
    of,
    parse,
)  # fmt: skip
from blimp.sim.camera.camera import SimulatedCamera
from blimp.sim.camera.optics import Optics
from blimp.sim.camera.render import Mount, Pose, Renderer, Shot
from blimp.types import LEVEL
from tests.sim.camera.eyes import seeing
from tests.sim.ships import gtmab

OPTICS = Optics.of_view(640, 480, horizontal_fov_deg=66.0)
DOWN = Mount((0.0, 0.0, 0.0))
AHEAD = Mount((0.0, 0.0, 0.0), pitch_deg=0.0)
STILL = Shot(0.0, 0.0)


def draw(scene: Scenery, pose: Pose, *, mount: Mount = DOWN, optics: Optics = OPTICS) -> Any:
    return Renderer(scene, optics, mount, grey=True).render(lambda _: pose, STILL)


def corners_of(tag: Tag) -> np.ndarray[Any, Any]:
    """Of a tag that lies flat: its black square from its top left on, clockwise, NED."""
    h, c, s = 0.5 * tag.size_m, np.cos(radians(tag.yaw_deg)), np.sin(radians(tag.yaw_deg))
    square = ((h, -h), (h, h), (-h, h), (-h, -h))
    return np.array(
        [(tag.north_m + a * c - b * s, tag.east_m + a * s + b * c, 0.0) for a, b in square]
    )


@pytest.mark.parametrize("distortion", [(0.0,) * 5, (-0.3, 0.1, 0.001, -0.001, 0.0)])
def test_a_detector_finds_tags_where_they_project_to(distortion: Any) -> None:
    optics = Optics(
        width=640, height=480, fx=490.0, fy=495.0, cx=310.0, cy=236.0, distortion=distortion
    )
    printed = [
        Tag(id=7, size_m=0.2, north_m=0.5, east_m=-0.6, yaw_deg=30.0),
        Tag(id=300, size_m=0.3, north_m=-0.4, east_m=0.3, yaw_deg=-100.0),
    ]
    attitude = from_euler(0.05, -0.04, 0.3)
    frame = draw(Scenery(tag=tuple(printed)), ((0.1, -0.1, -2.0), attitude), optics=optics)
    found = {d.tag_id: d for d in Detector(families="tag36h11", quad_decimate=1.0).detect(frame)}
    assert sorted(found) == [7, 300]
    from blimp.sim.camera.render import matrix

    to_world = matrix(attitude) @ DOWN.rotation
    for tag in printed:
        there = (corners_of(tag) - np.array((0.1, -0.1, -2.0))) @ to_world
        # OpenCV's formula once more, with its own words.
        k1, k2, p1, p2, k3 = distortion
        x, y = there[:, 0] / there[:, 2], there[:, 1] / there[:, 2]
        r2 = x**2 + y**2
        radial = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3
        u = optics.fx * (x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x**2)) + optics.cx
        v = optics.fy * (y * radial + p1 * (r2 + 2 * y**2) + 2 * p2 * x * y) + optics.cy
        seen = found[tag.id].corners - 0.5  # AprilTag counts from the first pixel's corner
        wanted = np.stack((u, v), axis=-1)
        # Its corners begin at the bottom left and go on anticlockwise.
        assert np.abs(seen - wanted[[3, 2, 1, 0]]).max() < 0.25


def test_a_tag_on_a_wall_is_upright_and_a_nested_one_lies_on_top() -> None:
    wall = Tag(id=5, size_m=0.6, north_m=3.0, east_m=0.0, altitude_m=1.5, pitch_deg=90.0)
    scene = Scenery(room=Walls(north_m=(-3.0, 3.0), east_m=(-3.0, 3.0), height_m=3.0), tag=(wall,))
    (found,) = Detector().detect(draw(scene, ((0.0, 0.0, -1.5), LEVEL), mount=AHEAD))
    assert found.tag_id == 5
    # Bottom left first: it stands upright in the picture.
    assert found.corners[0][0] < found.center[0] < found.corners[1][0]
    assert found.corners[0][1] > found.center[1] > found.corners[3][1]
    outer = Tag(id=3, family="tag25h9", size_m=0.7, north_m=0.0, east_m=0.0)
    inner = Tag(id=9, size_m=0.09, north_m=0.0, east_m=0.0)
    frame = draw(Scenery(tag=(inner, outer)), ((0.0, 0.0, -1.2), LEVEL))
    (found,) = Detector().detect(frame)
    assert found.tag_id == 9


def test_a_balloon_appears_with_its_size_and_hides_what_is_behind_it() -> None:
    balloon = Balloon(north_m=2.0, east_m=0.0, altitude_m=1.5, diameter_m=0.4, colour="red")
    gate = GateFrame(north_m=4.0, east_m=0.0, altitude_m=1.5, opening_m=0.2, frame_m=0.4)
    ship = OtherShip(north_m=3.0, east_m=1.0, altitude_m=1.5, length_m=1.0, diameter_m=0.4)
    scene = Scenery(balloon=(balloon,), gate=(gate,), ship=(ship,))
    frame = Renderer(scene, OPTICS, AHEAD).render(lambda _: ((0.0, 0.0, -1.5), LEVEL), STILL)
    red = (frame[..., 0] > 1.7 * frame[..., 1]) & (frame[..., 2] > 0.6 * frame[..., 1])
    red &= frame[..., 2] < 1.6 * frame[..., 1] + 40.0
    rows, columns = np.nonzero(red)
    assert (columns.mean(), rows.mean()) == pytest.approx((319.5, 239.5), abs=1.0)
    # A ball of radius r at a distance d is seen under the angle asin(r / d).
    wanted = 2 * OPTICS.fx * np.tan(np.arcsin(0.2 / 2.0))
    assert columns.max() - columns.min() + 1 == pytest.approx(wanted, abs=2.0)
    assert np.abs(frame[240, 319].astype(int) - (136, 20, 26)).max() < 4  # its equator
    assert tuple(frame[240, 319 + 55]) == (240, 120, 20)  # the gate around it, behind
    assert frame[240, 319 + int(OPTICS.fx / 3.0)].std() < 8.0  # silver


BIG = Tag(id=1, size_m=2.0, north_m=0.0, east_m=0.0)  # its rim is 41 pixels wide at 3 m


def edge_px(line: Any) -> tuple[float, float]:
    """Where a line of pixels from black to white has its edge, and how wide that is."""
    share = np.clip((line.astype(float) - 25.0) / 210.0, 0.0, 1.0)
    return len(line) - float(share.sum()), float(np.sum((share > 0.03) & (share < 0.97)))


def test_blur_is_as_long_as_rate_times_exposure() -> None:
    """A ship that turns its nose up at 1 rad/s, 3 m up, over 20 ms; 18.4 degrees off its axis."""
    renderer = Renderer(Scenery(tag=(BIG,)), OPTICS, DOWN, grey=True)

    def pitching(t_s: float) -> Pose:
        return (0.0, 0.0, -3.0), from_euler(0.0, t_s, 0.0)

    still, narrow = edge_px(renderer.render(lambda _: pitching(0.0), STILL)[385:430, 320])
    moved, wide = edge_px(renderer.render(pitching, Shot(-0.01, 0.02))[385:430, 320])
    assert narrow <= 1.0
    assert still == pytest.approx(239.5 + OPTICS.fx / 3.0 - 385 + 0.5, abs=0.13)
    assert moved == pytest.approx(still, abs=0.3)
    assert wide == pytest.approx(0.02 * OPTICS.fx / np.cos(np.arctan(1 / 3)) ** 2, abs=1.0)  # 10.9


def test_a_rolling_shutter_leans_what_passes_by() -> None:
    """Moving right at 2 m/s, 3 m up, with 20 ms from first row to last."""

    def moving(t_s: float) -> Pose:
        return (0.0, 2.0 * t_s, -3.0), LEVEL

    renderer = Renderer(Scenery(tag=(BIG,)), OPTICS, DOWN, grey=True)
    frame = renderer.render(moving, Shot(-0.01, 0.0, 0.02))
    flat = renderer.render(moving, STILL)
    places = [[edge_px(f[row, 460:510])[0] for row in (100, 240, 380)] for f in (flat, frame)]
    assert places[0] == pytest.approx([places[0][1]] * 3, abs=0.01)
    a_row_px = -2.0 * 0.02 / 479 * OPTICS.fx / 3.0
    assert np.diff(places[1]) == pytest.approx([140 * a_row_px] * 2, abs=0.3)  # -1.9 px each
    assert places[1][1] == pytest.approx(places[0][1], abs=0.3)


def test_exposure_gain_darkness_and_a_covered_lens() -> None:
    scene = Scenery()

    def camera(**settings: Any) -> SimulatedCamera:
        return SimulatedCamera(
            scene, OPTICS, DOWN, lambda _: ((0.0, 0.0, -2.0), LEVEL), grey=True, **settings
        )

    plain = camera(exposure_s=0.005, noisy=False, black=0.0, vignetting=0.0).render(1.0)
    double = camera(exposure_s=0.005, gain=2.0, noisy=False, black=0.0, vignetting=0.0).render(1.0)
    assert double.mean() == pytest.approx(2.0 * plain.mean(), rel=0.01)
    noise = camera(gain=8.0, exposure_s=0.00125, seed=2)
    first, second = noise.render(1.0), noise.render(1.0)
    spread = float(np.std(first.astype(float) - second.astype(float))) / 2**0.5
    mean = float(first.mean()) - 4.0
    assert spread == pytest.approx((mean * 8.0 / 18.4 + 2.4**2) ** 0.5, rel=0.1)
    noise.covered = True
    assert noise.render(1.0).mean() < 8.0
    auto = camera(auto=True)
    auto.light = 0.1
    for _ in range(8):
        frame = auto.render(1.0)
    assert frame.mean() == pytest.approx(110.0, abs=12.0)
    assert auto.exposure_s == pytest.approx(0.033)
    assert auto.gain > 2.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[tag]]\nid = 1\nsize_m = nan\nnorth_m = 0.0\neast_m = 0.0", "size_m"),
        ("[[ballon]]", "balloon"),
        ("[room]\nnorth_m = [1.0, 2.0]\neast_m = [-1.0, 1.0]\nheight_m = 3.0", "north_m"),
        ("[[tag]", "scene.toml"),
        ("light = 1e9", "light"),
        ("[[tag]]\nid = 587\nsize_m = 0.1\nnorth_m = 0\neast_m = 0", "no tag 587.*0 to 586"),
        ("[[tag]]\nid = 1\nfamily = 'aruco'\nsize_m = 1\nnorth_m = 0\neast_m = 0", "'aruco'"),
    ],
)
def test_a_bad_scene_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(text, where="scene.toml")


def test_the_families_of_tags_are_the_librarys() -> None:
    for family, count in FAMILIES.items():
        assert family_of(family)[1].ncodes == count
        cells, inner = picture(family, count - 1)
        assert len(cells) > inner


def test_a_ship_sees_its_map_in_the_hall_or_the_hall(tmp_path: Path) -> None:
    assert of(gtmab()) == EMPTY
    assert len(of(seeing()).tag) == 140
    (tmp_path / "room.toml").write_text(
        "[[tag]]\nid = 3\nsize_m = 0.2\nnorth_m = 1.0\neast_m = 0.0\nsigma_m = 0.004\n"
    )
    own = of(seeing(tags=str(tmp_path / "room.toml")))
    assert ([tag.id for tag in own.tag], own.room) == ([3], hall().room)
    (tmp_path / "room.toml").write_text("[[tag]]\nid = 3\n")
    with pytest.raises(ConfigError, match=r"room\.toml"):
        of(seeing(tags=str(tmp_path / "room.toml")))
    many = "".join(
        f"[[tag]]\nid = {i}\nfamily = 'tag36h10'\nsize_m = 0.2\nnorth_m = 1.25\n"
        "east_m = 0.75\naltitude_m = 0.5\n"
        for i in range(1000)
    )
    (tmp_path / "room.toml").write_text(many)
    with pytest.raises(ConfigError, match="the limit is 60000"):
        of(seeing(), tmp_path / "room.toml")
