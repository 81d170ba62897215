"""What is in a picture, on its way to the flight process; and detectors of somebody's own."""

import sys
from collections.abc import Callable
from math import asin, degrees, pi, radians, sin, tan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from blimp.airframe import CameraRow
from blimp.camera import lens as lenses
from blimp.camera.blobs import SeenBox
from blimp.camera.frame import Frame
from blimp.camera.sees import GIVES_UP, OwnDetector, Sees, TagBoxes, load, things
from blimp.clock import ManualClock
from blimp.errors import CameraError, ConfigError
from blimp.printed import picture
from blimp.types import SeenSample

WIDTH, HEIGHT = 640, 480
FRAME = Frame(
    sequence=1, t_s=7.0, exposure_s=0.01, gain=1.0, pixels=np.zeros((HEIGHT, WIDTH, 3), np.uint8)
)
FOCAL = 0.5 * WIDTH / tan(radians(30.0))
MIDDLE = SeenBox(kind="red", x_px=319.5, y_px=239.5, width_px=50.0, height_px=50.0)


class Says:
    """A detector that returns what a test wants."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer
        self.asked = 0

    def find(self, frame: Frame, /) -> Any:
        self.asked += 1
        return self.answer()


def seen(box: SeenBox, **options: Any) -> SeenSample:
    sent: list[bytes] = []
    row = CameraRow(width=WIDTH, height=HEIGHT, horizontal_fov_deg=60.0, **options)
    lens = lenses.of_view(WIDTH, HEIGHT, 60.0)
    step = Sees(Says(lambda: [box]), options=row, lens=lens, send=sent.append)
    shown = step.take(FRAME)
    assert shown["shapes"][0]["label"] == box.kind
    return msgspec.msgpack.decode(sent[0], type=SeenSample)


@pytest.mark.parametrize(
    ("options", "direction"),
    [
        ({"pitch_deg": 0.0}, (1.0, 0.0, 0.0)),
        ({"pitch_deg": -90.0}, (0.0, 0.0, 1.0)),
        ({"pitch_deg": 0.0, "yaw_deg": 90.0}, (0.0, 1.0, 0.0)),
        ({"pitch_deg": 0.0, "roll_deg": 180.0}, (1.0, 0.0, 0.0)),
    ],
)
def test_the_middle_of_the_picture_is_where_the_camera_looks(
    options: dict[str, float], direction: tuple[float, ...]
) -> None:
    found = seen(MIDDLE, position_m=(0.3, 0.0, 0.1), **options)
    assert found.found[0].direction_body == pytest.approx(direction, abs=1e-9)
    assert found.axis_body == pytest.approx(direction, abs=1e-9)
    assert (found.t_s, found.camera_body_m) == (7.0, (0.3, 0.0, 0.1))


def test_right_in_the_picture_is_right_and_low_is_down() -> None:
    (one,) = seen(
        msgspec.structs.replace(MIDDLE, x_px=319.5 + FOCAL * tan(0.3)), pitch_deg=0.0
    ).found
    assert degrees(asin(one.direction_body[1])) == pytest.approx(degrees(0.3))
    (one,) = seen(
        msgspec.structs.replace(MIDDLE, y_px=239.5 + FOCAL * tan(0.2)), pitch_deg=0.0
    ).found
    assert one.direction_body[2] == pytest.approx(sin(0.2))


def test_a_size_is_the_angle_that_it_fills() -> None:
    wide = 2.0 * FOCAL * tan(0.1)
    (one,) = seen(msgspec.structs.replace(MIDDLE, width_px=wide, height_px=wide)).found
    assert one.size_rad == pytest.approx(0.2)
    assert 0.0 < one.size_rad < pi


def own(answer: Callable[[], Any], clock: ManualClock | None = None) -> OwnDetector:
    return OwnDetector("mine:Own", clock=clock or ManualClock(), detector=Says(answer))


def test_what_ones_own_detector_finds_comes_largest_first() -> None:
    small = msgspec.structs.replace(MIDDLE, kind="cat", width_px=9.0)
    assert own(lambda: [small, MIDDLE]).find(FRAME) == [MIDDLE, small]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: None, "find returned NoneType, must be a list of SeenBox"),
        (lambda: [(1, 2)], "find returned a tuple, must be SeenBox"),
        (lambda: [msgspec.structs.replace(MIDDLE, kind="a b")], "kind 'a b': must have"),
        (lambda: [msgspec.structs.replace(MIDDLE, kind=3)], "kind '3': must have"),
        (lambda: [msgspec.structs.replace(MIDDLE, x_px=float("nan"))], "red: a number is not"),
        (lambda: [msgspec.structs.replace(MIDDLE, x_px=700.0)], "red: outside of the 640 x 480"),
        (lambda: [msgspec.structs.replace(MIDDLE, width_px=0.0)], "red: outside of the 640 x 480"),
        (lambda: [msgspec.structs.replace(MIDDLE, confidence=2.0)], "confidence 2.0, must be"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_it_must_not_return_is_said(answer: Callable[[], Any], words: str) -> None:
    with pytest.raises(CameraError, match=words):
        own(answer).find(FRAME)


def test_one_that_fails_again_and_again_is_asked_no_more() -> None:
    detector = Says(lambda: 1 / 0)
    mine = OwnDetector("mine:Own", clock=ManualClock(), detector=detector)
    for number in range(1, GIVES_UP + 1):
        with pytest.raises(CameraError) as error:
            mine.find(FRAME)
        assert ("off after 5 in a row" in str(error.value)) is (number == GIVES_UP)
    assert mine.find(FRAME) == []
    assert (mine.is_off, detector.asked) == (True, GIVES_UP)


def test_one_that_is_right_again_goes_on() -> None:
    answers = iter([1 / 3, [MIDDLE]] * 10)
    mine = own(lambda: next(answers))
    for _ in range(10):
        with pytest.raises(CameraError):
            mine.find(FRAME)
        assert mine.find(FRAME) == [MIDDLE]


def test_one_that_is_slow_is_a_failure() -> None:
    clock = ManualClock()

    def slow() -> list[SeenBox]:
        clock.advance(0.7)
        return [MIDDLE]

    with pytest.raises(CameraError, match=r"took 0\.7 s, the limit is 0\.5 s"):
        own(slow, clock).find(FRAME)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine", 'must be "package.module:Class"'),
        (":Own", 'must be "package.module:Class"'),
        ("no_such_module_here:Own", "ModuleNotFoundError: No module named"),
        ("blimp.clock:NoSuchClass", "AttributeError: module 'blimp.clock' has no attribute"),
        ("blimp.clock:ManualClock", r"has no find\(frame\)"),
        ("blimp.clock:Clock", "TypeError"),
    ],
)
def test_a_detector_that_cannot_be_made_says_why(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(name)


def test_a_row_names_its_colours_and_a_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_model_of_this_test.py").write_text(
        "class Cats:\n    def find(self, frame):\n        return []\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    row = CameraRow(sees=("red", "blue"), detector="my_model_of_this_test:Cats")
    sent: list[bytes] = []
    found = things(row, send=sent.append, clock=ManualClock())
    assert [step.name for step in found] == ["colours", "detector"]
    assert [step.take(FRAME) for step in found] == [{"shapes": []}] * 2
    assert len(sent) == 2
    assert things(CameraRow(), send=sent.append, clock=ManualClock()) == []
    with pytest.raises(ConfigError, match=r"no colour 'rot'.*colours are red, orange"):
        things(CameraRow(sees=("rot",)), send=sent.append, clock=ManualClock())


def test_a_printed_tag_is_a_thing_of_its_own() -> None:
    cells, between = picture("tag36h11", 7)
    side_px = 8 * between
    pixels = np.full((HEIGHT, WIDTH, 3), 200, np.uint8)
    printed = np.kron(cells, np.ones((8, 8), np.uint8))[:, :, None]
    high, wide = printed.shape[:2]
    pixels[100 : 100 + high, 300 : 300 + wide] = printed
    (step,) = things(CameraRow(sees=("tags",)), send=lambda _: None, clock=ManualClock())
    (found,) = TagBoxes().find(msgspec.structs.replace(FRAME, pixels=pixels))
    assert (step.name, found.kind) == ("tag things", "tag-7")
    assert found.x_px == pytest.approx(300 + wide / 2 - 0.5, abs=0.3)
    assert found.width_px == pytest.approx(side_px, abs=1.0)
