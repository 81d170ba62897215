import pytest

from blimp.camera.look import Look, sharpness
from tests.camera.frames import frame

BIG = (320, 240)


@pytest.mark.parametrize(("value", "word"), [(0, "black"), (255, "white")])
def test_no_light_and_too_much(value: int, word: str) -> None:
    look = Look()
    look.take(frame(1, value=value))
    assert look.problem.startswith(word)


def test_a_frozen_picture_and_one_that_changes_again() -> None:
    look = Look()
    for number in range(1, 40):
        look.take(frame(number, value=100))
    assert look.problem == "the same picture for 4 s: the camera is frozen"
    look.take(frame(50))
    assert look.problem == ""


def test_a_blurred_picture_is_less_sharp() -> None:
    sharp = frame(1, size=BIG).pixels
    blurred = ((sharp[:, :-1].astype(int) + sharp[:, 1:]) // 2).astype("uint8")
    assert sharpness(sharp) > 2 * sharpness(blurred)
    assert sharpness(frame(1, size=BIG, value=77).pixels) == 0.0
