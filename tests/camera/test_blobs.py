"""Blobs of a colour in pictures that numpy draws."""

from typing import Any

import numpy as np
import pytest

from blimp.camera.blobs import HUES, ColourBlobs, blobs
from blimp.camera.frame import Frame
from blimp.scene import COLOURS

WIDTH, HEIGHT = 640, 480


def picture(
    *discs: tuple[str, float, float, float],
    light: tuple[float, float, float] = (1.0, 1.0, 1.0),
    seed: int = 5,
) -> Frame:
    """Return a grey wall of many shades with discs (colour, x, y, radius), in coloured light."""
    random = np.random.default_rng(seed)
    shades = np.kron(random.uniform(60.0, 160.0, (12, 16)), np.ones((40, 40)))
    pixels: Any = np.repeat(shades[:, :, None], 3, axis=2)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    for colour, x_px, y_px, radius in discs:
        pixels[np.hypot(x - x_px, y - y_px) < radius] = COLOURS[colour]
    pixels = pixels * np.array(light) + random.normal(0.0, 3.0, pixels.shape)
    shot = np.clip(pixels, 0, 255).astype(np.uint8)
    return Frame(sequence=1, t_s=1.0, exposure_s=0.01, gain=1.0, pixels=shot)


@pytest.mark.parametrize("colour", HUES)
@pytest.mark.parametrize(
    "light", [(1.0, 1.0, 1.0), (0.35, 0.35, 0.35), (1.0, 0.8, 0.6), (0.8, 0.9, 1.0)],
    ids=["white", "dim", "warm", "cold"],
)  # fmt: skip
def test_a_balloon_is_found_once_at_its_place_and_of_its_size_in_any_light(
    colour: str, light: tuple[float, float, float]
) -> None:
    finder = ColourBlobs(HUES)
    for seed in range(12):  # it takes some pictures to know the light
        found = finder.find(picture((colour, 400.0, 200.0, 50.0), light=light, seed=seed))
    assert [one.kind for one in found] == [colour]
    (one,) = found
    assert (one.x_px, one.y_px) == pytest.approx((400.0, 200.0), abs=4.0)
    assert (one.width_px, one.height_px) == pytest.approx((100.0, 100.0), rel=0.06)
    assert one.confidence > 0.9


def test_no_colour_in_a_grey_room_however_noisy() -> None:
    finder = ColourBlobs(HUES)
    assert not [finder.find(picture(seed=seed)) for seed in range(20) if finder.find(picture())]


def test_one_that_fills_the_picture_keeps_its_colour() -> None:
    """The light is not learnt from it: white balance by the mean would make it grey."""
    finder = ColourBlobs(HUES)
    for radius in (60.0, 120.0, 240.0, 500.0, 500.0, 500.0, 500.0, 500.0):
        found = finder.find(picture(("red", 320.0, 240.0, radius)))
    assert [one.kind for one in found] == ["red"]


def test_one_that_is_half_out_of_view_has_its_whole_diameter() -> None:
    (one,) = ColourBlobs(["blue"]).find(picture(("blue", 0.0, 240.0, 80.0)))
    assert one.height_px == one.width_px == pytest.approx(160.0, abs=8.0)


def test_two_of_one_colour_are_two_and_the_larger_is_first() -> None:
    found = ColourBlobs(["green"]).find(
        picture(("green", 150.0, 240.0, 30.0), ("green", 450.0, 240.0, 60.0))
    )
    assert [round(one.x_px / 150.0) for one in found] == [3, 1]


def test_a_frame_has_the_size_of_its_box_and_is_less_sure_than_a_disc() -> None:
    shot = picture()
    pixels = shot.pixels.copy()
    pixels[100:300, 200:400] = COLOURS["orange"]
    pixels[120:280, 220:380] = 110
    gate = Frame(sequence=1, t_s=1.0, exposure_s=0.01, gain=1.0, pixels=pixels)
    (one,) = ColourBlobs(["orange"]).find(gate)
    assert (one.width_px, one.height_px) == pytest.approx((200.0, 200.0), abs=8.0)
    assert one.confidence < 0.6


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (["......", "......"], []),
        ([".####.", ".####."], [(8, 1, 0, 4, 2)]),
        (["##..##", "##..##", "######"], [(14, 0, 0, 6, 3)]),  # joined below
        (["######", "##..##", "##..##"], [(14, 0, 0, 6, 3)]),  # and above
        (["###...", "###...", "...###", "...###"], [(6, 0, 0, 3, 2), (6, 3, 2, 3, 2)]),
        (["#.#.#.", "######", "#.#.#."], [(12, 0, 0, 6, 3)]),
        (["####..", ".....#", "####..", "####.."], [(8, 0, 2, 4, 2)]),
    ],
)
def test_what_touches_is_one(rows: list[str], found: list[tuple[int, ...]]) -> None:
    mask = np.array([[letter == "#" for letter in row] for row in rows])
    assert sorted(blobs(mask)) == sorted(found)


def test_as_many_blobs_as_a_fill_finds_in_noise() -> None:
    """Against a search pixel by pixel."""
    random = np.random.default_rng(3)
    for share in (0.3, 0.5, 0.6, 0.75):
        mask = random.random((60, 80)) < share
        assert sorted(area for area, *_ in blobs(mask)) == sorted(_filled(mask))


def _filled(mask: Any) -> list[int]:
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    areas = []
    while left:
        edge, area = [left.pop()], 0
        while edge:
            y, x = edge.pop()
            area += 1
            for near in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                if near in left:
                    left.remove(near)
                    edge.append(near)
        areas.append(area)
    return [area for area in areas if area >= 6]
