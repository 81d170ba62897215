from pathlib import Path

import pytest

from blimp.camera import tag_map
from blimp.errors import ConfigError

ROW = "[[tag]]\nid = 3\nsize_m = 0.2\nnorth_m = 1.0\neast_m = -2.0\n"
WALL = ROW + "altitude_m = 1.5\nyaw_deg = 90.0\npitch_deg = 90.0\n"


def test_a_tag_lies_on_the_floor_with_its_top_to_the_north() -> None:
    (tag,) = tag_map.parse(ROW, where="hall").tags
    bottom_left, _, top_right, _ = tag.corners_ned_m()
    assert bottom_left == pytest.approx((0.9, -2.1, 0.0))
    assert top_right == pytest.approx((1.1, -1.9, 0.0))


def test_a_tag_on_the_east_wall_has_its_top_up() -> None:
    (tag,) = tag_map.parse(WALL, where="hall").tags
    bottom_left, bottom_right, _, top_left = tag.corners_ned_m()
    # Looking east, one has the south to the right.
    assert bottom_left == pytest.approx((1.1, -2.0, -1.4))
    assert bottom_right == pytest.approx((0.9, -2.0, -1.4))
    assert top_left == pytest.approx((1.1, -2.0, -1.6))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    tags = tag_map.parse(WALL + ROW.replace("id = 3", "id = 4"), where="hall")
    file = tmp_path / "hall.toml"
    file.write_text(tag_map.as_toml(tags) + "\n[[balloon]]\nradius_m = 0.2\n")
    assert tag_map.load(file) == tags


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no row"),
        ("tag = 1", "no row"),
        ("tag = [1]", "row 1: Expected `object`"),
        (ROW.replace("0.2", "nan"), "row 1: .*0.005.*size_m"),
        (ROW.replace("1.0", "nan"), "row 1: .*1000.*north_m"),
        (ROW.replace("0.2", "0.001"), "row 1: .*0.005.*size_m"),
        (ROW + "family = 'tag36h1'", "row 1: no family 'tag36h1' .did you mean 'tag36h11'"),
        (ROW.replace("3", "587"), "row 1: id 587: tag36h11 has ids 0 to 586"),
        (ROW + ROW, "row 2: tag36h11 3 is in row 1 already"),
        (ROW + "yaw = 1.0", "row 1: .*did you mean 'yaw_deg'"),
        (ROW * 2001, "2001 rows, the limit is 2000"),
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
