from math import nan

import pytest

from blimp.errors import DeviceError
from blimp.hardware.plausible import Plausible


def refuses(plausible: Plausible, value: float) -> bool:
    try:
        plausible.check(value)
    except DeviceError:
        return True
    return False


@pytest.mark.parametrize("value", [nan, -1.1, 100.1])
def test_what_is_outside_the_chips_range_is_refused(value: float) -> None:
    assert refuses(Plausible("it", "m", low=-1.0, high=100.0, step=1e9), value)


def test_a_jump_is_refused_once_and_then_it_is_the_world_that_moved() -> None:
    for far in (20.0, 40.0):
        plausible = Plausible("it", "m", low=-1.0, high=100.0, step=5.0)
        assert not refuses(plausible, 30.0)
        assert refuses(plausible, far)
        assert not refuses(plausible, far)
        assert not refuses(plausible, far + 5.0)
        plausible.forget()
        assert not refuses(plausible, 90.0)
