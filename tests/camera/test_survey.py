"""Maps and lenses from corners of which the truth is known."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from blimp.camera import lens as lenses
from blimp.camera.detect import Detection
from blimp.camera.lens import Lens
from blimp.camera.paper import pad_page
from blimp.camera.survey import calibrate, found_in, survey
from blimp.camera.tag_map import TagMap
from blimp.errors import ConfigError
from blimp.rotation import from_euler, rotate
from blimp.scene import Tag
from tests.camera.frames import corners

LENS = lenses.of_view(728, 544, 66.0)
BENT = msgspec.structs.replace(
    LENS, fx=571.0, fy=569.0, cx=370.0, cy=265.0, k1=-0.28, k2=0.09, p1=0.001
)
HELD = ("tag36h11", 4)
NOMINAL = TagMap(
    tags=tuple(Tag(id=i, size_m=0.15, north_m=i // 3 - 1.0, east_m=i % 3 - 1.0) for i in range(9))
)
BOARD = TagMap(tags=tuple(pad_page("a4")[1]))


def walk(tags: TagMap, count: int, *, seed: int = 4) -> list[list[Detection]]:
    random = np.random.default_rng(seed)
    return [
        corners(
            tags, LENS, np.array((*random.uniform(-0.8, 0.8, 2), -random.uniform(1.5, 2.5))),
            (*random.normal(0.0, 0.15, 2), random.uniform(-3.0, 3.0)), random,
        )
        for _ in range(count)
    ]  # fmt: skip


def views(lens: Lens, count: int, *, tilt: float = 0.5, reach_m: float = 0.1) -> Any:
    random = np.random.default_rng(6)
    found = []
    for _ in range(count):
        angles = (*random.uniform(-tilt, tilt, 2), random.uniform(-0.4, 0.4))
        out = np.array(rotate(from_euler(*angles), (0.0, 0.0, 1.0)))
        aim = np.array((*random.uniform(-reach_m, reach_m, 2), 0.0))
        found.append(corners(BOARD, lens, aim - random.uniform(0.2, 0.35) * out, angles, random))
    return found


def test_tags_that_lie_otherwise_than_planned_are_found() -> None:
    random = np.random.default_rng(3)
    truth = TagMap(
        tags=tuple(
            tag
            if tag.key == HELD
            else msgspec.structs.replace(
                tag, north_m=tag.north_m + random.normal(0.0, 0.05),
                east_m=tag.east_m + random.normal(0.0, 0.05), yaw_deg=random.normal(0.0, 5.0),
            )
            for tag in NOMINAL.tags
        )
    )  # fmt: skip
    found = survey(walk(truth, 30), NOMINAL, LENS, held=HELD)
    assert found.rms_px == pytest.approx(0.1, abs=0.03)
    assert found.unseen == ()
    for is_, was in zip(found.tag_map.tags, truth.tags, strict=True):
        error = np.subtract((is_.north_m, is_.east_m), (was.north_m, was.east_m))
        assert np.abs(error).max() < 0.01
        assert np.linalg.norm(error) < 5.0 * (is_.sigma_m + 1e-4)
        assert is_.yaw_deg == pytest.approx(was.yaw_deg, abs=0.5)


def test_a_survey_says_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match="the map has no tag36h11 77"):
        survey([], NOMINAL, LENS, held=("tag36h11", 77))
    with pytest.raises(ConfigError, match="no picture has tag36h11 4 and another tag"):
        survey([], NOMINAL, LENS, held=HELD)
    pictures = [[one for one in view if one.id != 0] for view in walk(NOMINAL, 6)]
    assert survey(pictures, NOMINAL, LENS, held=HELD).unseen == (("tag36h11", 0),)


def test_a_lens_is_found_from_the_pad() -> None:
    found = calibrate(views(BENT, 15), BOARD, (728, 544))
    assert found.lens.fx == pytest.approx(BENT.fx, rel=0.003)
    assert (found.lens.cx, found.lens.cy) == pytest.approx((BENT.cx, BENT.cy), abs=2.0)
    assert found.lens.focal_sigma < 0.005
    edge = np.array([[0.5, 0.4, 1.0]])
    assert found.lens.project(edge) == pytest.approx(BENT.project(edge), abs=0.7)


def test_views_that_do_not_show_a_lens_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"14 pictures show four tags .* it takes 15"):
        calibrate(views(BENT, 14), BOARD, (728, 544))
    corner = [[d for d in v if d.corners_px[:, 0].max() < 350] for v in views(BENT, 30)]
    with pytest.raises(ConfigError, match="% of the picture, it takes 60 %"):
        calibrate(corner, BOARD, (728, 544))


def test_pictures_that_are_none_are_said(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8 no picture")
    with pytest.raises(ConfigError, match="no picture can be read"):
        found_in([tmp_path / "bad.jpg", tmp_path / "none"], ["tag36h11"], say=said.append)
    assert len(said) == 2
    for name, size in (("a.png", (640, 480)), ("b.png", (320, 240))):
        Image.new("L", size, 90).save(tmp_path / name)
    with pytest.raises(ConfigError, match=r"b.png: \(320, 240\) pixels, the others \(640, 480\)"):
        found_in([tmp_path / "a.png", tmp_path / "b.png"], ["tag36h11"], say=said.append)
