"""A Pi's camera by picamera2's interface, which the simulated Pi has: time is the ship's."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from pyapriltags import Detector

from blimp.camera.picamera import PicameraSource
from blimp.errors import CameraError
from blimp.sim.world import World
from tests.sim.camera.eyes import hovering

SIZE = (640, 480)


@pytest.fixture
def world() -> Iterator[World]:
    with hovering() as world:
        yield world


def opened(**options: bool) -> PicameraSource:
    return PicameraSource(size=SIZE, rate_hz=20.0, **{"simulated": True, **options})


def test_frames_with_their_times_and_a_photograph(world: World) -> None:
    source = opened()
    try:
        found = [frame for _ in range(6) if (frame := source.next_frame(0.2)) is not None]
        assert len(found) > 3
        for before, after in itertools.pairwise(found):
            steps = after.sequence - before.sequence
            assert after.t_s - before.t_s == pytest.approx(0.05 * steps, rel=0.02)
        last = found[-1]
        assert last.pixels.shape == (480, 640, 3)
        assert 0.0 < world.t_s - last.t_s < 0.3
        # The simulated sensor has the middle of its frames, 24 ms from top to bottom, at 20 Hz.
        assert 20.0 * last.t_s == pytest.approx(round(20.0 * last.t_s), abs=1e-3)
        grey = np.ascontiguousarray(last.pixels[..., 1])
        assert any(tag.tag_id == 22 for tag in Detector().detect(grey)), "the one below the ship"
        still = source.still()
        assert still.pixels.shape[:2] > (1000, 1000)
        assert source.next_frame(1.0) is not None, "it goes on"
    finally:
        source.close()
        source.close()


def test_a_camera_in_use_and_one_of_the_other_world(world: World) -> None:
    with pytest.raises(CameraError, match="a simulated camera stands where the other"):
        opened(simulated=False)
    source = opened()
    with pytest.raises(CameraError, match="camera 0 cannot be opened"):
        opened()
    source.close()
    with pytest.raises(CameraError, match="camera 3 cannot be opened"):
        PicameraSource(size=SIZE, rate_hz=20.0, simulated=True, number=3)
    opened().close()


def test_without_picamera2_it_says_how_to_get_it() -> None:
    with pytest.raises(CameraError, match="sudo apt install python3-picamera2"):
        opened(simulated=False)
