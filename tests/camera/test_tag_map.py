from pathlib import Path

import pytest

from blimp import scene
from blimp.camera import tag_map
from blimp.errors import ConfigError

ROW = "[[tag]]\nid = 3\nsize_m = 0.2\nnorth_m = 1.0\neast_m = -2.0\n"
WALL = ROW + "altitude_m = 1.5\nyaw_deg = 90.0\npitch_deg = 90.0\n"


def test_a_tag_lies_on_the_floor_with_its_top_to_the_north() -> None:
    (tag,) = scene.parse(ROW, where="hall").tag
    bottom_left, _, top_right, _ = tag_map.corners_ned_m(tag)
    assert bottom_left == pytest.approx((0.9, -2.1, 0.0))
    assert top_right == pytest.approx((1.1, -1.9, 0.0))


def test_a_tag_on_the_east_wall_has_its_top_up() -> None:
    (tag,) = scene.parse(WALL, where="hall").tag
    bottom_left, bottom_right, _, top_left = tag_map.corners_ned_m(tag)
    # Looking east, one has the south to the right.
    assert bottom_left == pytest.approx((1.1, -2.0, -1.4))
    assert bottom_right == pytest.approx((0.9, -2.0, -1.4))
    assert top_left == pytest.approx((1.1, -2.0, -1.6))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = scene.parse(WALL + ROW.replace("id = 3", "id = 4"), where="hall")
    tags = tag_map.TagMap(tags=found.tag)
    file = tmp_path / "hall.toml"
    file.write_text(
        tag_map.as_toml(tags) + "\n[room]\nheight_m = 4.0\n"
        "north_m = [-6.0, 6.0]\neast_m = [-4.0, 4.0]\n"
    )
    assert tag_map.load(file) == tags


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no tag"),
        ("tag = 1", "Expected `array`"),
        ("tag = [1]", r"Expected `object`.*tag\[0\]"),
        (ROW.replace("0.2", "nan"), r"0.005.*tag\[0\].size_m"),
        (ROW.replace("1.0", "nan"), r"1000.*tag\[0\].north_m"),
        (ROW.replace("0.2", "0.001"), r"0.005.*tag\[0\].size_m"),
        (ROW + "family = 'tag36h1'", r"'tag36h1' .did you mean 'tag36h11'.*tag\[0\]"),
        (ROW + "family = 'tag16h5'", r"tag\[0\]: tag16h5: found are tag36h11"),
        (ROW.replace("3", "587"), r"tag36h11 has no tag 587: they are 0 to 586.*tag\[0\]"),
        (ROW + ROW, r"tag\[1\]: tag36h11 3 is tag\[0\] already"),
        (ROW + "yaw = 1.0", "did you mean 'yaw_deg'"),
        (ROW * 2001, "2000"),
        ("x" * 1_000_001, "1000000 bytes"),
    ],
)
def test_a_bad_file_is_refused_with_its_row(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "hall.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"hall.toml: .*{said}"):
        tag_map.load(file)


def test_no_file() -> None:
    with pytest.raises(ConfigError, match="/nowhere"):
        tag_map.load("/nowhere")
