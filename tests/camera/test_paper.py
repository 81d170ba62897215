"""The printed pages, as a detector and a ruler find them."""

from pathlib import Path

import numpy as np
import pytest

from blimp.camera.detect import TagDetector
from blimp.camera.paper import DPI, pad_page, print_room
from blimp.camera.tag_map import corners_ned_m
from blimp.errors import ConfigError


def test_each_tag_of_the_pad_is_where_its_map_says() -> None:
    image, tags = pad_page("a4")
    assert image.size == (2480, 3508), "210 by 297 mm at 300 dots an inch"
    half = np.array(image.convert("L").resize((1240, 1754)))
    found = {one.id: one for one in TagDetector(["tag36h11"]).detect(half)}
    assert found.keys() == {tag.id for tag in tags}
    middle, dot_m = np.array((619.5, 876.5)), 2.0 * 0.0254 / DPI
    for tag in tags:
        right_m, down_m = ((found[tag.id].corners_px - middle) * dot_m).T
        seen = np.stack((-down_m, right_m), axis=1)
        wanted = np.array(corners_ned_m(tag))[:, :2]
        assert np.abs(seen - wanted).max() < 0.0003


def test_a_room_has_a_page_a_tag_and_a_map_of_it(tmp_path: Path) -> None:
    file = tmp_path / "room.pdf"
    made = print_room(file, rows=1, columns=3, spacing_m=1.0, size_mm=150.0, paper="letter")
    data = file.read_bytes()
    assert data.startswith(b"%PDF")
    assert data.count(b"/Type /Page\n") + data.count(b"/Type /Page ") == 3
    assert b"[ 0 0 612.0 792.0 ]" in data, "letter, in points: printed at 100 % it has its size"
    room = [tag for tag in made.tags if tag.id < 500]
    assert [(tag.id, tag.east_m) for tag in room] == [(0, -1.0), (2, 1.0)]
    assert room[0].size_m == pytest.approx(0.150, abs=0.001)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"paper": "a0"}, "no paper 'a0': known are a4, letter"),
        ({"size_mm": 400.0}, "a4 holds 20 to 154 mm"),
        ({"rows": 30}, "30 x 30 tags: the limit is 500"),
        ({"spacing_m": 0.1}, "the limits are 0.2 to 20 m"),
    ],
)
def test_what_cannot_be_printed_is_said(tmp_path: Path, changes: dict, said: str) -> None:  # type: ignore[type-arg]
    wanted = {"rows": 3, "columns": 30, "spacing_m": 1.0, "size_mm": 150.0, "paper": "a4"} | changes
    with pytest.raises(ConfigError, match=said):
        print_room(tmp_path / "room.pdf", **wanted)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        print_room(
            tmp_path / "nowhere" / "room.pdf", rows=0, columns=0, spacing_m=1.0, size_mm=150.0,
            paper="a4",
        )  # fmt: skip
