"""Drawn pictures, found tags, solved places: what the ship then knows is where it is."""

import pytest

from blimp.camera.tag_map import TagMap
from blimp.errors import ConfigError
from blimp.scene import Scenery, Tag
from blimp.ship.eye import let_see
from blimp.ship.lockstep import Lockstep

PAD = Scenery(
    tag=tuple(
        Tag(id=i, size_m=0.015, north_m=0.02 * (i // 8 - 3.5), east_m=0.02 * (i % 8 - 3.5))
        for i in range(64)
    )
)


def test_on_its_pad_a_ship_sees_that_it_is_there() -> None:
    with Lockstep("gtmab-eye", seed=7) as ship:
        let_see(ship.world, ship.airframe, PAD)
        ship.step(0.6)
        camera = ship.snapshot().sensors["camera"]
        assert camera.healthy
        assert camera.error == ""
        assert camera.value == pytest.approx((0.0, 0.0, 0.0), abs=0.01)
        assert ship.state.position_valid


def test_a_covered_lens_and_tags_of_another_room_are_said() -> None:
    elsewhere = TagMap(tags=(Tag(id=500, size_m=0.2, north_m=0.0, east_m=0.0),))
    with Lockstep("gtmab-eye", seed=7) as ship:
        camera = let_see(ship.world, ship.airframe, PAD, tag_map=elsewhere)
        ship.step(0.3)
        assert "not in the map: tag36h11" in ship.snapshot().sensors["camera"].error
        camera.covered = True
        ship.step(0.3)
        assert ship.snapshot().sensors["camera"].error == "too dark, or the lens is covered"


def test_a_ship_without_a_camera_has_nothing_to_look_with() -> None:
    with Lockstep("gtmab-mocap") as ship, pytest.raises(ConfigError, match="has no camera"):
        let_see(ship.world, ship.airframe, PAD)
