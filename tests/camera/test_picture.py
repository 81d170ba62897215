from io import BytesIO

import pytest
from PIL import Image

from blimp.camera.picture import MAX_BYTES, Picturer, small_jpeg
from blimp.camera.pipeline import StepResult
from blimp.errors import CameraError
from tests.camera.frames import frame


def test_a_picture_of_noise_is_small_enough() -> None:
    data = small_jpeg(frame(1, size=(1456, 1088)))
    assert len(data) <= MAX_BYTES
    assert Image.open(BytesIO(data)).size == (364, 272)


def test_what_is_drawn_over_a_picture_is_of_the_same_second() -> None:
    one = frame(20, size=(640, 480))
    seen = {
        "tags": StepResult(19, one.t_s - 0.1, {"shapes": []}),
        "blobs": StepResult(1, one.t_s - 1.5, {}),
    }
    pictures = Picturer(lambda after, _: None if after == 20 else one, lambda: seen)
    found = pictures.picture(-1, 0.1)
    assert found["about"]["seen"] == {"tags": {"sequence": 19, "content": {"shapes": []}}}
    assert found["about"]["size"] == [640, 480]
    assert pictures.picture(19, 0.1)["jpeg"] is found["jpeg"], "made once for a frame"
    with pytest.raises(CameraError, match=r"no new frame in 0\.1 s"):
        pictures.picture(20, 0.1)
